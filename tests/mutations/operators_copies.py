"""Operators on copies, tensor maps and the proxies' fences, on the device and on the host."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import WRONG, Site, drop, expect, operator
from objects import GLOBAL, MAPS, STAGES, UNORDERED, buffer_in

BOX_LOAD = "cp_async_bulk_tensor_2d_shared_global"
BULK_LOAD = "cp_async_bulk_shared_global"
BOX_STORE = "cp_async_bulk_tensor_2d_global_shared"
_OTHER = {"a": "b", "b": "a", "sfa": "sfb", "sfb": "sfa", "m_offset": "n_offset"}
_OTHER |= {"n_offset": "m_offset", "map_a": "map_b", "map_b": "map_a"}


def _loads(source: Source) -> Iterator[Call]:
    return source.calls(f"{BOX_LOAD}|{BULK_LOAD}")


def _swapped(source: Source, span: Span, names: str) -> Edit:
    """The first of ``names`` in a span, replaced by the other operand's."""
    match = re.search(rf"\b({names})\b", source.code[span.start : span.end])
    assert match, source[span]
    at = Span(span.start + match.start(1), span.start + match.end(1))
    return Edit(at, _OTHER[match[1]])


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
        yield Site(call.span.start, edits, expect(f"{WRONG} out-of-bounds", GLOBAL))


@operator("row-of-other-operand", "a load or store takes its row or column from the other operand")
def row_of_other(source: Source) -> Iterator[Site]:
    for call in source.calls(f"{BOX_LOAD}|{BULK_LOAD}|{BOX_STORE}"):
        for argument in call.arguments:
            if not re.search(r"\b[mn]_offset\b", source[argument]):
                continue
            edit = _swapped(source, argument, "m_offset|n_offset")
            yield Site(argument.start, (edit,), expect(f"{WRONG} out-of-bounds", GLOBAL))


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
        assert source[at] == "e2m1_bytes(k)", source[at]
        yield Site(call.span.start, (Edit(at, "k"),), expect(WRONG))


@operator("scales-of-other-operand", "scales come from the other operand's")
def scales_of_other(source: Source) -> Iterator[Site]:
    expected = expect(f"{WRONG} out-of-bounds", "SFA", "SFB")
    for call in source.calls(BULK_LOAD):
        yield Site(call.span.start, (_swapped(source, call.arguments[1], "sfa|sfb"),), expected)
    for match in source.find(r"\bsf[ab] = [^;]*\b(?:groups|group|table\[[^;]*\])\.(sf[ab])\b"):
        edit = Edit(Span(match.start(1), match.end(1)), _OTHER[match[1]])
        yield Site(match.start(1), (edit,), expected)


# ---- stores ------------------------------------------------------------------------------------


@operator("proxy-fence-dropped", "fence.proxy.async is missing")
def proxy_fence_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_async"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect("proxy-fence", "c"))


