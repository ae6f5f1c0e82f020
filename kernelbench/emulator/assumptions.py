"""What a verdict rests on beyond PTX's text, by name."""

from __future__ import annotations

#: Where the emulator believes more than PTX's text promises, and what it believes.
ASSUMPTIONS = {
    "groups-cover-loads": "cp.async.bulk.wait_group.read says that loads which complete on an "
    "mbarrier have read their tensor map, too",
    "copies-at-cta-scope": "a wait that acquires at scope cta sees a copy that another CTA has "
    "issued",
    "dependent-stores": "a store that depends on what an atomic returned comes after it, without a "
    "fence between",
    "triggers-hand-on": "what a grid has waited for before it triggers its dependents is visible "
    "to them before they wait",
    "plain-meeting-loads": "a plain load of the word at which CTAs meet gives a value that it has "
    "had, while their atomics change it",
    "reads-before-async": "what the async proxy overwrites was read before by ordinary loads that "
    "are in order with it, without fence.proxy.async between",
    "groups-of-warpgroups": "a warp's wgmma.wait_group says that the group's operations have read "
    "what the other warps of its warpgroup read by them, too",
}

#: A launch that hung while not all its CTAs were resident, and was made again.
TOGETHER = "ctas-together"
#: A launch that hung before the work on other streams was done, and was made again.
BESIDE = "streams-together"
#: Two that hung, each where the other had not run, and were made together.
INTERLEAVED = "kernels-together"
#: A launch that was stuck where elect.sync elected another lane than the lowest, and made again.
ELECT_LOWEST = "elect-lowest"
#: A launch that its stream lets begin before the one ahead of it has ended, and that never waits.
NEVER_WAITS = "never-waits"
#: A launch in the middle of which the host has gone on.
HOST_IN_TURN = "host-in-turn"
#: Configurations of an autotuner that were compiled alone.
FIRST_TRIED = "first-configurations"
#: A program that launched nothing on fewer.
ALL_SMS = "all-sms"
#: What else a verdict may rest on: how launches of PTX were made.
LAUNCH_ASSUMPTIONS = {
    ALL_SMS: "the program is told of as many SMs as a GPU of its arch has: told of fewer, main "
    "failed before it launched a kernel",
    FIRST_TRIED: "the first eight configurations of an autotuner that compile are run and checked, "
    "the others compiled alone",
    HOST_IN_TURN: "a kernel and the host of a program, or its streams, that wait for each other's "
    "words go on in turn, in one schedule: what they have answered cannot be asked again",
    TOGETHER: "CTAs that poll for each other are all resident, though their launch is not "
    "cooperative; it hung where they were not, and was made again",
    BESIDE: "a kernel that polls for what work on another stream writes runs beside it, as the GPU "
    "has room for both; it hung where it ran first, and was made again after it",
    INTERLEAVED: "kernels on two streams that poll for each other run beside each other, all their "
    "CTAs resident, as the GPU has room for both; each hung where it ran alone",
    ELECT_LOWEST: "elect.sync elects the lowest lane of its mask, as GPUs do; it hung, or stopped "
    "by its own check, where it elected another, which PTX allows, and was made again",
    NEVER_WAITS: "a kernel that may begin before the one ahead of it in its stream has ended, and "
    "that has no griddepcontrol.wait (cudaGridDependencySynchronize), needs nothing of it (of "
    "programs and scripts this is checked: what it accesses is compared with what that writes)",
}
