// NVRTC: nvcc compiles the text to PTX, in a folder that is gone with the program: until then
// findings quote the text. Its log is nvcc's. What is asked for as a cubin is PTX, too, which
// cuModuleLoadData takes.
#include "../cuda_libraries/nvrtc.h"

#include <ftw.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

#include "state.hpp"

struct _nvrtcProgram {
  std::string text, name;
  std::map<std::string, std::string> headers;
  std::vector<std::string> expressions;
  std::map<std::string, std::string> lowered;
  std::string ptx, log;
};

namespace kb::cuda {

namespace {

const char* const kNames[] = {"NVRTC_SUCCESS",
                              "NVRTC_ERROR_OUT_OF_MEMORY",
                              "NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
                              "NVRTC_ERROR_INVALID_INPUT",
                              "NVRTC_ERROR_INVALID_PROGRAM",
                              "NVRTC_ERROR_INVALID_OPTION",
                              "NVRTC_ERROR_COMPILATION",
                              "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
                              "NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION",
                              "NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION",
                              "NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID",
                              "NVRTC_ERROR_INTERNAL_ERROR"};

void write(const std::string& file, const std::string& text) {
  for (size_t at = file.find('/', 1); at != std::string::npos; at = file.find('/', at + 1)) {
    mkdir(file.substr(0, at).c_str(), 0700);
  }
  std::ofstream(file, std::ios::binary) << text;
}

std::string read(const std::string& file) {
  std::ifstream opened(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(opened), {}};
}

std::string kept_in;  // the program's folder; empty where nobody quotes

int removed(const char* path, const struct stat*, int, struct FTW*) {
  return std::remove(path);
}

// NVRTC, accessing lowered names: an expression has its template instantiated, and a name in the
// PTX, that of an object here which is initialized with its address.
std::string named_objects(const _nvrtcProgram& program) {
  std::string lines;
  for (size_t at = 0; at < program.expressions.size(); ++at) {
    const std::string& text = program.expressions[at];
    lines += "\nextern \"C\" __device__ const void* const volatile kb_lowered_" +
             std::to_string(at) + " = (const void*)(" + (text[0] == '&' ? "" : "&") + text + ");";
  }
  return lines + "\n";
}

void take_names(_nvrtcProgram& program) {
  static const std::regex object(R"(^[^\n]*\bkb_lowered_(\d+) = (?:generic\()?([\w$]+)\)?;\n)",
                                 std::regex::multiline);
  for (std::sregex_iterator at(program.ptx.begin(), program.ptx.end(), object), end; at != end;
       ++at) {
    program.lowered[program.expressions[std::stoul((*at)[1])]] = (*at)[2];
  }
  program.ptx = std::regex_replace(program.ptx, object, "");
}

nvrtcResult compiled(_nvrtcProgram& program, int count, const char* const* options) {
  const char* const named = std::getenv("TMPDIR");
  const std::string among = !kept_in.empty() ? kept_in : named != nullptr ? named : "/tmp";
  std::string folder = among + "/kernelbench-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return NVRTC_ERROR_OUT_OF_MEMORY;
  const std::string name = program.name.substr(program.name.rfind('/') + 1);
  write(folder + "/" + name, program.text + named_objects(program));
  for (const auto& [include, text] : program.headers) write(folder + "/include/" + include, text);
  std::string words = name;
  // nvcc takes a comma for the end of an option's value.
  static const std::regex comma(",");
  for (int at = 0; at < count; ++at) {
    words += "\n" + std::regex_replace(options[at], comma, R"(\,)");
  }
  const bool done = compile_text(folder.c_str(), words.c_str()) == 0;
  program.log = read(folder + "/log");
  program.ptx = done ? read(folder + "/ptx") : "";
  if (kept_in.empty()) nftw(folder.c_str(), removed, 8, FTW_DEPTH | FTW_PHYS);
  if (!done) return NVRTC_ERROR_COMPILATION;
  take_names(program);
  return NVRTC_SUCCESS;
}

nvrtcResult put(const std::string& text, size_t* size, char* to) {
  if (size != nullptr) *size = text.size() + 1;
  if (to != nullptr) std::memcpy(to, text.c_str(), text.size() + 1);
  return NVRTC_SUCCESS;
}

}  // namespace

}  // namespace kb::cuda

using namespace kb::cuda;

extern "C" {

void kb_cudart_keep_texts(const char* folder) {
  kept_in = folder;
}

const char* nvrtcGetErrorString(nvrtcResult result) {
  const auto at = static_cast<size_t>(result);
  return at < std::size(kNames) ? kNames[at] : "NVRTC_ERROR unknown";
}
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = CUDART_VERSION / 1000;
  *minor = CUDART_VERSION % 1000 / 10;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetNumSupportedArchs(int* count) {
  *count = 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetSupportedArchs(int* arches) {
  *arches = device.arch;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* text, const char* name, int count,
                               const char* const* headers, const char* const* includes) {
  if (program == nullptr || text == nullptr) return NVRTC_ERROR_INVALID_INPUT;
  *program = new _nvrtcProgram{text, name != nullptr ? name : "default_program"};
  for (int at = 0; at < count; ++at) (*program)->headers[includes[at]] = headers[at];
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  *program = nullptr;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcAddNameExpression(nvrtcProgram program, const char* expression) {
  if (!program->ptx.empty()) return NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION;
  program->expressions.push_back(expression);
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* options) {
  return program != nullptr ? compiled(*program, count, options) : NVRTC_ERROR_INVALID_PROGRAM;
}
nvrtcResult nvrtcGetLoweredName(nvrtcProgram program, const char* expression, const char** name) {
  if (program->ptx.empty()) return NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION;
  const auto found = program->lowered.find(expression);
  if (found == program->lowered.end()) return NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID;
  *name = found->second.c_str();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t* size) {
  return put(program->ptx, size, nullptr);
}
nvrtcResult nvrtcGetPTX(nvrtcProgram program, char* text) {
  return put(program->ptx, nullptr, text);
}
nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t* size) {
  return put(program->ptx, size, nullptr);
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* text) {
  return put(program->ptx, nullptr, text);
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t* size) {
  return put(program->log, size, nullptr);
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* text) {
  return put(program->log, nullptr, text);
}

}  // extern "C"