@operator("proxy-fence-early", "fence.proxy.async comes before what it is to publish")
def proxy_fence_early(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_async"):
        assert call.statement
        edits = (_at_start(source, call.statement), drop(call.statement))
        yield Site(call.span.start, edits, expect("proxy-fence", "c"))


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


@operator("commit-group-dropped", "a store is in no group")
def commit_group_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_commit_group"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(f"exit {UNORDERED}", "c"))


@operator("wait-group-dropped", "nobody waits for a store")
def wait_group_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_wait_group(?:_read)?"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(f"exit {UNORDERED}", "c"))


@operator("wait-group-pending", "a wait leaves the newest store pending")
def wait_group_pending(source: Source) -> Iterator[Site]:
    for call in source.calls("cp_async_bulk_wait_group(?:_read)?"):
        if call.template != "<0>":
            continue
        start = source.code.index("<", call.span.start)
        edit = Edit(Span(start, start + len(call.template)), "<1>")
        yield Site(call.span.start, (edit,), expect(f"exit {UNORDERED}", "c"))


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


# ---- tensor maps -------------------------------------------------------------------------------

_PUBLISHED = "tensor-map-proxy"
_MAP_ROLES = "patch_maps load_warp epilogue_warps"
# A map that covers other memory than it should, or that the hardware refuses.
_WRONG_FIELD = expect(f"{WRONG} out-of-bounds descriptor", GLOBAL, roles=_MAP_ROLES)


@operator("replace-dropped", "a field of a tensor map keeps its old value")
def replace_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(r"tensormap_replace_\w+"):
        assert call.statement
        # The templates' addresses are null; their rows are one tile.
        yield Site(call.span.start, (drop(call.statement),), _WRONG_FIELD)


@operator("replace-other-map", "a field of another tensor map is replaced")
def replace_other_map(source: Source) -> Iterator[Site]:
    for call in source.calls(r"tensormap_replace_\w+"):
        name = buffer_in(source, call.arguments[1])
        other = "map_b" if name == "map_a" else "map_a"
        start = source.code.index(name, call.arguments[1].start)
        edit = Edit(Span(start, start + len(name)), other)
        yield Site(call.span.start, (edit,), _WRONG_FIELD)


@operator("replace-rows", "a tensor map has a row too many or too few")
def replace_rows(source: Source) -> Iterator[Site]:
    for call in source.calls("tensormap_replace_global_dim"):
        at = call.arguments[-1]
        for sign in "+-":
            edit = Edit(at, f"{source[at]} {sign} 1")
            yield Site(call.span.start, (edit,), _WRONG_FIELD, note=f"{sign} 1")


@operator("cp-fenceproxy-dropped", "a changed tensor map is not published")
def cp_fenceproxy_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tensormap_cp_fenceproxy"):
        assert call.statement
        # The map in device memory was never written: no map at all.
        yield Site(
            call.span.start,
            (drop(call.statement),),
            expect(f"{_PUBLISHED} descriptor", roles=_MAP_ROLES),
        )


@operator("cp-fenceproxy-generic", "a changed tensor map is published by ordinary stores")
def cp_fenceproxy_generic(source: Source) -> Iterator[Site]:
    for call in source.calls("tensormap_cp_fenceproxy"):
        to, value = (source[argument].removeprefix("&") for argument in call.arguments)
        yield Site(
            call.span.start,
            (Edit(call.span, f"{to} = {value}"),),
            expect(f"{_PUBLISHED} {UNORDERED}", MAPS, roles=_MAP_ROLES),
        )


@operator("map-acquire-dropped", "a changed tensor map is not acquired")
def map_acquire_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("fence_proxy_tensormap_generic_acquire_gpu"):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(_PUBLISHED, roles=_MAP_ROLES))


@operator("map-acquire-early", "a tensor map is acquired before it is published")
def map_acquire_early(source: Source) -> Iterator[Site]:
    published = {
        source.function_at(call.span.start) for call in source.calls("tensormap_cp_fenceproxy")
    }
    for call in source.calls("fence_proxy_tensormap_generic_acquire_gpu"):
        assert call.statement
        if source.function_at(call.span.start) not in published:
            continue
        (first, *_) = source.calls("tensormap_cp_fenceproxy")
        at = Span(first.span.start, first.span.start)
        edits = (Edit(at, source[call.statement] + "\n  "), drop(call.statement))
        yield Site(call.span.start, edits, expect(_PUBLISHED, roles=_MAP_ROLES))


@operator("group-change-inverted", "maps are patched when the group stays")
def group_change_inverted(source: Source) -> Iterator[Site]:
    kinds = f"{_PUBLISHED} descriptor out-of-bounds {WRONG}"
    expected = expect(kinds, GLOBAL, roles=_MAP_ROLES)
    for match in source.find(r"\.new_group = [^;]* (!=) "):
        yield Site(match.start(1), (Edit(Span(match.start(1), match.end(1)), "=="),), expected)
    for match in source.find(r"\bif \((tile\.new_group)\b"):
        at = Span(match.start(1), match.end(1))
        yield Site(at.start, (Edit(at, "!tile.new_group"),), expected)


