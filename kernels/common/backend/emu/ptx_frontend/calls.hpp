// Functions of the CUDA driver that kernels call: printf, assert, malloc, free and launches (CUDA
// C++ Programming Guide, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation", "CUDA
// Dynamic Parallelism"). Each takes a pointer to each of its results and parameters.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "units.hpp"

// Whether kernels print: a launch that runs in several schedules prints in the first.
extern "C" uint32_t kb_emu_silent;

namespace px {

namespace detail {

template <typename T>
T parameter(const Byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// The next argument, aligned to its size as in a structure.
template <typename T>
T next_argument(const Byte* arguments, size_t& at) {
  at = (at + sizeof(T) - 1) / sizeof(T) * sizeof(T);
  at += sizeof(T);
  return parameter<T>(arguments + at - sizeof(T));
}

// One specification of a format, "%-8.3f", with its argument.
inline std::string formatted(std::string specification, const Byte* arguments, size_t& at) {
  const auto print = [&](auto value) {
    const int size = std::snprintf(nullptr, 0, specification.c_str(), value);
    std::string out(static_cast<size_t>(std::max(size, 0)) + 1, '\0');
    std::snprintf(out.data(), out.size(), specification.c_str(), value);
    out.pop_back();
    return out;
  };
  for (size_t star; (star = specification.find('*')) != std::string::npos;) {
    specification.replace(star, 1, std::to_string(next_argument<s32>(arguments, at)));
  }
  const char kind = specification.back();
  // `long`, `size_t` and pointers have 64 bits.
  const bool wide = specification.find_first_of("lzjt") != std::string::npos;
  if (std::strchr("eEfFgGaA", kind)) return print(next_argument<double>(arguments, at));
  if (kind == 's') return print(reinterpret_cast<const char*>(next_argument<u64>(arguments, at)));
  if (kind == 'p') return print(reinterpret_cast<const void*>(next_argument<u64>(arguments, at)));
  if (wide) return print(next_argument<u64>(arguments, at));
  return print(next_argument<u32>(arguments, at));
}

}  // namespace detail

// int vprintf(const char* format, void* arguments): returns how many arguments there were.
inline void vprintf(Byte* result, Byte* format, Byte* arguments) {
  const auto* text = reinterpret_cast<const char*>(detail::parameter<u64>(format));
  const auto* values = reinterpret_cast<const Byte*>(detail::parameter<u64>(arguments));
  std::string out;
  size_t at = 0;
  u32 count = 0;
  while (*text != 0) {
    if (text[0] != '%' || text[1] == '%') {
      out += *text;
      text += text[0] == '%' ? 2 : 1;
      continue;
    }
    const size_t length = 1 + std::strcspn(text, "diouxXeEfFgGaAcsp");
    out += detail::formatted(std::string(text, length), values, at);
    text += length;
    ++count;
  }
  if (kb_emu_silent == 0) {
    std::fputs(out.c_str(), stdout);
    std::fflush(stdout);
  }
  std::memcpy(result, &count, sizeof count);
}

// void* malloc(size_t), void free(void*): new and delete call them.
inline void malloc(Byte* result, Byte* bytes) {
  const u64 made = emu::heap_allocate(detail::parameter<u64>(bytes));
  std::memcpy(result, &made, sizeof made);
}
inline void free(Byte*) {}

// Of CUDA's device runtime.
inline void parameter_buffer(Byte* result, Byte* kernel, Byte* grid, Byte* block, Byte* shared) {
  const void* const made = emu::parameter_buffer(
      detail::parameter<const char*>(kernel), detail::parameter<emu::BlockExtent>(grid),
      detail::parameter<emu::BlockExtent>(block), detail::parameter<u32>(shared));
  std::memcpy(result, &made, sizeof made);
}
inline void launch_device(Byte* result, Byte* parameters, Byte* stream) {
  const u32 status = emu::launch_device(detail::parameter<const void*>(parameters),
                                        detail::parameter<u64>(stream));
  std::memcpy(result, &status, sizeof status);
}
inline void create_stream(Byte* result, Byte* stream, Byte* flags) {
  const u64 made = emu::create_stream(detail::parameter<u32>(flags));
  own_store<u64>(detail::parameter<Byte*>(stream), made);
  const u32 status = made == 0 ? 1 : 0;  // cudaErrorInvalidValue
  std::memcpy(result, &status, sizeof status);
}
// cudaGraphSetConditional: a handle is the address of a word. CUDA's runtime API: racing calls are
// undefined. Stores of one CTA's threads to a word are no race here, a load and a store are.
PX void set_conditional(Byte* handle, Byte* value) {
  Byte* const word = detail::parameter<Byte*>(handle);
  store<u32>(word, detail::parameter<u32>(value));
  announce_read<sizeof(u32)>(word);
}
// Of what always goes well: that it did.
inline void success(Byte* result, Byte* = nullptr) {
  std::memset(result, 0, sizeof(u32));
}

// void __assertfail(const char* message, const char* file, unsigned line, const char* function,
//                   size_t charsize)
PX void assertfail(Byte* message, Byte* file, Byte* line, Byte* function, Byte*) {
  const auto text = [](const Byte* from) {
    return reinterpret_cast<const char*>(detail::parameter<u64>(from));
  };
  if (kb_emu_silent == 0) {
    std::fprintf(stderr, "%s:%u: %s: assertion `%s` failed\n", text(file),
                 detail::parameter<u32>(line), text(function), text(message));
  }
  assertion_failed();
}

}  // namespace px
