"""Loads that a shuffle of the whole warp waits for.

``shfl.sync`` makes a thread wait "until all non-exited threads corresponding to membermask" execute
it (PTX ISA 9.1, 9.7.9.6), and a lane executes it with the value of its operand. So where a shuffle
of all lanes takes what comes of a load, a lane behind the shuffle knows the loads of all complete,
and its store changes none of them. By PTX's words ``shfl.sync`` orders no memory: sums over a CTA
that end in place (FlashInfer's norms) have a race there that has one outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.lowering.names import operand_names
from kernelbench.ptx.lowering.unused_loads import is_pure, sources
from kernelbench.ptx.parser.model import Number, Operand, PtxFunction, Statement

_ALL_LANES = 0xFFFFFFFF
_JUMPS = ("bra", "brx", "call", "ret", "exit")
_BARRIERS = ("bar.sync", "bar.warp.sync", "barrier.sync", "barrier.cta.sync")


def shuffled_between(function: PtxFunction, load: Statement, store: Statement) -> bool:
    """Whether no lane of a warp reaches a store before all have what a load loads.

    Of a loop that has both, a barrier has to separate the store from the next turn's load.
    """
    if not load.opcode.startswith("ld.") or not store.opcode.startswith("st."):
        return False
    body = function.statements
    first, last = body.index(load), body.index(store)
    return _shuffled(function, body[first : last + 1]) and _apart(body, first, last)


def _shuffled(function: PtxFunction, straight: Sequence[Statement]) -> bool:
    load, *behind = straight
    held = operand_names(load.operands[0])
    for each in behind:
        if each.opcode.startswith(_JUMPS):
            return False
        if each.label or not each.operands:
            continue
        takes = not held.isdisjoint(sources(each))
        shuffles = takes and each.opcode.startswith("shfl.sync") and not each.guard
        if shuffles and _all_lanes(function, each.operands[4]):
            return True
        if is_pure(each):
            result = operand_names(each.operands[0])
            if takes:
                held |= result
            elif not each.guard:
                held -= result
    return False


def _all_lanes(function: PtxFunction, mask: Operand) -> bool:
    if isinstance(mask, Number):
        return mask.value & _ALL_LANES == _ALL_LANES
    written = [
        each for each in function.statements
        if each.operands and mask in operand_names(each.operands[0])
    ]  # fmt: skip
    return bool(written) and all(
        each.opcode.startswith("mov.") and isinstance(each.operands[1], Number)
        and _all_lanes(function, each.operands[1])
        for each in written
    )  # fmt: skip


def _apart(body: Sequence[Statement], first: int, last: int) -> bool:
    """Whether each loop around both has a barrier that comes between two of its turns."""
    labels = {each.label: at for at, each in enumerate(body) if each.label}
    for end in range(last + 1, len(body)):
        each = body[end]
        if not each.opcode.startswith(("bra", "brx")):
            continue
        starts = [labels[name] for name in map(str, each.operands) if name in labels]
        if each.opcode.startswith("brx") or any(
            start <= first
            and not any(_is_barrier(one) for one in (*body[start:first], *body[last:end]))
            for start in starts
        ):
            return False
    return True


def _is_barrier(statement: Statement) -> bool:
    return statement.opcode.startswith(_BARRIERS) and not statement.guard
