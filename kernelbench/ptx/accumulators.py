"""Accumulators that are read before the wait for them, and sums that begin with nothing.

Accessing those of wgmma before wgmma.wait_group is undefined (PTX ISA 9.1, 9.7.15), and so is the
value of a register that nothing has written. The emulator fills both with NaN; which statement
reads a register, only the text tells.
"""

from __future__ import annotations

import re
from typing import Any

from kernelbench.ptx.lowering.names import operand_names
from kernelbench.ptx.lowering.unused_loads import sources
from kernelbench.ptx.parser.model import Address, Number, PtxFunction, Statement

_SUM = re.compile(r"(add|sub|mul|fma)\..*f\d+(x2)?|w?g?mma\..*")


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


def reads_of_nothing(function: PtxFunction) -> list[dict[str, Any]]:
    """The first sum that depends, whichever way the kernel takes, on registers that nothing has
    written; as the runtime reports."""
    registers = function.registers.keys()
    made = (each for each in function.statements if each.operands and _gives(each))
    reads = [(each, _gives(each), _takes(each) & registers) for each in made]
    begun: set[str] = set()
    before = -1
    while len(begun) > before:
        before = len(begun)
        for _, given, taken in reads:
            begun |= given if taken <= begun else set()
    found = [each.line for each, given, _ in reads if given - begun and _SUM.match(each.opcode)]
    text = "a sum begins with a register that nothing has written"
    return [{"class": "unwritten", "text": text, "pc": {"line": line}} for line in found[:1]]


def _gives(statement: Statement) -> set[str]:
    first = statement.operands[0]
    return set() if isinstance(first, Address) else operand_names(first)


def _takes(statement: Statement) -> set[str]:
    """Its sources; of a product whether it reads its accumulators is an operand's to say."""
    operands = statement.operands[1:]
    adds = statement.opcode.startswith("wgmma.mma_async") and operands[2] == Number(1)
    return set().union(*map(operand_names, statement.operands if adds else operands))


def _early_read(line: int, product: int) -> dict[str, Any]:
    text = "an accumulator is read before a wgmma.wait_group covers the wgmma.mma_async"
    places = {"pc": {"line": line}, "other_pc": {"line": product}}
    return {"class": "early-read", "text": text, **places}
