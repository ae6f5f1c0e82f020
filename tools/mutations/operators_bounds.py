"""Operators on bounds of loops and predicates, and on the search for work."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Comparison, Edit, Loop, Source, Span
from equivalents import SAME_AT_EQUALITY
from mutant import WRONG, Expectation, Site, expect, operator
from objects import BARRIERS, GLOBAL, MAP_ROLES, MISPLACED, SCALES, STAGES, TMEM, UNORDERED


def _step_of(source: Source, comparison: Comparison) -> str:
    """By how much the compared variable grows from one test to the next."""
    if comparison.loop is not None:
        return _growth(source, comparison.loop)
    # A predicate: as far as one step of the innermost loop that its variable depends on.
    name = source[comparison.left]
    inside = source.function_span(comparison.left.start)
    body = source.code[inside.start : comparison.left.start]
    definition = re.search(rf"\b{re.escape(name)} = ([^;]+);", body)
    if definition is None:
        return "1"
    factor = re.search(r" \* (k\w+)$", definition[1])
    for loop in reversed(source.loops_around(comparison.left.start)):
        variable = re.search(r"\w+$", source[loop.step].split("+=")[0].strip())
        if variable and re.search(rf"\b{variable[0]}\b", definition[1]):
            return _growth(source, loop)
    return factor[1] if factor else "1"


def _growth(source: Source, loop: Loop) -> str:
    step = source[loop.step]
    return step.split("+=")[1].strip() if "+=" in step else "1"


_RINGS = ("kStages", "kAccumulators", "kSlots")


def _over(source: Source, comparison: Comparison) -> Expectation:
    """One round too many."""
    where = source.function_at(comparison.left.start)
    left, right = source[comparison.left], source[comparison.right]
    if right in _RINGS and where.startswith(("init_", "invalidate_")):
        return expect("barrier-state", BARRIERS)
    if right == "kStages":
        return expect("hang phase", "empty")
    if right == "kScaleRowsB":
        if where == "load_warp":
            # Into the buffer behind, and more bytes than are announced.
            kinds = f"hang transaction-count out-of-bounds {UNORDERED}"
            return expect(kinds, "full", STAGES, "SFB")
        return expect(f"{WRONG} tmem-bounds {UNORDERED}", SCALES, STAGES)
    if right == "tile.n" and comparison.loop is None and left != "n":
        return expect("out-of-bounds", "SFB", roles="load_warp")
    if left == "k":
        if where == "load_warp":
            # The stage is loaded, and nobody empties it; or the scales end before.
            return expect("hang out-of-bounds", "empty", "SFA", "SFB")
        return expect("hang", "full")
    if "kMmaK" in right:
        return expect(f"{WRONG} descriptor tmem-bounds {UNORDERED}", TMEM, STAGES)
    if left in ("column", "at"):
        objects = (*TMEM, "C", "c", "full")
        return expect(f"{WRONG} tmem-bounds out-of-bounds {UNORDERED}", objects)
    if right == "kChunkN":
        return expect(f"{WRONG} out-of-bounds crash {UNORDERED}", "C", "c")
    if left == "index":
        # Behind the last group's entry there is no group, or one of an earlier call.
        roles = f"find_work group_gemm {MAP_ROLES}"
        return expect("out-of-bounds crash descriptor", GLOBAL, roles=roles)
    return expect(f"{WRONG} out-of-bounds {UNORDERED}", "C")


def _under(source: Source, comparison: Comparison) -> Expectation:
    """One round too few."""
    where = source.function_at(comparison.left.start)
    left, right = source[comparison.left], source[comparison.right]
    if right in _RINGS and where.startswith(("init_", "invalidate_")):
        return expect("barrier-state", BARRIERS)
    if right == "kStages":
        return expect("exit barrier-state race", "empty")
    if right == "kScaleRowsB":
        if where == "load_warp":
            return expect("hang", "full")
        return expect(f"{WRONG} {UNORDERED}", SCALES)
    if left == "k":
        return expect("hang", "full" if where == "load_warp" else "empty")
    if left in ("column", "at"):
        # Chunks of an odd number end in the buffer that the next tile begins with.
        return expect(f"{WRONG} {UNORDERED}", "c")
    return expect(WRONG)


@operator("bound-over", "one round or element too many (< becomes <=)")
def bound_over(source: Source) -> Iterator[Site]:
    for each in source.comparisons():
        edit = Edit(each.operator, "<=")
        proof = SAME_AT_EQUALITY if _chooses_a_bound(source, each) else ""
        yield Site(each.operator.start, (edit,), _over(source, each), proof=proof)


def _chooses_a_bound(source: Source, comparison: Comparison) -> bool:
    """Whether the line ends in ``a < b ? a : b;`` or ``a < b ? b : a;``."""
    line = source.line_text(comparison.operator.start)
    found = re.search(r"(?:=|return) (.+?) < (.+?) \? (.+?) : (.+?);$", line)
    return found is not None and {found[1], found[2]} == {found[3], found[4]}


@operator("bound-under", "one round or element too few")
def bound_under(source: Source) -> Iterator[Site]:
    for each in source.comparisons():
        step = _step_of(source, each)
        edit = Edit(each.left, f"{source[each.left]} + {step}")
        yield Site(each.operator.start, (edit,), _under(source, each))


# Where a wrong place shows: at the operands' loads or the result's stores.
_WRONG_PLACE = expect(MISPLACED, GLOBAL, roles="load_warp epilogue_warps")


@operator("tiles-rounded-down", "a last, partial column of tiles is not counted")
def tiles_rounded_down(source: Source) -> Iterator[Site]:
    for call in source.calls("ceil_div"):
        value, divisor = (source[argument] for argument in call.arguments)
        divisor = divisor if divisor.isidentifier() else f"({divisor})"
        yield Site(call.span.start, (Edit(call.span, f"({value} / {divisor})"),), _WRONG_PLACE)


@operator("tile-order", "rows and columns of tiles are exchanged")
def tile_order(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bfound\.index ([/%]) row_tiles"):
        edit = Edit(Span(match.start(1), match.end(1)), "%" if match[1] == "/" else "/")
        yield Site(match.start(1), (edit,), _WRONG_PLACE)
