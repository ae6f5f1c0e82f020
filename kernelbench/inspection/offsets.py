"""``kernelbench lint``: offsets that are computed in 32 bits and widened too late.

A product of three sizes (``expert * rows * k``) passes 2^32 on shapes that no emulated check is
large enough for; widened to a pointer's offset only afterwards, it addresses other memory. Found is
each place where a 32-bit expression of degree 3 or more (:mod:`offset_degrees`) becomes 64-bit, is
added to a pointer or is a pointer's subscript.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.inspection.chosen_steps import choose_steps
from kernelbench.inspection.clang_ast import StepTree, cindex, operator_of, parse_unit, walk
from kernelbench.inspection.offset_degrees import Degrees
from kernelbench.project.model import Step

#: Factors from which a product is reported: two sizes are a matrix, three are many of them.
LEAST_FACTORS = 3


@dataclass(frozen=True, order=True)
class OffsetFinding:
    """A product that is widened too late.

    Attributes:
        file: Where the product stands; line: likewise, from 1.
        product: Its source text.
        bits: Of the type in which it is computed.
        factors: How many of its factors are no constants.
        use: What makes it 64-bit.
        used_line: The line where that happens, if it is another one of the same or another file.
        remedy: What to write instead.
    """

    file: Path
    line: int
    product: str
    bits: int
    factors: int
    use: str
    used_line: int | None
    remedy: str


def select_compiled(steps: Sequence[Step]) -> tuple[list[Step], list[str]]:
    """The steps of C++ that is compiled here, and for each of the others a line.

    Raises:
        PlannedStepError: If none has, because they are planned.
        UsageError: If none has.
    """
    return choose_steps(
        steps,
        lambda step: step.compiled,
        lambda step: f"{step.in_words}; lint reads compiled steps",
    )


def find_offsets(step: Step) -> list[OffsetFinding]:
    """What a compiled step widens too late, in order of files and lines; one for each product.

    Raises:
        UsageError: If the step's entry is missing.
        EnvironmentProblem: If libclang or a C++ compiler is missing, or clang cannot read the step.
    """
    tree = parse_unit(step)
    degrees = Degrees(tree)
    found: dict[tuple[str, int], OffsetFinding] = {}
    for cursor in walk(tree):
        for offset, use in _widened(cursor, degrees):
            degree = degrees.of(offset)
            if degree.value < LEAST_FACTORS or degree.product is None:
                continue
            at = degree.product.location
            key = (at.file.name, degree.product.extent.start.offset)
            if key in found or at.file.name not in tree.files:
                continue
            found[key] = _finding(tree, cursor, degree.product, degree.value, use, degrees)
    return sorted(found.values())


def _widened(cursor: Any, degrees: Degrees) -> list[tuple[Any, str]]:
    """The 32-bit integers that ``cursor`` makes 64-bit, each with how."""
    kinds = cindex().CursorKind
    children = [*cursor.get_children()]
    if cursor.kind == kinds.ARRAY_SUBSCRIPT_EXPR and len(children) == 2:
        base, index = children
        if _is_array(base) or degrees.width(index) != 4:
            return []
        return [(index, "a pointer's subscript")]
    if cursor.kind in (kinds.BINARY_OPERATOR, kinds.COMPOUND_ASSIGNMENT_OPERATOR):
        if operator_of(cursor) not in ("+", "-", "+=", "-=") or len(children) != 2:
            return []
        if degrees.width(children[1]) and _points(children[0]):
            base, index = children
        else:
            index, base = children
        if not _points(base) or _is_array(base) or degrees.width(index) != 4:
            return []
        return [(index, "added to a pointer")]
    if cursor.kind in (
        kinds.UNEXPOSED_EXPR, kinds.CSTYLE_CAST_EXPR, kinds.CXX_FUNCTIONAL_CAST_EXPR,
        kinds.CXX_STATIC_CAST_EXPR,
    ):  # fmt: skip
        inner = [each for each in children if each.kind.is_expression()]
        if degrees.width(cursor) == 8 and len(inner) == 1 and degrees.width(inner[0]) == 4:
            return [(inner[0], f"converted to {cursor.type.spelling}")]
    return []


def _points(cursor: Any) -> bool:
    return bool(cursor.type.get_canonical().kind == cindex().TypeKind.POINTER)


def _is_array(cursor: Any) -> bool:
    """Whether it is an array of a known size, which a subscript cannot make larger."""
    if cursor.kind == cindex().CursorKind.UNEXPOSED_EXPR:
        children = [*cursor.get_children()]
        cursor = children[0] if len(children) == 1 else cursor
    return bool(cursor.type.get_canonical().kind == cindex().TypeKind.CONSTANTARRAY)


def _finding(
    tree: StepTree, cursor: Any, product: Any, factors: int, use: str, degrees: Degrees
) -> OffsetFinding:
    at, used = product.location, cursor.location
    first = _first_factor(product)
    unsigned = "U" in first.type.get_canonical().kind.name
    wide = "uint64_t" if unsigned else "int64_t"
    return OffsetFinding(
        file=tree.files[at.file.name],
        line=product.extent.start.line,
        product=tree.text(product),
        bits=8 * degrees.width(product),
        factors=factors,
        use=use,
        used_line=None if used.line == product.extent.start.line else used.line,
        remedy=f"write {wide}{{{tree.text(first)}}}",
    )


def _first_factor(product: Any) -> Any:
    """The value whose widening makes the whole product 64-bit: the leftmost factor of all."""
    kinds = cindex().CursorKind
    while True:
        children = [each for each in product.get_children() if each.kind.is_expression()]
        inner = (kinds.BINARY_OPERATOR, kinds.PAREN_EXPR, kinds.UNEXPOSED_EXPR)
        if product.kind not in inner or not children:
            return product
        product = children[0]
