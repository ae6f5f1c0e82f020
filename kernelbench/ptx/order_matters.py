"""Kernels that do the same in all schedules unless they have a race, so that few schedules show it.

Where threads wait for each other at barriers of their CTA alone, two accesses are in order in every
schedule or in none (PTX ISA 9.1, 8.9: causality order by synchronization). A schedule without a
race is then like every other. A copy of cp.async is in order with what follows its thread's wait
(9.7.9), and until then with nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

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
# Beside those, what clusters do within themselves, or to global memory that no other one waits for.
_WITHIN = re.compile(
    r"(activemask|bar|barrier|cp(?=\.async\b)|createpolicy|discard|elect|fence|getctarank|mapa|mbarrier"
    r"|membar|nanosleep|nop|setmaxnreg|tcgen05|wgmma|(atom|ld|red|st)(?=\S*\.shared\b))(\..+)?"
)
_TIMES_AND_PLACES = re.compile(r"%(clock|globaltimer|smid|nsmid|warpid|gridid)")
_DECLARED = ("vprintf", "__assertfail")


def order_matters(module: Module, kernel: str) -> bool:
    """Whether what a kernel without a race does may depend on its schedule.

    Args:
        module: Where it is. If it calls functions, those of the module count, too.
    """
    return not _all_of_it(module, kernel, _does_the_same)


def alone_in_clusters(module: Module, kernel: str) -> bool:
    """Whether each cluster of a kernel without a race does what its own schedule makes it do:
    none sees what another does, nor time or place.

    Args:
        module, kernel: As of :func:`order_matters`.
    """
    return _all_of_it(module, kernel, _stays_within)


def _all_of_it(module: Module, kernel: str, holds: Callable[[Statement], bool]) -> bool:
    """Whether that holds of each statement of a kernel, and of what it calls."""
    functions = module.functions
    called = any(each.opcode.startswith("call") for each in functions[kernel].statements)
    every = functions.values() if called else (functions[kernel],)
    declared = any(not each.defined and each.name not in _DECLARED for each in every)
    return not declared and all(holds(each) for of in every for each in of.statements)


def _does_the_same(statement: Statement) -> bool:
    known = not statement.opcode or _SAME.fullmatch(statement.opcode)
    return bool(known) and _reads_no_clock(statement)


def _stays_within(statement: Statement) -> bool:
    opcode = statement.opcode
    known = not opcode or _SAME.fullmatch(opcode) or _WITHIN.fullmatch(opcode)
    return bool(known) and _reads_no_clock(statement)


def _reads_no_clock(statement: Statement) -> bool:
    return not any(_TIMES_AND_PLACES.match(str(each)) for each in statement.operands)