# ---- the host ----------------------------------------------------------------------------------

HOST = "launch.cu"
# The host's mistakes show where a kernel's role uses what it prepared.
_WRONG_OPERAND = expect(
    f"{WRONG} out-of-bounds", GLOBAL, roles="load_warp epilogue_warps patch_maps"
)


def _encodings(source: Source) -> Iterator[Call]:
    return source.calls("encode_operand_map|encode_output_map")


@operator("host-map-pointer", "a tensor map points to the other operand", HOST)
def host_map_pointer(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        match = re.search(r"\bcall\.([ab])\[", source[call.arguments[0]])
        if match is None:
            continue
        at = call.arguments[0].start + match.start(1)
        edit = Edit(Span(at, at + 1), _OTHER[match[1]])
        yield Site(call.span.start, (edit,), _WRONG_OPERAND)


@operator("host-map-rows", "a tensor map has a row too many", HOST)
def host_map_rows(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        rows = call.arguments[1]
        replaced = source[rows] == "kTileM"
        yield Site(
            call.span.start,
            (Edit(rows, f"{source[rows]} + 1"),),
            _WRONG_OPERAND,
            proof="The load warp replaces this field of the template before any copy uses the map."
            if replaced
            else "",
        )


@operator("host-map-pitch", "a tensor map's rows are twice as long", HOST)
def host_map_pitch(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        columns = call.arguments[2]
        yield Site(
            call.span.start,
            (Edit(columns, f"{source[columns]} * 2"),),
            _WRONG_OPERAND,
        )


@operator("host-map-box", "a tensor map's box has half the rows", HOST)
def host_map_box(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        box = call.arguments[3]
        stored = call.name == "encode_output_map"
        yield Site(
            call.span.start,
            (Edit(box, f"{source[box]} / 2"),),
            expect(WRONG) if stored else expect("hang", "full"),
        )


@operator("host-table-pointer", "a group's pointer is the other operand's", HOST)
def host_table_pointer(source: Source) -> Iterator[Site]:
    # v01 … v05 copy arrays, later steps fill a table.
    for match in source.find(r"\bcall\.(a|b|sfa|sfb)(?=[\[,])"):
        inside = any(call.span.start < match.start() < call.span.end for call in _encodings(source))
        if inside:
            continue
        edit = Edit(Span(match.start(1), match.end(1)), _OTHER[match[1]])
        yield Site(match.start(), (edit,), _WRONG_OPERAND)


@operator("host-shared-bytes", "the launch gives 1024 bytes of shared memory too few", HOST)
def host_shared_bytes(source: Source) -> Iterator[Site]:
    for match in source.find(r"\.shared_bytes = (sizeof\(SharedStorage\)),\s*\."):
        if source.function_at(match.start()) != "run":
            continue
        edit = Edit(Span(match.start(1), match.end(1)), f"{match[1]} - 1024")
        yield Site(match.start(), (edit,), expect("out-of-bounds", roles="group_gemm"))


@operator("host-threads", "the launch has a warp too few", HOST)
def host_threads(source: Source) -> Iterator[Site]:
    for match in source.find(r"\.threads = (kThreads)\b"):
        if source.function_at(match.start()) != "run":
            continue
        edit = Edit(Span(match.start(1), match.end(1)), "kThreads - 32")
        # The MMA warp is the last: nobody allocates tensor memory or commits.
        yield Site(
            match.start(), (edit,), expect("hang tmem-bounds", "tmem_full", "empty", *TMEM_ANY)
        )


TMEM_ANY = ("TMEM accumulators", "TMEM scales", "TMEM", "tmem")


@operator("host-grid", "the grid lacks a CTA", HOST)
def host_grid(source: Source) -> Iterator[Site]:
    for match in source.find(r"\.grid = \{(tiles),"):
        edit = Edit(Span(match.start(1), match.end(1)), "tiles - 1")
        yield Site(match.start(), (edit,), expect(WRONG))
