// Between findings.cpp and launch.cpp.
#pragma once

#include <cstdint>

namespace kb::emu {

void clear_findings();
// Everything since clear_findings, as JSON; valid until the next call.
const char* findings_json(uint64_t launches, uint64_t switch_count, double seconds);

}  // namespace kb::emu
