"""Operators on tensor memory, copies of scales, MMAs and descriptors."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cpp_source import Edit, Source, Span
from mutant import WRONG, Site, drop, expect, operator
from objects import ACCUMULATORS, EVERYONE, SCALES, STAGES, TMEM, UNORDERED, constant

_ANY_TMEM = (*TMEM, "TMEM", "tmem")
MMA = "tcgen05_mma_mxf4nvf4_block_scale_4x"
CP = "tcgen05_cp_32x128b_warpx4"

# ---- allocation --------------------------------------------------------------------------------


@operator("alloc-dropped", "no tensor memory is allocated")
def alloc_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_alloc"):
        assert call.statement
        kinds = "tmem-bounds tmem-allocation alignment"
        yield Site(call.span.start, (drop(call.statement),), expect(kinds, _ANY_TMEM))


@operator("alloc-fewer", "half of the columns are allocated, and freed")
def alloc_fewer(source: Source) -> Iterator[Site]:
    edits = []
    for call in source.calls("tcgen05_alloc|tcgen05_dealloc"):
        edits.append(Edit(call.arguments[-1], f"{source[call.arguments[-1]]} / 2"))
    if edits:
        yield Site(edits[0].span.start, tuple(edits), expect("tmem-bounds", _ANY_TMEM))


@operator("dealloc-dropped", "tensor memory is not freed")
def dealloc_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_dealloc"):
        assert call.statement
        # "if (warp == kMmaWarp) ;"
        yield Site(call.span.start, (drop(call.statement),), expect("tmem-allocation", _ANY_TMEM))


@operator("dealloc-fewer", "half of the columns are freed")
def dealloc_fewer(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_dealloc"):
        at = call.arguments[-1]
        yield Site(
            call.span.start, (Edit(at, f"{source[at]} / 2"),), expect("tmem-allocation", _ANY_TMEM)
        )


@operator("dealloc-early", "tensor memory is freed before the last CTA barrier")
def dealloc_early(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_dealloc"):
        assert call.statement
        barriers = [
            each.span.start for each in source.calls(EVERYONE) if each.span.end < call.span.start
        ]
        at = Span(barriers[-1], barriers[-1])
        text = f"if (warp == kMmaWarp) {source[call.statement]}\n  "
        kinds = f"tmem-bounds tmem-allocation {UNORDERED}"
        yield Site(
            call.span.start, (Edit(at, text), drop(call.statement)), expect(kinds, _ANY_TMEM)
        )


_ALONE = (
    "The permit matters to another CTA on the same SM only, and a CTA takes more than half of an "
    "SM's shared memory: there is none."
)
_LATER = (
    "Another CTA on the same SM waits with its allocation until this one has ended. No CTA waits "
    "for another: all end, if later."
)


@operator("relinquish-dropped", "the permit to allocate is kept")
def relinquish_dropped(source: Source) -> Iterator[Site]:
    proof = _LATER if "kCtasPerSm" in source.code else _ALONE
    for call in source.calls("tcgen05_relinquish_alloc_permit"):
        assert call.statement
        expected = expect("tmem-allocation", _ANY_TMEM)
        yield Site(call.span.start, (drop(call.statement),), expected, proof)


# ---- loads from tensor memory and fences -------------------------------------------------------


@operator("wait-ld-dropped", "registers of a tcgen05.ld are used at once")
def wait_ld_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_wait_ld"):
        assert call.statement
        yield Site(
            call.span.start, (drop(call.statement),), expect(f"{WRONG} {UNORDERED}", ACCUMULATORS)
        )


@operator("tmem-lane", "a warp loads the next warp's lanes")
def tmem_lane(source: Source) -> Iterator[Site]:
    for call in source.calls("tmem_lane"):
        at = call.arguments[1]
        yield Site(
            call.span.start,
            (Edit(at, f"({source[at]} + 32) % 128"),),
            expect("tmem-bounds", ACCUMULATORS),
        )


@operator("ld-column", "every chunk is loaded from the first columns")
def ld_column(source: Source) -> Iterator[Site]:
    for call in source.calls("tcgen05_ld_32x32b"):
        match = re.search(r" \+ (column|at)$", source[call.arguments[1]])
        if match is None:
            continue
        end = call.arguments[1].end
        # Once columns of C, once lanes' columns.
        chunk = constant(source, "kChunkN" if match[1] == "column" else "kChunk")
        one = constant(source, "kTileN" if match[1] == "column" else "kTileM") == chunk
        yield Site(
            call.span.start,
            (Edit(Span(end - len(match[0]), end), ""),),
            expect(WRONG),
            proof="A tile is one chunk wide (kTileN = kChunkN): the column is always 0."
            if one
            else "",
        )


_NOTHING_DONE = (
    "No thread has issued a tcgen05 operation that runs on its own: there is nothing to order "
    "before the barrier. The address of what was allocated is written by an ordinary store."
)
_FENCED_BEFORE = (
    "Each epilogue warp has fenced its last loads before it handed the accumulators back, and it "
    "has waited for the commit of the last MMAs: nothing is left to order before the barrier."
)
_FENCED_AGAIN = (
    "Every later operation on tensor memory comes behind a wait for an mbarrier with a "
    "fence::after_thread_sync of its own; dealloc runs where it is issued, behind the barrier."
)


@operator("tcgen05-fence-dropped", "a tcgen05.fence is missing")
def tcgen05_fence_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(r"tcgen05_fence_(?:before|after)_thread_sync"):
        assert call.statement
        after = "_after_" in call.name
        where = source.function_span(call.span.start)
        entry = "compute_tile" in source.code[where.start : where.end]
        before = source.code[where.start : call.span.start]
        in_loop = bool(source.loops_around(call.span.start))
        proof = ""
        if entry and after:
            proof = _FENCED_AGAIN
        elif entry and "compute_tile" not in before:
            proof = _NOTHING_DONE
        elif entry and not in_loop and "tmem_empty" in source.code:
            proof = _FENCED_BEFORE
        # Its operations do not follow what it waited for, or others' do not follow its own.
        objects = STAGES if source.function_at(call.span.start) == "mma_warp" else (ACCUMULATORS,)
        yield Site(call.span.start, (drop(call.statement),), expect(UNORDERED, objects), proof)


# ---- copies of scales and MMAs -----------------------------------------------------------------


@operator("cp-dropped", "scales are not copied to tensor memory")
def cp_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(CP):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(f"{WRONG} {UNORDERED}", SCALES))


@operator("cp-to-other-scales", "scales go to the other operand's columns")
def cp_to_other(source: Source) -> Iterator[Site]:
    for call in source.calls(CP):
        yield Site(call.span.start, (_other(source, call.arguments[1]),), expect(WRONG))


@operator("cp-from-other-scales", "scales come from the other operand's buffer")
def cp_from_other(source: Source) -> Iterator[Site]:
    for call in source.calls(CP):
        yield Site(call.span.start, (_other(source, call.arguments[2]),), expect(WRONG))


_SWAPS = {
    "tmem_sfa": "tmem_sfb",
    "tmem_sfb": "tmem_sfa",
    "tile_sfa": "tmem_sfb",
    "tile_sfb": "tmem_sfa",
    "sfa": "sfb",
    "sfb": "sfa",
    "a": "b",
    "b": "a",
}


def _other(source: Source, span: Span) -> Edit:
    """The first operand's name in a span, replaced by the other's."""
    match = re.search(rf"\b({'|'.join(_SWAPS)})\b", source.code[span.start : span.end])
    assert match, source[span]
    at = Span(span.start + match.start(1), span.start + match.end(1))
    return Edit(at, _SWAPS[match[1]])


@operator("mma-dropped", "an MMA is missing")
def mma_dropped(source: Source) -> Iterator[Site]:
    for call in source.calls(MMA):
        assert call.statement
        yield Site(call.span.start, (drop(call.statement),), expect(WRONG))


@operator("mma-operand-swapped", "an operand or its scales are the other's")
def mma_operand_swapped(source: Source) -> Iterator[Site]:
    for call in source.calls(MMA):
        for index in (2, 3, 5, 6):
            # A larger tile than the buffer's runs into the next one.
            expected = expect(f"{WRONG} {UNORDERED}", STAGES) if index < 4 else expect(WRONG)
            at = call.arguments[index]
            yield Site(at.start, (_other(source, at),), expected, note=source[at])


@operator("scale-column", "an MMA or a copy uses the next instruction's scale columns")
def scale_column(source: Source) -> Iterator[Site]:
    for call in source.calls(f"{MMA}|{CP}"):
        for argument in call.arguments:
            match = re.search(r"\bi(?= \* kScale(?:AtomColumns|RowsB)\b)", source[argument])
            if match is None:
                continue
            at = Span(argument.start + match.start(), argument.start + match.end())
            yield Site(at.start, (Edit(at, "(i ^ 1)"),), expect(WRONG))


@operator("scales-of-tile", "the tile's place in the atom of B's scales is ignored")
def scales_of_tile(source: Source) -> Iterator[Site]:
    for call in source.calls("scale_atom_column"):
        of_a = "m_offset" in source[call.span]
        whole = constant(source, "kTileM" if of_a else "kTileN") == 128
        yield Site(
            call.span.start,
            (Edit(call.span, "0"),),
            expect(WRONG),
            proof="A tile is as wide as an atom (128): its place in the atom is always 0."
            if whole
            else "",
        )


@operator("accumulate-constant", "an MMA always or never adds to the accumulator")
def accumulateconstant(source: Source) -> Iterator[Site]:
    for call in source.calls(MMA):
        for value in ("true", "false"):
            yield Site(
                call.arguments[7].start,
                (Edit(call.arguments[7], value),),
                expect(WRONG),
                note=value,
            )


@operator("accumulators-overlap", "accumulators and scales share columns")
def accumulators_overlap(source: Source) -> Iterator[Site]:
    for match in source.find(r"\btmem_sfa = (tmem \+ (?:kTileN|kColumns));"):
        edit = Edit(Span(match.start(1), match.end(1)), f"{match[1]} / 2")
        yield Site(match.start(1), (edit,), expect("tmem-bounds", TMEM))
    for match in source.find(r"\btmem_sfb = (tmem_sfa \+ kScaleColumns);"):
        edit = Edit(Span(match.start(1), match.end(1)), "tmem_sfa + kScaleColumns / 2")
        yield Site(match.start(1), (edit,), expect(WRONG))


# ---- descriptors -------------------------------------------------------------------------------


@operator("descriptor-layout", "a descriptor has another tile's swizzle and strides")
def descriptor_layout(source: Source) -> Iterator[Site]:
    for match in source.find(r"\b(kTileSw128|kTileScales)\b"):
        other = "kTileScales" if match[1] == "kTileSw128" else "kTileSw128"
        edit = Edit(Span(match.start(1), match.end(1)), other)
        yield Site(match.start(1), (edit,), expect(f"{WRONG} descriptor", STAGES))


@operator("descriptor-strides", "a descriptor's stride or leading offset is wrong")
def descriptor_strides(source: Source) -> Iterator[Site]:
    for match in source.find(r"\b(kTileSw128|kTileScales)\b"):
        edit = Edit(
            Span(match.start(1), match.end(1)),
            f"SmemTile{{{match[1]}.swizzle, {match[1]}.leading_bytes, "
            f"{match[1]}.stride_bytes / 2}}",
        )
        yield Site(match.start(1), (edit,), expect(f"{WRONG} descriptor"))


@operator("descriptor-buffer", "a descriptor is of the other operand's buffer")
def descriptor_buffer(source: Source) -> Iterator[Site]:
    for match in source.find(r"\bsmem_address\(stage\.(\w+)\)"):
        edit = Edit(Span(match.start(1), match.end(1)), _SWAPS[match[1]])
        # A larger tile than the buffer's runs into the next one.
        yield Site(match.start(1), (edit,), expect(f"{WRONG} {UNORDERED}", STAGES))


@operator("descriptor-not-advanced", "every instruction starts at the tile's first K")
def descriptor_not_advanced(source: Source) -> Iterator[Site]:
    for call in source.calls("smem_descriptor_advance"):
        edit = Edit(call.span, source[call.arguments[0]])
        yield Site(call.span.start, (edit,), expect(WRONG))


@operator("descriptor-advanced-twice", "instructions advance by two steps of K")
def descriptor_advanced_twice(source: Source) -> Iterator[Site]:
    for call in source.calls("smem_descriptor_advance"):
        at = call.arguments[1]
        edit = Edit(at, f"2 * ({source[at]})")
        yield Site(
            call.span.start,
            (edit,),
            expect(f"{WRONG} descriptor out-of-bounds {UNORDERED}", STAGES),
        )


@operator("instruction-field", "a field of the instruction descriptor is wrong")
def instruction_field(source: Source) -> Iterator[Site]:
    extents = r"\.m = (\w+), \.n = (\w+)"
    for match in source.find(rf"\bkInstruction\{{({extents})\}}"):
        at = Span(match.start(1), match.end(1))
        m, n = match[2], match[3]
        for text in (
            f".m = {m}, .n = {n} / 2",
            f".m = {m}, .n = {n}, .scales = ScaleType::kUe8m0",
            f".m = {m}, .n = {n}, .negate_a = true",
        ):
            yield Site(at.start, (Edit(at, text),), expect(f"{WRONG} descriptor"), note=text)
    # Where it is used: the constant itself is checked when it is compiled.
    for match in source.find(r"\bmultiply_stage<[\w, ]+>\(ptx::\w+, (kInstruction)\b"):
        text = f"Mxf4nvf4Instruction{{.m = 2 * {m}, .n = {n}}}"
        yield Site(
            match.start(), (Edit(Span(*match.span(1)), text),), expect("descriptor"), note=text
        )
