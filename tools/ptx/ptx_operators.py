"""Mistakes in PTX: which statements, and what stands there instead.

Written down before any of them was run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelbench.ptx.parser.model import Module, Number, Operand, PtxFunction, Statement

#: Instructions that are left out, by what they are.
DROPPED = {
    "commit": (r"tcgen05\.commit|wgmma\.commit_group|cp\.async\.commit_group"
               r"|cp\.async\.bulk\.commit_group"),
    "fence": r"fence\.|membar\.|tcgen05\.fence|wgmma\.fence|tensormap\.cp_fenceproxy",
    "arrive": (r"mbarrier\.arrive(?!\.expect_tx)|cp\.async\.mbarrier\.arrive|bar\.arrive"
               r"|barrier\.cluster\.arrive|griddepcontrol\.launch_dependents"),
    "wait": (r"wgmma\.wait_group|tcgen05\.wait|cp\.async\.wait|cp\.async\.bulk\.wait_group"
             r"|barrier\.cluster\.wait|bar\.sync|bar\.warp\.sync|griddepcontrol\.wait"),
}  # fmt: skip
_WAIT = re.compile(r"mbarrier\.(try|test)_wait\.parity")
_EXPECT = re.compile(r"mbarrier\.arrive\.expect_tx")
_GROUPS = re.compile(r"(wgmma|cp\.async|cp\.async\.bulk)\.wait_group")
#: A register that the module does not have.
_PARITY = "%kb_other_parity"

OPERATORS = {
    **{f"{name}-dropped": f"no {name}" for name in DROPPED},
    "mbarrier-wait-dropped": "a wait for an mbarrier that is always over",
    "parity-flipped": "a wait for the other parity",
    "expect-tx-dropped": "an arrival that expects no bytes",
    "expect-tx-arrival-dropped": "no arrival, and no bytes expected",
    "bytes-plus": "16 bytes more expected than are copied",
    "bytes-minus": "16 bytes less",
    "init-plus": "a barrier that expects an arrival more",
    "init-minus": "one less",
    "wait-one-group-less": "a wait that leaves a group more pending",
}


@dataclass(frozen=True)
class PtxMutant:
    """One mistake.

    Attributes:
        at: The function, and the statement's position in it.
        instead: What stands there.
    """

    id: str
    operator: str
    line: int
    code: str
    at: tuple[str, int]
    instead: tuple[Statement, ...]


def mutants(name: str, module: Module, text: str) -> list[PtxMutant]:
    """Every mistake at every place of a module, in the order of the text.

    The module gets the registers that they need.
    """
    found, lines, counts = [], text.splitlines(), dict.fromkeys(OPERATORS, 0)
    for function in module.functions.values():
        function.registers[_PARITY] = "b32"
        for at, statement in enumerate(function.statements):
            for operator, instead in _mistakes(function, statement):
                counts[operator] += 1
                code = " ".join(lines[statement.line - 1].split())
                found.append(
                    PtxMutant(
                        f"{name}-{operator}-{counts[operator]}", operator, statement.line, code,
                        (function.name, at), tuple(instead),
                    )
                )  # fmt: skip
    return found


def _mistakes(
    function: PtxFunction, statement: Statement
) -> Iterator[tuple[str, Sequence[Statement]]]:
    opcode, operands = statement.opcode, statement.operands
    for what, pattern in DROPPED.items():
        if re.match(pattern, opcode):
            yield f"{what}-dropped", ()
    if _WAIT.match(opcode):
        done = replace(
            statement, opcode="setp.eq.u32", operands=(operands[0], Number(0), Number(0))
        )
        yield "mbarrier-wait-dropped", [done]
        other = replace(statement, opcode="xor.b32", operands=(_PARITY, operands[2], Number(1)))
        yield "parity-flipped", [
            other, replace(statement, operands=(*operands[:2], _PARITY, *operands[3:]))
        ]  # fmt: skip
    if _EXPECT.match(opcode):
        plain = replace(statement, opcode=opcode.replace(".expect_tx", ""), operands=operands[:-1])
        yield "expect-tx-dropped", [plain]
        yield "expect-tx-arrival-dropped", ()
        for operator, by in (("bytes-plus", 16), ("bytes-minus", -16)):
            yield operator, _changed(statement, len(operands) - 1, by)
    if opcode.startswith("mbarrier.init"):
        yield "init-plus", _changed(statement, 1, 1)
        yield "init-minus", _changed(statement, 1, -1)
    if _GROUPS.match(opcode) and isinstance(operands[0], Number):
        yield "wait-one-group-less", [replace(statement, operands=(Number(operands[0].value + 1),))]


def _changed(statement: Statement, position: int, by: int) -> list[Statement]:
    """A statement with a number added to an operand."""
    operand = statement.operands[position]
    if isinstance(operand, Number):
        return [_with(statement, position, Number(operand.value + by))]
    added = replace(statement, opcode="add.s32", operands=(_PARITY, operand, Number(by)))
    return [added, _with(statement, position, _PARITY)]


def _with(statement: Statement, position: int, operand: Operand) -> Statement:
    operands = list(statement.operands)
    operands[position] = operand
    return replace(statement, operands=tuple(operands))
