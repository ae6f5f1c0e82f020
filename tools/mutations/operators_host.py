"""Operators on the host path: maps, tables and the launch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Call, Edit, Source, Span
from mutant import FAILED, WRONG, Site, drop, expect, operator
from objects import ACCUMULATORS, GLOBAL, MAP_ROLES, OTHER, UNORDERED

HOST = "launch.cu"
# The host's mistakes show where a kernel's role uses what it prepared.
_WRONG_OPERAND = expect(f"{WRONG} out-of-bounds", GLOBAL, roles=MAP_ROLES)


def _encodings(source: Source) -> Iterator[Call]:
    return source.calls("encode_operand_map|encode_output_map")


@operator("host-map-pointer", "a tensor map points to the other operand", HOST)
def host_map_pointer(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        match = re.search(r"\bcall\.([ab])\[", source[call.arguments[0]])
        if match is None:
            continue
        at = call.arguments[0].start + match.start(1)
        edit = Edit(Span(at, at + 1), OTHER[match[1]])
        yield Site(call.span.start, (edit,), _WRONG_OPERAND)


_REPLACED = "The kernel replaces this field of the template before any copy uses the map."


@operator("host-map-rows", "a tensor map has a row too many", HOST)
def host_map_rows(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        rows = call.arguments[1]
        edit = Edit(rows, f"{source[rows]} + 1")
        yield Site(call.span.start, (edit,), _WRONG_OPERAND, _placeholder(source, rows))


@operator("host-map-pitch", "a tensor map's rows are twice as long", HOST)
def host_map_pitch(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        columns = call.arguments[2]
        edit = Edit(columns, f"{source[columns]} * 2")
        yield Site(call.span.start, (edit,), _WRONG_OPERAND, _placeholder(source, columns))


def _placeholder(source: Source, extent: Span) -> str:
    """The proof, where an extent of a template is one of the tile's: no group has to have it."""
    return _REPLACED if source[extent].startswith("kTile") else ""


@operator("host-map-box", "a tensor map's box has half the rows", HOST)
def host_map_box(source: Source) -> Iterator[Site]:
    for call in _encodings(source):
        box = call.arguments[3]
        text = source[box] if source[box].isidentifier() else f"({source[box]})"
        stored = call.name == "encode_output_map"
        yield Site(
            call.span.start,
            (Edit(box, f"{text} / 2"),),
            expect(WRONG) if stored else expect("hang", "full"),
        )


@operator("host-table-pointer", "a group's pointer is the other operand's", HOST)
def host_table_pointer(source: Source) -> Iterator[Site]:
    # v01 … v05 copy arrays, later steps fill a table.
    for match in source.find(r"\bcall\.(a|b|sfa|sfb)(?=[\[,])"):
        inside = any(call.span.start < match.start() < call.span.end for call in _encodings(source))
        if inside:
            continue
        edit = Edit(Span(match.start(1), match.end(1)), OTHER[match[1]])
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
        # The last is the MMA warp, so that nobody allocates tensor memory or commits, or the
        # scheduler.
        objects = ("tmem_full", "empty", "tiles.full", "taken", *TMEM_ANY)
        yield Site(match.start(), (edit,), expect("hang tmem-bounds", objects))


TMEM_ANY = ("TMEM accumulators", "TMEM scales", "TMEM", "tmem")


@operator("host-grid", "the grid lacks a CTA", HOST)
def host_grid(source: Source) -> Iterator[Site]:
    for match in source.find(r"\.grid = \{(tiles),"):
        edit = Edit(Span(match.start(1), match.end(1)), "tiles - 1")
        yield Site(match.start(), (edit,), expect(WRONG))
    for match in source.find(r"\.grid = \{[^{}]*?( \* kClusterSize)"):
        edit = Edit(Span(match.start(1), match.end(1)), "")
        # No whole clusters, or some of them are missing and their tiles too.
        yield Site(match.start(), (edit,), expect(f"{WRONG} {FAILED}"))


@operator("host-maps-fewer", "there is memory for the first CTA's maps only", HOST)
def host_maps_fewer(source: Source) -> Iterator[Site]:
    for call in source.calls(r"maps\.reserve"):
        edit = Edit(call.arguments[0], "1")
        expected = expect("out-of-bounds", "tables", roles=MAP_ROLES)
        yield Site(call.span.start, (edit,), expected)


@operator("host-cluster", "the launch makes no clusters", HOST)
def host_cluster(source: Source) -> Iterator[Site]:
    for match in source.find(r"\.cluster = (kClusterSize)\},\s*groups"):
        edit = Edit(Span(match.start(1), match.end(1)), "1")
        expected = expect("descriptor", roles="load_warp mma_warp")
        yield Site(match.start(), (edit,), expected)


@operator("host-kernel", "the kernel of another case is launched", HOST)
def host_kernel(source: Source) -> Iterator[Site]:
    for match in source.find(r"\b(tiles <= resident)( \?|;)"):
        # Several tiles for each CTA, and nobody hands accumulators back.
        edit = Edit(Span(match.start(1), match.end(1)), "true")
        yield Site(match.start(), (edit,), expect(UNORDERED, ACCUMULATORS))
    for match in source.find(r" \|\| ([nk] != [nk]0)"):
        edit = Edit(Span(*match.span()), "")
        yield Site(match.start(), (edit,), _WRONG_OPERAND, note=match[1])


_IN_ORDER = (
    "All launches are on the caller's stream, in order, and the host stages nothing for them. A "
    "buffer that grows is freed by cudaFree, which waits for the device."
)


@operator("host-synchronize-dropped", "memory is staged again while it is copied", HOST)
def host_synchronize_dropped(source: Source) -> Iterator[Site]:
    # The fused MoE's steps stage nothing: their inputs are where the caller has them.
    staged = not source.guesses
    for call in source.calls("stream_synchronize"):
        assert call.statement
        yield Site(
            call.span.start,
            (drop(call.statement),),
            expect(WRONG),
            proof="" if staged else _IN_ORDER,
            gap="in the emulator everything on a stream is done when the call returns",
        )
