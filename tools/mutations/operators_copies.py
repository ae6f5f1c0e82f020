"""Operators on bulk copies, their groups and the fence of their proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, SourceError, Span
from mutant import WRONG, Expectation, Site, drop, expect, operator
from objects import ANSWER, GLOBAL, MAP_ROLES, MAPS, MISPLACED, OTHER, STAGES, UNORDERED

BOX_LOAD = "cp_async_bulk_tensor_2d_shared_global"
BULK_LOAD = "cp_async_bulk_shared_global"
BOX_STORE = "cp_async_bulk_tensor_2d_global_shared"


def _loads(source: Source) -> Iterator[Call]:
    return source.calls(f"{BOX_LOAD}|{BULK_LOAD}")


def _swapped(source: Source, span: Span, names: str) -> Edit:
    """The first of ``names`` in a span, replaced by the other operand's."""
    match = re.search(rf"\b({names})\b", source.code[span.start : span.end])
    if match is None:
        place = f"{source.name}:{source.line(span.start)}"
        raise SourceError(f"{place}: which map is {source[span]!r}?")
    at = Span(span.start + match.start(1), span.start + match.end(1))
    return Edit(at, OTHER[match[1]])


# ---- loads -------------------------------------------------------------------------------------


@operator("copy-dropped", "a load is missing")
def copy_dropped(source: Source) -> Iterator[Site]:
    for call in _loads(source):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect("hang", "full"))


@operator("copy-bytes", "a load copies 16 bytes more or fewer")
def copy_bytes(source: Source) -> Iterator[Site]:
    for call in source.calls(BULK_LOAD):
        at = call.arguments[2]
        # More: into the next buffer, which another copy writes, or beyond the scales' end.
        more = expect(
            f"hang transaction-count out-of-bounds {UNORDERED}", "full", "SFA", "SFB", STAGES
        )
        for sign, expected in (("+", more), ("-", expect("hang", "full"))):
            edit = Edit(at, f"{source[at]} {sign} 16")
            yield Site(call.span.start, (edit,), expected, note=f"{sign} 16")


@operator("destination-swapped", "a load goes to the other operand's buffer")
def destination_swapped(source: Source) -> Iterator[Site]:
    for call in _loads(source):
        edit = _swapped(source, call.arguments[0], "a|b|sfa|sfb")
        yield Site(call.span.start, (edit,), expect(UNORDERED, STAGES))


@operator("map-swapped", "a load uses the other operand's tensor map")
def map_swapped(source: Source) -> Iterator[Site]:
    for call in source.calls(BOX_LOAD):
        edit = _swapped(source, call.arguments[1], "map_a|map_b")
        # Boxes of other sizes: the bytes do not add up. Else only the values are wrong.
        kinds = f"hang transaction-count {UNORDERED} {WRONG}"
        yield Site(call.span.start, (edit,), expect(kinds, "full", STAGES))


@operator("coordinates-swapped", "a box starts at (y, x)")
def coordinates_swapped(source: Source) -> Iterator[Site]:
    for call in source.calls(f"{BOX_LOAD}|{BOX_STORE}"):
        x, y = call.arguments[2:4] if call.name == BOX_LOAD else call.arguments[1:3]
        edits = (Edit(x, source[y]), Edit(y, source[x]))
        yield Site(call.span.start, edits, expect(MISPLACED, GLOBAL))


@operator("row-of-other-operand", "a load or store takes its row or column from the other operand")
def row_of_other(source: Source) -> Iterator[Site]:
    for call in source.calls(f"{BOX_LOAD}|{BULK_LOAD}|{BOX_STORE}"):
        for argument in call.arguments:
            if not re.search(r"\b[mn]_offset\b", source[argument]):
                continue
            edit = _swapped(source, argument, "m_offset|n_offset")
            yield Site(argument.start, (edit,), expect(MISPLACED, GLOBAL))
    # Offsets that are added when the tile is found, and coordinates with a name.
    for match in source.find(r"\b(?:tile\.sf[ab]|column|row) = [^;]*\btile\.([mn]_offset)\b"):
        edit = Edit(Span(match.start(1), match.end(1)), OTHER[match[1]])
        expected = expect(MISPLACED, GLOBAL, roles="load_warp epilogue_warps")
        yield Site(match.start(1), (edit,), expected)


@operator("k-not-advanced", "a load reads the first tile along K every time")
def k_not_advanced(source: Source) -> Iterator[Site]:
    for call in _loads(source):
        for argument in call.arguments:
            for match in re.finditer(r"(?<=[(\s])k(?=[,)])", source[argument]):
                at = Span(argument.start + match.start(), argument.start + match.end())
                yield Site(at.start, (Edit(at, "0"),), expect(WRONG))


@operator("k-in-elements", "a coordinate in elements, of a map in bytes")
def k_in_elements(source: Source) -> Iterator[Site]:
    for call in source.calls(BOX_LOAD):
        at = call.arguments[2]
        if source[at] != "e2m1_bytes(k)":
            raise SourceError(f"{source.name}:{source.line(at.start)}: K is not 'e2m1_bytes(k)'")
        yield Site(call.span.start, (Edit(at, "k"),), expect(WRONG))


@operator("scales-of-other-operand", "scales come from the other operand's")
def scales_of_other(source: Source) -> Iterator[Site]:
    expected = expect(f"{WRONG} out-of-bounds", "SFA", "SFB")
    for call in source.calls(BULK_LOAD):
        yield Site(call.span.start, (_swapped(source, call.arguments[1], "sfa|sfb"),), expected)
    for match in source.find(r"\bsf[ab] = [^;]*\b(?:groups|group|table\[[^;]*\])\.(sf[ab])\b"):
        edit = Edit(Span(match.start(1), match.end(1)), OTHER[match[1]])
        yield Site(match.start(1), (edit,), expected)


