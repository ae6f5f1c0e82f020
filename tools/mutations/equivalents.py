"""Mutants that no execution can tell from their step, shown after they had not been found.

The sample of ``default_check.py`` was drawn before: it has some of them.
"""

from __future__ import annotations

SAME_AT_EQUALITY = "It chooses the smaller or the larger of two: where they are equal, they are."
#: By operator, file and line; where a file has changed, its mutants count again.
BY_HAND = {
    (
        "bound-over",
        "top_k.cuh",
        44,
        "for (uint32_t i = 0; i < kCount; ++i) {",
    ): "The key behind the last would be taken out if it were the largest; the largest is one of "
    "those that there are.",
    (
        "handover-relaxed",
        "gemm.cuh",
        129,
        "ptx::mbarrier_arrive(ptx::sem_release, ptx::scope_cta, &shared.full[stage]);",
    ): "The arrival only completes the phase, and the thread that makes it is the one that waits: "
    "it hands nothing over.",
}
#: All of them.
LATE = {SAME_AT_EQUALITY, *BY_HAND.values()}
