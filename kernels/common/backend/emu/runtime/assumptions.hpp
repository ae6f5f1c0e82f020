// Where the emulator believes more than PTX's text promises. A verdict that rests on one says so.
#pragma once

#include <cstdint>
#include <string>

namespace kb::emu {

enum class Assumption : uint8_t {
  kGroupsCoverLoads,   // cp.async.bulk.wait_group.read: tensor maps have been read by loads, too,
                       // though these complete on an mbarrier and not in a bulk group
  kCopiesAtCtaScope,   // a wait that acquires at scope cta sees a copy that another CTA has issued
  kDependentStores,    // a store that depends on what an atomic returned comes after it, without a
                       // fence between
  kTriggersHandOn,     // what a grid has waited for before its trigger is visible to the dependents
                       // before they wait
  kPlainMeetingLoads,  // a plain load of the word at which CTAs meet gives a value that it has had,
                       // while their atomics change it
  kReadsBeforeAsync,   // what the async proxy writes comes after generic reads that are in order
                       // with it, though no fence.proxy.async is between
  kGroupsOfWarpgroups,  // a warp's wgmma.wait_group says that the group's operations have read what
                        // the other warps of its warpgroup read by them, too
  kHostInTurn,          // a kernel and the host that wait for each other go on in turn
  kCount,
};

// Notes that the launch goes on without a finding because of it.
void assume(Assumption assumption);
void forget_assumptions();
// A list in JSON of the names of those noted.
std::string assumptions_json();

}  // namespace kb::emu
