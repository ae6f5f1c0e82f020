"""Kernels that do the same in all schedules unless they have a race, so that few schedules show it.

Where threads wait for each other at barriers of their CTA alone, two accesses are in order in every
schedule or in none (PTX ISA 9.1, 8.9: causality order by synchronization). A schedule without a
race is then like every other. A copy of cp.async is in order with what follows its thread's wait
(9.7.9), and until then with nothing.
"""

from __future__ import annotations

import re

from kernelbench.ptx.parser.model import Module, Statement

# Arithmetic, weak accesses, what lanes of a warp exchange, barriers of the CTA. Without what is
# otherwise asynchronous, atomic or of a cluster, and without the modifiers of strong accesses.
_SAME = re.compile(
    r"(abs|addc?|and|bar|barrier|bf[ei]|bfind|bmsk|bra|brev|brx|call|clz|cnot|copysign|cos"
    r"|cp(?=\.async\.(c[ag]|commit_group|wait_group|wait_all)\b)|cvta?|div"
    r"|dp[24]a|ex2|exit|fma|fns|isspacep|ld|ldmatrix|lg2|lop3|mad|mad24|madc|match|max|min|mma|mov|mul"
    r"|mul24|neg|not|or|popc|prefetch|prmt|rcp|rem|ret|rsqrt|sad|selp|setp?|shfl?|sh[lr]|sin|slct|sqrt"
    r"|st|stmatrix|subc?|tanh|testp|tex|tld4|trap|vote|wmma|xor)"
    r"(\.(?!volatile|relaxed|acquire|release|mmio|arrive|cluster\b)[^.]+)*"
)
_TIMES_AND_PLACES = re.compile(r"%(clock|globaltimer|smid|nsmid|warpid|gridid)")
_DECLARED = ("vprintf", "__assertfail")


def order_matters(module: Module, kernel: str) -> bool:
    """Whether what a kernel without a race does may depend on its schedule.

    Args:
        module: Where it is. If it calls functions, those of the module count, too.
    """
    functions = module.functions
    called = any(each.opcode.startswith("call") for each in functions[kernel].statements)
    every = functions.values() if called else (functions[kernel],)
    declared = any(not each.defined and each.name not in _DECLARED for each in every)
    return declared or any(_depends(each) for of in every for each in of.statements)


def _depends(statement: Statement) -> bool:
    if statement.opcode and not _SAME.fullmatch(statement.opcode):
        return True
    return any(_TIMES_AND_PLACES.match(str(each)) for each in statement.operands)
