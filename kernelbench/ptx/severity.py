"""Which findings are errors, and which are formal.

*Formal* is what PTX's text leaves unordered and every implementation orders: accesses of lanes of
one warp by one instruction, or with a ``.sync.aligned`` instruction between them, at which PTX has
the lanes together without saying that it orders memory (the runtime says where that orders them
through other threads), or with a shuffle between them of what one has loaded
(:mod:`kernelbench.ptx.lowering.shuffled_loads`); accesses to tensor memory whose synchronization
lacks nothing but ``tcgen05.fence`` (docs/ptx.md);
and what has one outcome in any order: ordinary stores of the same value, and
loads whose value the threads that race make nothing of
(:mod:`kernelbench.ptx.lowering.unused_loads`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from kernelbench.ptx.lowering.shuffled_loads import shuffled_between
from kernelbench.ptx.lowering.unused_loads import unused_by
from kernelbench.ptx.sources import PtxSymbols

Severity = Literal["error", "formal", "noted"]
#: Of PTX, of an access and of the one that it conflicts with; None for one that is elsewhere.
Lines = tuple[int | None, int | None]


def severity_of(
    kind: str, lines: Lines, of: PtxSymbols, one_warp: bool, same_value: bool, fence_only: bool,
    readers: Collection[int] = (),
) -> Severity:  # fmt: skip
    """A finding's severity.

    Args:
        lines: Of PTX, of the access and of the one that it conflicts with.
        one_warp: Whether both were lanes of one warp each time that it was seen.
        same_value: Whether both were stores, and of one value, each time.
        readers: The threads that loaded, if each time one loaded what another of its CTA stored.
        fence_only: Whether they lacked nothing but ``tcgen05.fence`` each time.
    """
    if fence_only:
        return "formal"
    here, there = lines
    if kind != "race" or here is None or there is None:
        return "error"
    if same_value:
        return "formal"
    if readers and any(_goes_nowhere(line, of, readers) for line in (here, there)):
        return "formal"
    if not one_warp:
        return "error"
    meet = (
        here == there
        or _meet_between(min(here, there), max(here, there), of)
        or _shuffled_between(there, here, of)
    )
    return "formal" if meet else "error"


def _shuffled_between(first: int, last: int, of: PtxSymbols) -> bool:
    load, store = of.statement(first), of.statement(last)
    if load is None or store is None or load[0] is not store[0] or not first < last:
        return False
    return shuffled_between(load[0], load[1], store[1])


def _goes_nowhere(line: int, of: PtxSymbols, readers: Collection[int]) -> bool:
    found = of.statement(line)
    return found is not None and unused_by(*found, readers)


def _meet_between(first: int, last: int, of: PtxSymbols) -> bool:
    """Whether straight code from one line to another passes a ``.sync.aligned`` instruction."""
    found = of.statement(first), of.statement(last)
    if found[0] is None or found[1] is None or found[0][0] is not found[1][0]:
        return False
    met = False
    for statement in found[0][0].statements:
        if not first < statement.line < last:
            continue
        if statement.label or statement.opcode.startswith(("bra", "brx", "ret", "exit")):
            return False
        met |= ".sync.aligned" in statement.opcode and not statement.guard
    return met
