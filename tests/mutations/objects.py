"""Barriers and buffers of the group GEMM's steps: in the source, and in the emulator's reports."""

from __future__ import annotations

import re

from cpp_source import Source, SourceError, Span

from kernelbench.emulator_report import Finding

STAGES = ("stages.a", "stages.b", "stages.sfa", "stages.sfb")
ACCUMULATORS = "TMEM accumulators"
SCALES = "TMEM scales"
TMEM = (ACCUMULATORS, SCALES)
BARRIERS = ("full", "empty", "tmem_full")
MAPS = ("map_a", "map_b", "map_c")
GLOBAL = ("A", "B", "C", "SFA", "SFB", "tables")
#: What nobody may touch before the barrier's phase is complete.
GUARDED = {"full": STAGES, "empty": STAGES, "tmem_full": (ACCUMULATORS,)}
CTA_BARRIER = "barrier 0"
#: Classes of two accesses without order: which it is depends on which came first.
UNORDERED = "race early-read overwrite"

_SCALE_ATOM_COLUMNS = 4
_SCALE_ATOM_K = 64


def barrier_in(source: Source, span: Span) -> str:
    """The mbarrier that an argument names: ``full`` for ``&shared.full[state.stage]``.

    A local pointer is followed to its initialization.
    """
    text = _followed(source, span, r"Mbarrier\*")
    match = re.search(r"&shared\.(\w+)", text)
    if match is None or match[1] not in BARRIERS:
        raise SourceError(f"{source.name}:{source.line(span.start)}: which barrier is {text!r}?")
    return match[1]


def buffer_in(source: Source, span: Span) -> str:
    """The buffer in shared memory that an argument names: ``stages.a`` for ``stage.a``."""
    text = source[span]
    match = re.search(r"\bstage\.(\w+)", text)
    if match:
        return f"stages.{match[1]}"
    match = re.search(r"\bshared\.(\w+)", text)
    if match is None:
        raise SourceError(f"{source.name}:{source.line(span.start)}: which buffer is {text!r}?")
    return match[1]


def cta_barrier_in(source: Source, arguments: tuple[Span, ...]) -> str:
    """``barrier 1`` for ``bar_sync(kStagedBarrier, …)``, ``barrier 0`` for ``bar_sync()``."""
    if not arguments:
        return CTA_BARRIER
    name = source[arguments[0]]
    if not name.isdigit():
        match = re.search(rf"\b{name} = (\d+);", source.code)
        if match is None:
            raise SourceError(f"{source.name}: which barrier is {name}?")
        name = match[1]
    return f"barrier {name}"


def _followed(source: Source, span: Span, kind: str) -> str:
    text = source[span]
    if not text.isidentifier():
        return text
    inside = source.function_span(span.start)
    found = re.search(rf"\b{kind} {text} = ([^;]+);", source.code[inside.start : span.start])
    return found[1] if found else text


def of_finding(finding: Finding, tile_n: int, tile_k: int) -> str:
    """The object of a finding as expectations spell it; empty if it has none."""
    column = re.fullmatch(r"TMEM column (\d+)", finding.object)
    if column:
        return _tmem_part(int(column[1]), tile_n, tile_k)
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
    return re.sub(r"^named |\[\d+\]|\.opaque| \+ 0x[0-9a-f]+$", "", name)


def _tmem_part(column: int, tile_n: int, tile_k: int) -> str:
    scales = tile_k // _SCALE_ATOM_K * _SCALE_ATOM_COLUMNS
    if column < tile_n:
        return ACCUMULATORS
    return SCALES if column < tile_n + 2 * scales else "TMEM"
