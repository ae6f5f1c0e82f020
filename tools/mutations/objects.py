"""Barriers and buffers of the group GEMM's steps: in the source, and in the emulator's reports."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cpp_source import Source, SourceError, Span
from mutant import WRONG

from kernelbench.emulator.findings import Finding

STAGES = ("stages.a", "stages.b", "stages.sfa", "stages.sfb")
ACCUMULATORS = "TMEM accumulators"
SCALES = "TMEM scales"
TMEM = (ACCUMULATORS, SCALES)
ANSWER, SLOTS = "launch_control.response", "tiles.slots"
#: What has to be complete before a barrier's phase is, and may be touched only then.
GUARDED = {
    "full": STAGES,
    "empty": STAGES,
    "tmem_full": (ACCUMULATORS,),
    "tmem_empty": (ACCUMULATORS,),
    "launch_control.answered": (ANSWER,),
    "taken": (ANSWER,),
    "tiles.full": (SLOTS,),
    "tiles.empty": (SLOTS,),
}
BARRIERS = tuple(GUARDED)
#: Barriers that hand a buffer back, and those that hand it over again: the side that fills waits
#: for the former, and for none before its first use.
BACK = {
    "empty": "full",
    "tmem_empty": "tmem_full",
    "taken": "launch_control.answered",
    "tiles.empty": "tiles.full",
}
MAPS = ("map_a", "map_b", "map_c", "maps.a", "maps.b", "maps.c")
GLOBAL = ("A", "B", "C", "SFA", "SFB", "tables")
#: Where a map that is wrong, or not yet there, shows.
MAP_ROLES = (
    "patch_maps patch_maps_after_loads patch_map_c scheduler_warp load_warp load_stage "
    "epilogue_warps publish_maps replace_matrix replace_rows"
)
#: The other operand's.
OTHER = {
    "a": "b", "b": "a", "sfa": "sfb", "sfb": "sfa", "map_a": "map_b", "map_b": "map_a",
    "m_offset": "n_offset", "n_offset": "m_offset",
}  # fmt: skip
#: Every barrier of all threads; the cluster's is one as well.
EVERYONE = "bar_sync|cluster_sync"
CTA_BARRIER = "barrier 0"
#: Classes of two accesses without order: which it is depends on which came first.
UNORDERED = "race early-read overwrite unwritten"
#: Classes of a tile from a slot that holds none yet: what is there leads anywhere.
NO_TILE = f"{UNORDERED} crash alignment out-of-bounds"
#: Classes of an operand or a result at the wrong place: two CTAs may store to one.
MISPLACED = f"{WRONG} out-of-bounds race"

_SCALE_ATOM_COLUMNS = 4
_SCALE_ATOM_K = 64
_SCALE_ATOM_ROWS = 128
# What building blocks call their part of SharedStorage.
_PARTS = {"shared": "", "queue": "tiles.", "control": "launch_control."}


def constant(source: Source, name: str) -> int | None:
    """A constant that the source gives as a number."""
    match = re.search(rf"\b{name} = (\d+);", source.code)
    return int(match[1]) if match else None


def barrier_in(source: Source, span: Span) -> str:
    """The mbarrier that an argument names: ``full`` for ``&shared.full[state.stage]``.

    A local pointer is followed to its initialization; a building block's parameter has the
    barrier's name.
    """
    text = _followed(source, span, r"Mbarrier\*")
    if text in BARRIERS:
        return text
    match = re.search(r"&(shared|queue|control)\.(\w+)", text)
    name = _PARTS[match[1]] + match[2] if match else ""
    if name not in BARRIERS:
        return _as_written(source, span, text, "barrier")
    return name


def buffer_in(source: Source, span: Span) -> str:
    """The buffer in shared memory that an argument names: ``stages.a`` for ``stage.a``."""
    text = source[span]
    match = re.search(r"\bstage\.(\w+)", text)
    if match:
        return f"stages.{match[1]}"
    match = re.search(r"\bshared\.((?:maps\.)?\w+)", text)
    if match is None:
        return _as_written(source, span, text, "buffer")
    return match[1]


def cta_barrier_in(source: Source, arguments: tuple[Span, ...]) -> str:
    """``barrier 1`` for ``bar_sync(kStagedBarrier, …)``, ``barrier 0`` for ``bar_sync()``."""
    if not arguments:
        return CTA_BARRIER
    name = source[arguments[0]]
    if not name.isdigit():
        match = re.search(rf"\b{name} = (\d+);", source.code)
        name = match[1] if match else _as_written(source, arguments[0], name, "barrier")
    return f"barrier {name}"


def _as_written(source: Source, span: Span, text: str, what: str) -> str:
    if not source.guesses:
        raise SourceError(f"{source.name}:{source.line(span.start)}: which {what} is {text!r}?")
    return str(re.findall(r"\w+", text)[-1])


def _followed(source: Source, span: Span, kind: str) -> str:
    text = source[span]
    if not text.isidentifier():
        return text
    inside = source.function_span(span.start)
    found = re.search(rf"\b{kind} {text} = ([^;]+);", source.code[inside.start : span.start])
    return found[1] if found else text


def of_finding(finding: Finding, constants: Mapping[str, int]) -> str:
    """The object of a finding as expectations spell it; empty if it has none.

    Args:
        constants: The step's, as ``kb_describe`` tells them.
    """
    column = re.fullmatch(r"TMEM column (\d+)", finding.object)
    if column:
        return _tmem_part(int(column[1]), constants)
    if finding.object:
        return plain_name(finding.object)
    named = re.search(r"\bbarrier (\d+)\b", finding.text)
    if finding.kind == "named-barrier" and named:
        return f"barrier {named[1]}"
    buffer = re.search(r"\b(SFA|SFB|A|B|C)\[\d+\]", finding.text)
    if buffer:
        return buffer[1]
    return "tables" if "device_malloc" in finding.text else ""


def plain_name(name: str) -> str:
    """``stages.a`` for ``stages[2].a + 0x40``, ``barrier 0`` for ``named barrier 0``."""
    name = re.sub(r"^named |\[\d+\]|\.opaque| \+ 0x[0-9a-f]+$", "", name)
    whole = [each for each in (ANSWER, SLOTS) if name.startswith(each)]
    return whole[0] if whole else name


def _tmem_part(column: int, constants: Mapping[str, int]) -> str:
    """Each accumulator is followed by the scales of its tile's A and B."""
    tile_n = constants["tile_n"]
    scales = constants["tile_k"] // _SCALE_ATOM_K * _SCALE_ATOM_COLUMNS
    tile = tile_n + (1 + -(-tile_n // _SCALE_ATOM_ROWS)) * scales
    if column >= constants["accumulators"] * tile:
        return "TMEM"
    return ACCUMULATORS if column % tile < tile_n else SCALES