# ---- stores ------------------------------------------------------------------------------------


# A fence behind generic reads, in front of an asynchronous write to the same bytes.
_READ_FIRST = "the checker asks for a proxy fence between a write and a use, not after a read"


@operator("proxy-fence-dropped", "fence.proxy.async is missing")
def proxy_fence_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_async"):
        assert call.statement
        yield _without_fence(source, call, (drop(call.statement),))


@operator("proxy-fence-early", "fence.proxy.async comes before what it is to publish")
def proxy_fence_early(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_async"):
        assert call.statement
        edits = (_at_start(source, call.statement), drop(call.statement))
        yield _without_fence(source, call, edits)


def _without_fence(source: Source, call: Call, edits: tuple[Edit, ...]) -> Site:
    reads = source.function_at(call.span.start) == "take_cta"
    expected = expect("proxy-fence", ANSWER if reads else "c")
    return Site(call.span.start, edits, expected, gap=_READ_FIRST if reads else "")


def _at_start(source: Source, statement: Span) -> Edit:
    """The statement, as the first of its function."""
    where = source.function_span(statement.start)
    start = source.code.index("{", source.code.index(")", where.start)) + 1
    return Edit(Span(start, start), "\n  " + source[statement])


@operator("store-dropped", "a store is missing")
def store_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(BOX_STORE):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(WRONG))


def _read_later(source: Source, call: Call) -> Expectation:
    """What changes while a bulk copy still reads it: a staging buffer, or a tensor map."""
    if source.function_at(call.span.start).startswith("patch_map"):
        return expect(f"tensor-map-proxy {UNORDERED}", MAPS, roles=MAP_ROLES)
    # At the end of the kernel, the place of the store is named.
    return expect(f"exit tensor-map-proxy {UNORDERED}", "c", MAPS, roles=MAP_ROLES)


@operator("commit-group-dropped", "a copy is in no group")
def commit_group_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_commit_group"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), _read_later(source, call))


WAIT_GROUP = "cp_async_bulk_wait_group(?:_read)?"


@operator("wait-group-dropped", "nobody waits for a group of copies")
def wait_group_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(WAIT_GROUP):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), _read_later(source, call))


@operator("wait-group-pending", "a wait leaves one more group pending")
def wait_group_pending(source: Source) -> Iterator[Site]:
    for call in source.calls(WAIT_GROUP):
        start = source.code.index("<", call.span.start)
        pending = int(call.template.strip("<>"))
        edit = Edit(Span(start, start + len(call.template)), f"<{pending + 1}>")
        yield Site(call.span.start, (edit,), _read_later(source, call))


@operator("wait-group-read", "a wait for a store is one for its reads")
def wait_group_read(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_wait_group"):
        end = source.code.index("wait_group", call.span.start) + len("wait_group")
        yield Site(
            call.span.start,
            (Edit(Span(end, end), "_read"),),
            expect(f"exit {UNORDERED}", "c"),
            proof="The wait is there so that the buffer and the map may change again, and .read "
            "waits for the reads of both (PTX ISA, cp.async.bulk.wait_group). No thread of the "
            "kernel reads what the store wrote, and a kernel's end waits for its writes.",
        )


@operator("wait-group-early", "a wait for copies comes before the newest is committed")
def wait_group_early(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_wait_group_read"):
        assert call.statement
        before = source.statement_before(call.statement.start)
        if "cp_async_bulk_commit_group" not in source[before]:
            continue
        early = Edit(Span(before.start, before.start), source[call.statement] + " ")
        edits = (early, drop(call.statement))
        yield Site(call.span.start, edits, _read_later(source, call))


@operator("staging-shared", "every chunk is staged in the first buffer")
def staging_shared(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bstaging = shared\.c\[([^\]]+)\]"):
        edit = Edit(Span(match.start(1), match.end(1)), "0")
        yield Site(match.start(), (edit,), expect(UNORDERED, "c"))


@operator("staging-row", "a thread stages its row or column in place of another's")
def staging_row(source: Source) -> Iterator[Site]:
    for match in source.find(r"(?<=[=(] )?\bstaging \+ ptx::(thread_index)\(\)"):
        edit = Edit(Span(match.start(1), match.end(1)), "lane_index")
        yield Site(match.start(), (edit,), expect(UNORDERED, "c"))


@operator("staging-pitch", "rows of a staging buffer are half as long")
def staging_pitch(source: Source) -> Iterator[Site]:
    for call in source.calls("store_f16_column"):
        at = call.arguments[1]
        edit = Edit(at, f"{source[at]} / 2")
        yield Site(call.span.start, (edit,), expect(f"{WRONG} {UNORDERED}", "c"))


@operator("store-place", "every chunk is stored where the first belongs")
def store_place(source: Source) -> Iterator[Site]:
    for call in source.calls(BOX_STORE):
        for argument in call.arguments[1:3]:
            match = re.search(r" \+ (column|at)$", source[argument])
            if match:
                start = argument.start + match.start()
                edit = Edit(Span(start, argument.end), "")
                yield Site(argument.start, (edit,), expect(WRONG))


@operator("store-warp", "a warp stores that nobody makes wait at the end")
def store_warp(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bptx::warp_index\(\) == (0) && ptx::elect_sync\(\)\) \{"):
        if "wait_group<0>" in source[source.body(match.end() - 1)]:
            continue  # whoever stores waits at once
        edit = Edit(Span(match.start(1), match.end(1)), "1")
        expected = expect(f"exit tensor-map-proxy {UNORDERED}", "c", MAPS, roles=MAP_ROLES)
        yield Site(match.start(), (edit,), expected)
