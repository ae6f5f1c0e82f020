"""Registers that instructions fill after they have been issued.

wgmma's D and tcgen05.ld's results arrive when a wait says so. Their registers live in arrays, which
the runtime keeps by address; everything else that names them reads and writes the array.
"""

from __future__ import annotations

from kernelbench.ptx.lowering.names import registers_in
from kernelbench.ptx.parser.model import PtxFunction

#: A register that is not here is unsupported.
SPECIAL_REGISTERS = {
    **{
        f"%{name}.{axis}": f"px::{name}({number})"
        for name in (
            "tid",
            "ntid",
            "ctaid",
            "nctaid",
            "clusterid",
            "nclusterid",
            "cluster_ctaid",
            "cluster_nctaid",
        )
        for number, axis in enumerate("xyz")
    },
    "%laneid": "px::laneid()",
    "%warpid": "px::warpid()",
    "%nwarpid": "px::nwarpid()",
    "%smid": "px::smid()",
    "%nsmid": "px::nsmid()",
    "%cluster_ctarank": "px::cluster_ctarank()",
    "%cluster_nctarank": "px::cluster_nctarank()",
    **{f"%envreg{number}": f"px::envreg({number})" for number in range(32)},
    "%lanemask_eq": "px::lanemask_eq()",
    "%lanemask_lt": "(px::lanemask_eq() - 1)",
    "%lanemask_le": "(2 * px::lanemask_eq() - 1)",
    "%lanemask_gt": "~(2 * px::lanemask_eq() - 1)",
    "%lanemask_ge": "~(px::lanemask_eq() - 1)",
    "%dynamic_smem_size": "px::dynamic_smem_size(kStaticShared)",
    # Time goes by when a thread asks for it.
    "%clock": "px::clock()",
    "%clock_hi": "(px::clock() >> 32)",
    "%clock64": "px::clock()",
    "%globaltimer": "px::clock()",
    "%globaltimer_lo": "px::clock()",
    "%globaltimer_hi": "(px::clock() >> 32)",
    "%gridid": "0",
    "%is_explicit_cluster": "(px::cluster_nctarank() > 1)",
    "%total_smem_size": "(px::dynamic_smem_size(kStaticShared) + kStaticShared)",
    "%aggr_smem_size": "(px::dynamic_smem_size(kStaticShared) + kStaticShared)",
    "WARP_SZ": "32",
}

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
