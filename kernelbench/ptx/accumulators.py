"""Accumulators of wgmma that are read before the wait for them.

Accessing them before wgmma.wait_group is undefined (PTX ISA 9.1, 9.7.15). The emulator fills them
with NaN until then; which statement reads a register, only the text tells.
"""

from __future__ import annotations

from typing import Any

from kernelbench.ptx.lowering.names import operand_names
from kernelbench.ptx.lowering.unused_loads import sources
from kernelbench.ptx.parser.model import Number, PtxFunction, Statement


def reads_before_wait(function: PtxFunction) -> list[dict[str, Any]]:
    """The first read of each product's accumulators between it and its wait, as the lines stand.

    Branches may lead around it: only of a kernel that fails it is a cause. As the runtime reports.
    """
    found: dict[int, dict[str, Any]] = {}
    groups: list[list[Statement]] = [[]]  # the last is not committed
    for each in function.statements:
        _, _, operation = each.opcode.partition("wgmma.")
        if operation.startswith("mma_async"):
            groups[-1].append(each)
        elif operation.startswith("commit_group"):
            groups.append([])
        elif operation.startswith("wait_group") and isinstance(each.operands[0], Number):
            groups = groups[max(len(groups) - 1 - each.operands[0].value, 0) :]
        elif each.opcode and not operation and any(groups):
            read = set(sources(each))
            for product in (product for group in groups for product in group):
                if read & operand_names(product.operands[0]):
                    found.setdefault(product.line, _early_read(each.line, product.line))
    return [*found.values()]


def _early_read(line: int, product: int) -> dict[str, Any]:
    text = "an accumulator is read before a wgmma.wait_group covers the wgmma.mma_async"
    places = {"pc": {"line": line}, "other_pc": {"line": product}}
    return {"class": "early-read", "text": text, **places}
