"""Open points: statements about the hardware that no document settles, as probes.

A probe is a few cases of a parity source (``parity``), run natively; what they must leave
for the statement to hold is known beforehand, or is what the emulator leaves, which is built on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernelbench.bringup.parity_inputs import Tensor, change, load_case, words
from kernelbench.bringup.parity_products import (
    CRAFTED,
    MAX_N,
    ROWS,
    Product,
    exact_product,
    rounded_product,
    wgmma,
)
from kernelbench.bringup.parity_runner import ParityCase, Words

_BOX_ROWS = 32
_REUSED_ROUNDS = 8
_TILES, _TILE_WORDS = 256, 4096
_ROUNDS, _READERS, _CTAS, _MAP_WORDS = 64, 128, 8, 256  # of points_order
_NAN = np.uint32(0x7FFFFFFF)


@dataclass(frozen=True)
class PointTrial:
    """A case of a probe.

    Attributes:
        wanted: What it leaves if the statement holds: words, or words from what it has left. None
            for what the emulator leaves.
    """

    work: ParityCase
    wanted: Words | Callable[[Words], Words] | None = None


@dataclass(frozen=True)
class Point:
    """An open point.

    Attributes:
        name: What it is called in the report.
        statement: What is held to be true, in words.
        backends: Where it can be settled.
        stem: The source of its kernels.
        trials: Makes its cases; None if there is no probe.
        any_nan: Whether NaNs of different bits are the same.
        planted: Whether each case has a variant ``CASE_planted`` that breaks the statement on
            purpose: the probe can refute if that one does not leave what is wanted.
        why_not: Why there is no probe.
    """

    name: str
    statement: str
    backends: tuple[str, ...] = ("sm100a",)
    stem: str = ""
    trials: Callable[[np.random.Generator], dict[str, PointTrial]] | None = None
    any_nan: bool = False
    planted: bool = False
    why_not: str = ""

    def with_faults(self, trials: Mapping[str, PointTrial]) -> dict[str, PointTrial]:
        """The trials with the planted variant of each case, if there are such."""
        return {
            key: replace(trial, work=replace(trial.work, case=f"{trial.work.case}_planted"))
            for key, trial in trials.items()
            if self.planted
        }


# ---- Warps, clusters, tensor copies


def _elected(rng: np.random.Generator) -> dict[str, PointTrial]:
    some = words(rng, 61) | np.uint32(1)
    some <<= rng.integers(0, 32, some.size, dtype=np.uint32)
    masks = np.concatenate([np.array([0xFFFFFFFF, 0x1E0, 1 << 31], np.uint32), some])
    lowest = [(int(mask) & -int(mask)).bit_length() - 1 for mask in masks]
    work = ParityCase("elected_lanes", masks.tobytes(), masks.nbytes)
    return {"masks": PointTrial(work, np.array(lowest, np.uint32))}


def _addresses(rng: np.random.Generator) -> dict[str, PointTrial]:
    def by_rank(out: Words) -> Words:
        own = out.reshape(4, 5)[:, :1]
        ranks = np.arange(4, dtype=np.uint32) << np.uint32(24)
        return np.concatenate([own, ranks + (own & np.uint32(0xFFFFFF))], axis=1).ravel()

    return {"cluster": PointTrial(ParityCase("cluster_addresses", bytes(4), 4 * 5 * 4), by_rank)}


def _shifted(rng: np.random.Generator) -> dict[str, PointTrial]:
    source = words(rng, _BOX_ROWS * 32)
    rows = np.arange(_BOX_ROWS)
    wanted = np.empty((8, _BOX_ROWS, 8, 4), np.uint32)
    for shift in range(8):
        for chunk in range(8):
            # The box starts at row `shift` of a period of eight rows of 128 bytes.
            place = chunk ^ (rows + shift) % 8
            wanted[shift, rows, place] = source.reshape(_BOX_ROWS, 8, 4)[:, chunk]
    work = ParityCase("shifted_box", source.tobytes(), wanted.nbytes)
    return {"shifts": PointTrial(work, wanted.ravel())}


def _fenced(rng: np.random.Generator) -> dict[str, PointTrial]:
    first = words(rng, _TILES)
    wanted: Words = np.add.outer(first, np.arange(_TILE_WORDS, dtype=np.uint32))
    work = ParityCase("fence_by_one", first.tobytes(), wanted.nbytes)
    return {"tiles": PointTrial(work, wanted.ravel())}


def _outside(rng: np.random.Generator) -> dict[str, PointTrial]:
    tensor = Tensor("u8", (150, 30), (160,), (128, 24), 3)
    return {"boxes": PointTrial(load_case(rng, tensor, 24))}


def _strides(rng: np.random.Generator) -> dict[str, PointTrial]:
    places = {"shared": False, "global": True}
    return {name: PointTrial(change(rng, "stride0", place)) for name, place in places.items()}


def _fp8_sums(rng: np.random.Generator) -> dict[str, PointTrial]:
    crafted = [name for name in CRAFTED if name.startswith("large")]
    return {name: PointTrial(wgmma(rng, "e4m3", 64, "shared", CRAFTED[name])) for name in crafted}


# ---- What the checker assumes


def _unseen(
    case: str, source: int, count: int
) -> Callable[[np.random.Generator], dict[str, PointTrial]]:
    """A case that counts what must not be seen: ``count`` words that are to be zero."""

    def trials(rng: np.random.Generator) -> dict[str, PointTrial]:
        work = ParityCase(case, words(rng, source).tobytes(), 4 * count)
        return {"rounds": PointTrial(work, np.zeros(count, np.uint32))}

    return trials


def _handed_on(rng: np.random.Generator) -> dict[str, PointTrial]:
    wanted = np.repeat(np.arange(1, _ROUNDS + 1, dtype=np.uint32), _CTAS * 32)
    return {"rounds": PointTrial(ParityCase("handed_on", bytes(4), wanted.nbytes), wanted)}


def _changed_maps(rng: np.random.Generator) -> dict[str, PointTrial]:
    source = words(rng, _ROUNDS * _MAP_WORDS)
    work = ParityCase("changed_after_group", source.tobytes(), source.nbytes)
    return {"maps": PointTrial(work, source)}


# ---- Products of block-scaled operands


def _defined(product: Product, case: str = "product") -> PointTrial:
    """A product whose every sum is exact in fp32, against its definition."""
    return PointTrial(replace(product.work(), case=case), product.expected())


def _rounded(rng: np.random.Generator) -> dict[str, PointTrial]:
    return {f"n{n}": PointTrial(rounded_product(rng, n).work()) for n in (8, 64, 256)}


def _nans(rng: np.random.Generator) -> dict[str, PointTrial]:
    def pattern(out: Words) -> Words:
        return np.where(np.isnan(out.view(np.float32)), _NAN, out)

    work = rounded_product(rng, 64, nan=True).work()
    return {"bits": PointTrial(work, pattern), "places": PointTrial(work)}


def _columns(rng: np.random.Generator) -> dict[str, PointTrial]:
    return {f"shift-{s}": _defined(exact_product(rng, 32, shift=s)) for s in (1, 2, 3)}


def _placed(rng: np.random.Generator) -> dict[str, PointTrial]:
    return {
        f"column-{column}": _defined(
            exact_product(rng, 32, 32, accumulate=False, column=column), "placed_product"
        )
        for column in (1, 2, 8, 31, 100)
    }


def _reused(rng: np.random.Generator) -> dict[str, PointTrial]:
    found = {}
    for n in (8, 64, 256):
        product = exact_product(rng, n)
        once = replace(product, accumulate=False).expected().view(np.float32).reshape(ROWS, MAX_N)
        d = product.d[:ROWS].astype(np.float64)
        d[:, :n] += _REUSED_ROUNDS * once[:, :n].astype(np.float64)
        wanted = d.astype(np.float32)
        if not np.array_equal(wanted, d):
            raise ArithmeticError(f"the products of n = {n} are not exact in fp32")
        work = replace(product.work(), case="reused_scales")
        found[f"n{n}"] = PointTrial(work, wanted.ravel().view(np.uint32))
    return found


def _bad_copies(rng: np.random.Generator) -> dict[str, PointTrial]:
    product = exact_product(rng, 32, 32, accumulate=False)
    wanted = np.stack([product.expected().reshape(ROWS, MAX_N)] * 4)
    for bad in range(4):
        wanted[bad, 32 * bad : 32 * bad + 32, :32] = _NAN
    work = replace(product.work(), case="one_bad_copy", out_bytes=wanted.nbytes)
    return {"nan": PointTrial(work, wanted.ravel())}


def _signs(rng: np.random.Generator) -> dict[str, PointTrial]:
    product = exact_product(rng, 64)
    scales_a, scales_b = (
        (scales | rng.choice(np.array([0, 0x80], np.uint8), scales.shape)).astype(np.uint8)
        for scales in (product.scales_a, product.scales_b)
    )
    signed = replace(product, scales_a=scales_a, scales_b=scales_b)
    return {"bit-7": _defined(signed)}


def _empty(rng: np.random.Generator) -> dict[str, PointTrial]:
    return {"commit": PointTrial(ParityCase("empty_commit", bytes(4), 4), np.ones(1, np.uint32))}


_HOPPER = ("sm90a",)
_BOTH = ("sm90a", "sm100a")

#: In the order of the report.
POINTS = (
    Point(
        "elected-lane",
        "elect.sync chooses the lowest lane of its mask",
        _BOTH, "points_hopper", _elected,
    ),
    Point(
        "cluster-address",
        "a shared::cluster address is the rank of the CTA << 24 | the offset in its shared memory",
        _BOTH, "points_hopper", _addresses,
    ),
    Point(
        "box-outside",
        "a box that is partly or wholly outside its tensor completes all of its bytes on the "
        "mbarrier, and what is outside is zero",
        _BOTH, "parity_tma", _outside,
    ),
    Point(
        "swizzle-address",
        "the 128-byte swizzle takes its row from the address in shared memory, not from the start "
        "of the box",
        _BOTH, "points_hopper", _shifted,
    ),
    Point(
        "fence-by-one",
        "a fence.proxy.async by the storing thread alone, after a barrier, orders what all threads "
        "have written (256 tiles of 256 threads)",
        _BOTH, "points_hopper", _fenced,
    ),
    Point(
        "reads-before-async",
        "a copy that waits for an arrival does not overwrite what was loaded before it, though no "
        "proxy fence is between (8 CTAs, 64 rounds)",
        _BOTH, "points_order", _unseen("refilled", _ROUNDS * _READERS, _CTAS * _READERS),
        planted=True,
    ),
    Point(
        "copies-at-cta-scope",
        "a wait at scope cta sees what a multicast of the cluster's other CTA has brought",
        _BOTH, "points_order", _unseen("multicast", _ROUNDS * _READERS, 2 * _READERS),
        planted=True,
    ),
    Point(
        "dependent-stores",
        "a store that depends on what an atomic returned is not seen by loads before the atomics "
        "that it has counted",
        _BOTH, "points_order", _unseen("stored_by_last", 1, _CTAS * _ROUNDS),
        planted=True,
    ),
    Point(
        "plain-meeting-loads",
        "a plain load of a word that atomics change gives a value that it has had",
        _BOTH, "points_order", _unseen("loaded_plainly", 1, _CTAS * _ROUNDS),
        planted=True,
    ),
    Point(
        "triggers-hand-on",
        "a grid sees, before it waits, what its predecessor has waited for before its trigger",
        _BOTH, "points_order", _handed_on,
        planted=True,
    ),
    Point(
        "groups-cover-loads",
        "cp.async.bulk.wait_group.read covers the reads of a tensor map by loads that complete on "
        "an mbarrier",
        _BOTH, "points_order", _changed_maps,
        planted=True,
    ),
    Point(
        "groups-of-warpgroups",
        "what one warp has waited for is over for its whole warpgroup, whose other warps come late",
        _HOPPER, "points_wgmma", _unseen("waited_by_one", _ROUNDS, 128),
        planted=True,
    ),
    Point(
        "stride-unit",
        "tensormap.replace takes global_stride in bytes",
        _BOTH, "parity_tma", _strides,
    ),
    Point(
        "fp8-sums",
        "an FP8 wgmma keeps 13 bits of mantissa in its sums and truncates, as the emulator does",
        _HOPPER, "parity_wgmma", _fp8_sums,
    ),
    Point(
        "rounding",
        "a block-scaled product of K = 64 is one sum of four blocks and the old value, aligned and "
        "truncated once, as the emulator does with --mma-rounding hardware",
        stem="parity_tensor", trials=_rounded,
    ),
    Point(
        "nan-bits",
        "every NaN of a product is 0x7fffffff, and NaNs are where the emulator has them",
        stem="parity_tensor", trials=_nans,
    ),
    Point(
        "scale-columns",
        "the scales of B may start 1, 2 or 3 columns later, by 32 rows each",
        stem="parity_tensor", trials=_columns,
    ),
    Point(
        "scale-copies",
        "rows 32w to 32w + 31 of D take A's scales from the copy in lanes 32w to 32w + 31 alone "
        "(the emulator reads the first copy; the steps write all four alike)",
        stem="points_tensor", trials=_bad_copies, any_nan=True,
    ),
    Point(
        "scale-reuse",
        "a tcgen05.cp after a product overwrites that product's scales only when it has read them, "
        "with no wait between",
        stem="points_tensor", trials=_reused,
    ),
    Point(
        "scale-sign",
        "bit 7 of a ue4m3 scale is ignored",
        stem="parity_tensor", trials=_signs,
    ),
    Point(
        "d-column",
        "D may start at any column of tensor memory",
        stem="points_tensor", trials=_placed,
    ),
    Point(
        "empty-commit",
        "a commit with no operation before it arrives",
        stem="points_tensor", trials=_empty,
    ),
    Point(
        "reserved-bits",
        "reserved bits of descriptors are ignored",
        why_not="a kernel that sets them is not valid; every step leaves them 0",
    ),
    Point(
        "alloc-order",
        "CTAs of an SM that wait in tcgen05.alloc are served in order",
        why_not="no step rests on an order",
    ),
    Point(
        "fence-code",
        "tcgen05.fence is no instruction of the hardware",
        why_not="that is in the machine code, not in what a kernel can see; no step rests on it",
    ),
    Point(
        "pair-of-64",
        "with cta_group::2 and M = 128 the scales of B lie in halves of 64 lanes",
        why_not="the ptx layer has no M = 128 for a pair",
    ),
    Point(
        "response-bits",
        "the bits of a Cluster Launch Control response",
        why_not="they are opaque; every step asks the query instructions",
    ),
    Point(
        "nibble-map",
        "a Hopper GPU refuses a tensor map of 4-bit elements",
        why_not="the ptx layer has no such element type",
    ),
    Point(
        "store-corner",
        "a tensor store may start at a negative corner",
        why_not="the PTX ISA forbids it, and no step does it",
    ),
)  # fmt: skip
