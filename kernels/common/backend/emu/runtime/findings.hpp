// Findings on their way to the reader, and the start of a new collection. Models nothing of PTX.
#pragma once

#include <cstdint>

namespace kb::emu {

void clear_findings();
// Everything since clear_findings, as JSON; valid until the next call.
const char* findings_json(uint64_t launches, uint64_t switch_count, double seconds);

}  // namespace kb::emu
