// Findings on their way to the reader, and the start of a new collection. Models nothing of PTX.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "options.hpp"

namespace kb::emu {

// JSON of a text, and of a place in a step's library.
void put_string(std::string& out, std::string_view text);
void put_pc(std::string& out, Pc pc);

void clear_findings();
// Notes that elect.sync has elected another lane than the lowest.
void note_another_elected();
// Everything since clear_findings, as JSON; valid until the next call.
const char* findings_json(uint64_t launches, uint64_t switch_count, double seconds);

}  // namespace kb::emu
