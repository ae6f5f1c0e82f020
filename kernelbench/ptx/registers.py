"""Registers that instructions fill after they have been issued.

wgmma's D and tcgen05.ld's results arrive when a wait says so. Their registers live in arrays, which
the runtime keeps by address; everything else that names them reads and writes the array.
"""

from __future__ import annotations

from kernelbench.ptx.model import PtxFunction
from kernelbench.ptx.names import registers_in

_FILLING = ("wgmma.mma_async.", "tcgen05.ld.")


def arrays_of(function: PtxFunction) -> dict[tuple[str, ...], str]:
    """The array of each list of registers.

    A list that shares registers with another one has none: no array could be both.
    """
    arrays: dict[tuple[str, ...], str] = {}
    taken: set[str] = set()
    for statement in function.statements:
        if not statement.opcode.startswith(_FILLING):
            continue
        registers = registers_in(statement.operands[0]) if statement.operands else ()
        if registers in arrays or not taken.isdisjoint(registers):
            continue
        if len(set(registers)) == len(registers):
            arrays[registers] = f"filled{len(arrays)}"
            taken.update(registers)
    return arrays
