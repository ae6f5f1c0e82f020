// PTX: .local (5.1): a thread's own arrays, in registers or local memory, where nothing stands
// guard. Indices of arrays whose extent the compiler knows: it compares each, built for checking.
// What such an index does to shared or global memory is found there, and said better.
#include <cstdint>
#include <string>

#include "api_core.hpp"
#include "finding.hpp"
#include "runner.hpp"

namespace {

// What the compiler leaves of a place and of a type (-fsanitize=bounds).
struct TypeDescriptor {
  uint16_t kind;  // 0: an integer
  uint16_t info;  // of an integer: its lowest bit says whether it has a sign
  char name[1];   // 'uint32_t [16]', quoted
};
struct OutOfBounds {
  const char* file;
  uint32_t line;
  uint32_t column;
  const TypeDescriptor* array;
  const TypeDescriptor* index;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void __ubsan_handle_out_of_bounds(
    const OutOfBounds* at, uintptr_t index) {
  using namespace kb::emu;
  const Pc pc = KB_EMU_PC;
  if (current_thread == nullptr || !checking()) return;
  const bool is_signed = (at->index->info & 1) != 0;
  const std::string number =
      is_signed ? std::to_string(static_cast<intptr_t>(index)) : std::to_string(index);
  report_if_nothing_else({.kind = Class::kOutOfBounds,
                          .pc = pc,
                          .text = "index " + number + " of an array " + at->array->name});
}
