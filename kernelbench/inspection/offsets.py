"""``kernelbench lint``: offsets that are computed in 32 bits and widened too late.

A product of three sizes (``expert * rows * k``) passes 2^32 on shapes that no emulated check is
large enough for; widened to a pointer's offset only afterwards, it addresses other memory. Found is
each place where a 32-bit expression of degree 3 or more becomes 64-bit, is added to a pointer or is
a pointer's subscript.

A degree is that of a polynomial of what is not constant, how many sizes are multiplied:
``(expert * rows + row) * k`` has degree 3. A constant has degree 0, as has what a small type or a
thread's place in its CTA bounds; a sum has that of its largest term, a quotient that of its
dividend less its divisor's. Local variables stand for what they are set to, a counter of a loop for
its bound, a call of the step's own function for what that returns.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.inspection.clang_ast import StepTree, cindex, operator_of, parse_unit, walk
from kernelbench.project.model import Step

#: Calls whose value the hardware bounds: places of a thread, a warp, a CTA of a cluster.
_BOUNDED_CALLS = {
    "thread_index", "warp_index", "lane_index", "cluster_ctarank", "cluster_nctarank",
    "getctarank", "vote_sync_ballot", "elect_sync",
}  # fmt: skip
#: Names of ``clang.cindex.TypeKind``.
_INTEGERS = {
    "BOOL", "CHAR_U", "UCHAR", "USHORT", "UINT", "ULONG", "ULONGLONG", "CHAR_S", "SCHAR",
    "SHORT", "INT", "LONG", "LONGLONG",
}  # fmt: skip
#: Bytes of a type whose values count as bounded.
_SMALL_BYTES = 2
_DEEPEST = 24

#: Factors from which a product is reported: two sizes are a matrix, three are many of them.
LEAST_FACTORS = 3


@dataclass(frozen=True)
class Degree:
    """A degree, and the product that has it (``clang.cindex.Cursor``; None for a lone value)."""

    value: int
    product: Any = None


_CONSTANT = Degree(0)
_ONE = Degree(1)

Arguments = dict[int, Degree]


class Degrees:
    """The degrees of a step's expressions."""

    def __init__(self, tree: StepTree) -> None:
        self._tree = tree
        self._kinds = cindex().CursorKind
        self._set: dict[int, list[Any]] = {}
        self._bounds: dict[int, Any] = {}
        self._constexpr: dict[int, bool] = {}
        for cursor in walk(tree):
            self._note(cursor)

    def _note(self, cursor: Any) -> None:
        """Keep what variables are set to, and what bounds counters of loops."""
        kinds = self._kinds
        if cursor.kind in (kinds.BINARY_OPERATOR, kinds.COMPOUND_ASSIGNMENT_OPERATOR):
            name = operator_of(cursor)
            if name in ("=", "+=", "-=", "|=", "^=", "*=", "<<="):
                target, value = cursor.get_children()
                if declared := self._variable(target):
                    grows = name in ("*=", "<<=")
                    self._set.setdefault(declared, []).append(cursor if grows else value)
        elif cursor.kind == kinds.FOR_STMT:
            for each in cursor.get_children():
                if each.kind == kinds.BINARY_OPERATOR and operator_of(each) in ("<", "<=", "!="):
                    counter, bound = each.get_children()
                    if declared := self._variable(self._bare(counter)):
                        self._bounds[declared] = bound

    def _variable(self, cursor: Any) -> int | None:
        """The hash of what a name stands for; None for another expression."""
        named = cursor.kind == self._kinds.DECL_REF_EXPR and cursor.referenced is not None
        return cursor.referenced.hash if named else None

    def _bare(self, cursor: Any) -> Any:
        """What stands in implicit casts and parentheses."""
        while cursor.kind in (self._kinds.UNEXPOSED_EXPR, self._kinds.PAREN_EXPR):
            children = [*cursor.get_children()]
            if len(children) != 1:
                break
            cursor = children[0]
        return cursor

    def width(self, cursor: Any) -> int:
        """Bytes of an integer expression; 0 for what is none.

        What a template's arguments decide has the width of its widest part; a lone value of such a
        type is taken for 32 bits.
        """
        type_ = cursor.type.get_canonical()
        if type_.kind.name in _INTEGERS:
            return max(int(type_.get_size()), 0)
        if type_.kind.name != "DEPENDENT":
            return 0
        kinds = self._kinds
        if cursor.kind not in (kinds.BINARY_OPERATOR, kinds.PAREN_EXPR):
            return 4
        widths = [self.width(each) for each in cursor.get_children()]
        return max(widths) if all(widths) else 0

    def of(self, cursor: Any, arguments: Arguments | None = None, depth: int = 0) -> Degree:
        """The degree of an integer expression.

        Args:
            arguments: Degrees of a function's parameters, by the hash of their declarations.
            depth: How many expressions it stands in; beyond a limit it counts as one value.
        """
        if depth > _DEEPEST:
            return _ONE
        kinds = self._kinds
        arguments = arguments or {}
        if 0 < self.width(cursor) <= _SMALL_BYTES or cursor.type.kind.name == "ENUM":
            return _CONSTANT
        if cursor.kind in (
            kinds.INTEGER_LITERAL, kinds.CXX_UNARY_EXPR, kinds.CHARACTER_LITERAL,
            kinds.CXX_BOOL_LITERAL_EXPR, kinds.FLOATING_LITERAL, kinds.SIZE_OF_PACK_EXPR,
        ):  # fmt: skip
            return _CONSTANT
        if cursor.kind in (kinds.BINARY_OPERATOR, kinds.COMPOUND_ASSIGNMENT_OPERATOR):
            return self._of_operator(cursor, arguments, depth + 1)
        if cursor.kind == kinds.CONDITIONAL_OPERATOR:
            _, *chosen = cursor.get_children()
            return _largest(self.of(each, arguments, depth + 1) for each in chosen)
        if cursor.kind == kinds.CALL_EXPR:
            return self._of_call(cursor, arguments, depth + 1)
        if cursor.kind in (kinds.DECL_REF_EXPR, kinds.MEMBER_REF_EXPR):
            return self._of_name(cursor.referenced, arguments, depth + 1)
        if cursor.kind == kinds.UNARY_OPERATOR and self.width(next(cursor.get_children())) == 0:
            return _ONE  # what a pointer points to
        children = [each for each in cursor.get_children() if each.kind.is_expression()]
        if cursor.kind == kinds.ARRAY_SUBSCRIPT_EXPR or len(children) != 1:
            return _ONE
        return self._narrowed(cursor, children[0], self.of(children[0], arguments, depth + 1))

    def _narrowed(self, cursor: Any, inner: Any, degree: Degree) -> Degree:
        """A value cut to 32 bits is one value: what it was made of is lost in any case."""
        lost = self.width(inner) > 4 >= self.width(cursor) > 0
        return _ONE if degree.value > 1 and (lost or self.width(inner) == 0) else degree

    def _of_operator(self, cursor: Any, arguments: Arguments, depth: int) -> Degree:
        left, right = (self.of(each, arguments, depth) for each in cursor.get_children())
        name = operator_of(cursor)
        name = name.removesuffix("=") if name not in ("<=", "!=") else name
        if name in ("*", "<<"):
            both = left.value + right.value
            if left.value and right.value:
                return Degree(both, cursor)
            return left if left.value else right
        if name == "/":
            return Degree(max(min(left.value, 1), left.value - right.value), left.product)
        if name == ">>":
            return left
        if name in ("%", "&"):
            return min(left, right, key=lambda each: each.value)
        if name in ("+", "-", "|", "^"):
            return _largest((left, right))
        return right if name in ("", ",") else _CONSTANT  # an assignment; a comparison

    def _of_call(self, cursor: Any, arguments: Arguments, depth: int) -> Degree:
        name = cursor.spelling
        given = [*cursor.get_arguments()]
        if name in _BOUNDED_CALLS or name.startswith("shfl_sync"):
            return self.of(given[0], arguments, depth) if name.startswith("shfl") else _CONSTANT
        degrees = [self.of(each, arguments, depth) for each in given]
        if name == "min" and degrees:
            return min(degrees, key=lambda each: each.value)
        if name == "max":
            return _largest(degrees)
        function = cursor.referenced.get_definition() if cursor.referenced else None
        if function is None or not self._tree.is_own(function):
            return _ONE
        parameters = (each.hash for each in function.get_arguments())
        inside = dict(zip(parameters, degrees, strict=False))
        returned = [
            self.of(value, inside, depth)
            for each in function.walk_preorder()
            if each.kind == self._kinds.RETURN_STMT
            for value in each.get_children()
        ]
        return _largest(returned) if returned else _ONE

    def _of_name(self, declared: Any, arguments: Arguments, depth: int) -> Degree:
        kinds = self._kinds
        if declared is None:
            return _ONE
        if declared.kind in (kinds.ENUM_CONSTANT_DECL, kinds.TEMPLATE_NON_TYPE_PARAMETER):
            return _CONSTANT
        if declared.kind == kinds.FIELD_DECL:
            bits = declared.get_bitfield_width()
            return _CONSTANT if 0 < bits <= 8 * _SMALL_BYTES else _ONE
        if declared.kind == kinds.PARM_DECL:
            return arguments.get(declared.hash, _ONE)
        if declared.kind != kinds.VAR_DECL:
            return _ONE
        if self._is_constexpr(declared):
            return _CONSTANT
        if (bound := self._bounds.get(declared.hash)) is not None:
            return self.of(bound, arguments, depth)
        if not self._tree.is_own(declared):
            return _ONE
        first = [each for each in declared.get_children() if each.kind.is_expression()]
        values = [*first[-1:], *self._set.get(declared.hash, [])]
        if not values or (first and not self.width(declared)):
            return _ONE
        return _largest(
            self._narrowed(declared, value, self.of(value, arguments, depth)) for value in values
        )

    def _is_constexpr(self, declared: Any) -> bool:
        if declared.hash not in self._constexpr:
            words = (token.spelling for token in declared.get_tokens())
            before = itertools.takewhile(lambda word: word not in ("=", "{"), words)
            self._constexpr[declared.hash] = "constexpr" in before
        return self._constexpr[declared.hash]


def _largest(degrees: Any) -> Degree:
    return max(degrees, key=lambda each: each.value, default=_CONSTANT)


@dataclass(frozen=True, order=True)
class OffsetFinding:
    """A product that is widened too late."""

    file: Path  #: Where the product stands.
    line: int  #: Likewise, from 1.
    product: str  #: Its source text.
    bits: int  #: Of the type in which it is computed.
    factors: int  #: How many of its factors are no constants.
    use: str  #: What makes it 64-bit.
    #: The line where that happens, if it is another one of the same or another file.
    used_line: int | None
    remedy: str  #: What to write instead.


def find_offsets(step: Step) -> list[OffsetFinding]:
    """What a step widens too late, by file and line, once a product; errors as ``parse_unit``."""
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
