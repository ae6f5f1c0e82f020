"""Operands reach the instruction in the places where the declaration's comment puts them.

The assembler takes swapped registers without a word, so this compares names: what a comment calls
``[bar], count`` has to be fed from expressions that mention ``bar`` and ``count``, in that order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from declarations import COMMON, declarations, declarations_beside, expand

DECLARED = [*declarations(), *declarations_beside()]
FILES = sorted(COMMON.glob("backend/sm*/*.inl"))
_FUNCTION = re.compile(r"^KB_DEVICE [\w:<>]+\s+(\w+)\([^;{]*\)\s*\{\n(.*?)^\}", re.M | re.S)
_ASM = re.compile(r"\basm(?: volatile)?\((.*?)\);", re.S)
_LITERAL = re.compile(r'"([^"]*)"\s*')
_CONSTRAINT = re.compile(r'"[=+]?([a-zA-Z])"\(')


@dataclass(frozen=True)
class Statement:
    """One instruction of a function's asm; ``operands[k]`` is the expression behind ``%k``."""

    function: str
    text: str
    operands: tuple[str, ...]


def statements_in(path: Path) -> list[Statement]:
    found = []
    for function in _FUNCTION.finditer(path.read_text()):
        for asm in _ASM.finditer(function[2]):
            text, end = "", 0
            while literal := _LITERAL.match(asm[1], end):
                text, end = text + literal[1], literal.end()
            operands = tuple(expressions(asm[1][end:]))
            parts = [part.strip().removeprefix("{.reg") for part in text.split(";")]
            found += [Statement(function[1], part, operands) for part in parts if operand(part)]
    return found


def operand(part: str) -> bool:
    """Whether a statement is an instruction with operands, and none that only moves a predicate."""
    opcode, _, operands = part.partition(" ")
    return bool(operands) and "." in opcode and not opcode.startswith((".reg", "setp.", "selp."))


def expressions(text: str) -> list[str]:
    found = []
    for start in _CONSTRAINT.finditer(text):
        depth, end = 1, start.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        found.append(text[start.end() : end - 1])
    return found


def misplaced(statement: Statement, form: str) -> list[str]:
    """Operands that the form calls by a name which their expression does not mention."""
    wanted = re.findall(r"[%\w.]+", form.partition(" ")[2])
    given = re.findall(r"[%\w.]+", statement.text.partition(" ")[2])
    if len(wanted) != len(given):
        return [f"{statement.function}: {statement.text} is not of the form {form}"]
    return [
        f"{statement.function}: {name} is fed from {statement.operands[int(place[1:])]}"
        for name, place in zip(wanted, given, strict=True)
        if re.fullmatch(r"%\d+", place)
        and name not in re.findall(r"\w+", statement.operands[int(place[1:])])
    ]


def forms_of(statement: Statement) -> list[str]:
    """The forms with the statement's opcode; a modifier taken from a tag may be any.

    Several where one function has the opcode twice.
    """
    found = []
    opcode = statement.text.partition(" ")[0]
    known = re.compile(re.sub(r"%\d+", r"[\\w:]+", opcode.replace(".", r"\.")))
    for declared in DECLARED:
        if declared.name == statement.function:
            for form in (expanded for written in declared.forms for expanded in expand(written)):
                if known.fullmatch(form.partition(" ")[0]) and form.count(",") == (
                    statement.text.count(",")
                ):
                    found.append(form)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_operands_are_in_the_comments_order(path):
    wrong = []
    for statement in statements_in(path):
        found = [misplaced(statement, form) for form in forms_of(statement)]
        wrong += min(found, key=len) if found else [f"no form for {statement}"]
    assert not wrong, "\n".join(wrong)


def test_most_of_the_layer_is_looked_at():
    looked_at = {found.function for path in FILES for found in statements_in(path)}
    # Statements that a macro builds, and compiler intrinsics, are not.
    assert len(looked_at) > 60
    assert {"mbarrier_init", "tcgen05_mma_mxf4nvf4_block_scale_4x"} <= looked_at


def test_a_swapped_pair_is_found():
    text = "mbarrier.init.shared::cta.b64 [%0], %1"
    right = Statement("mbarrier_init", text, ("smem_address(bar)", "count"))
    swapped = Statement("mbarrier_init", text, ("count", "smem_address(bar)"))
    (form,) = forms_of(right)
    assert misplaced(right, form) == []
    assert len(misplaced(swapped, form)) == 2
