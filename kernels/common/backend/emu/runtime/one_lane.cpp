// Operations that one thread issues (tcgen05.mma, cp and commit, bulk copies; PTX ISA 9.1, 9.7.9
// and 9.7.16): several lanes that issue the same one, once each, have forgotten the election.
#include "one_lane.hpp"

namespace kb::emu {

// Stricter: PTX lets every lane issue its own operation; 32 equal ones are legal where their effect
// is idempotent, and a fault wherever a count is kept. Bulk stores of translated PTX are one.
// The same operands from the same place by two lanes: each has issued what one was to. Different
// operands are a warp's own division of work.
void check_one_lane(uint64_t operands, Pc pc, const char* what) {
  Thread& thread = self();
  std::vector<IssuePlace>& places = thread.warp->tensor.places;
  for (const IssuePlace& place : places) {
    if (place.pc == pc && place.lane == thread.lane) return;
  }
  for (const IssuePlace& place : places) {
    if (place.pc != pc || place.operands != operands) continue;
    fail({.kind = Class::kDivergence,
          .pc = pc,
          .text = std::string(what) + " is executed by lane " + std::to_string(place.lane) +
                  " and by lane " + std::to_string(thread.lane) +
                  ", once each: one elected thread issues it"});
  }
  places.push_back({pc, thread.lane, operands});
}

}  // namespace kb::emu
