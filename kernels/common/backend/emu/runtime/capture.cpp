// A stream that the caller of a step records, to replay it later. CUDA runtime API, "Graph
// Management": while a stream is captured, calls that could wait for it or that another recording
// does not allow are refused, and what was recorded until then is lost.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "api_core.hpp"

namespace kb::emu {

namespace {

bool recording = false;
// The first call that ended the recording.
std::string ended_by;
std::vector<std::function<void()>> recorded;

}  // namespace

bool caller_records() {
  return recording;
}

void end_recording(const char* call) {
  if (recording && ended_by.empty()) ended_by = call;
}

const char* recording_ended_by() {
  return ended_by.c_str();
}

void record(std::function<void()> operation) {
  recorded.push_back(std::move(operation));
}

}  // namespace kb::emu

#define KB_EMU_EXPORT extern "C" __attribute__((visibility("default")))

// From now on what a step enqueues is recorded, until kb_emu_end_recording.
KB_EMU_EXPORT void kb_emu_record() {
  kb::emu::recording = true;
  kb::emu::ended_by.clear();
  kb::emu::recorded.clear();
}

// 0, or 1 and the call that ended the recording before in `message`.
KB_EMU_EXPORT int kb_emu_end_recording(char* message, uint64_t size) {
  kb::emu::recording = false;
  std::snprintf(message, size, "%s", kb::emu::ended_by.c_str());
  return kb::emu::ended_by.empty() ? 0 : 1;
}

// Does what was recorded; 0, or 1 and why in `message`.
KB_EMU_EXPORT int kb_emu_replay(char* message, uint64_t size) {
  try {
    for (const auto& operation : kb::emu::recorded) operation();
  } catch (const std::exception& error) {
    std::snprintf(message, size, "%s", error.what());
    return 1;
  }
  return 0;
}
