"""Open points: statements about the hardware that no document settles, as probes.

A probe is a few cases of a parity source (``parity``), run natively; what they must leave
for the statement to hold is known beforehand, or is what the emulator leaves, which is built on it.
``open_points.toml`` has the statements.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

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
    """A case of a probe."""

    work: ParityCase
    #: What it leaves if the statement holds: words, or words from what it has left. None for what
    #: the emulator leaves.
    wanted: Words | Callable[[Words], Words] | None = None


@dataclass(frozen=True)
class Point:
    """An open point."""

    name: str  #: What it is called in the report.
    statement: str  #: What is held to be true, in words.
    backends: tuple[str, ...]  #: Where it can be settled.
    stem: str = ""  #: The source of its kernels.
    #: Makes its cases; None if there is no probe.
    trials: Callable[[np.random.Generator], dict[str, PointTrial]] | None = None
    any_nan: bool = False  #: Whether NaNs of different bits are the same.
    #: Whether each case has a variant ``CASE_planted`` that breaks the statement on purpose: the
    #: probe can refute if that one does not leave what is wanted.
    planted: bool = False
    why_not: str = ""  #: Why there is no probe.

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


#: The cases of each probe, by the point's name.
_TRIALS: Mapping[str, Callable[[np.random.Generator], dict[str, PointTrial]]] = {
    "elected-lane": _elected,
    "cluster-address": _addresses,
    "box-outside": _outside,
    "swizzle-address": _shifted,
    "fence-by-one": _fenced,
    "reads-before-async": _unseen("refilled", _ROUNDS * _READERS, _CTAS * _READERS),
    "copies-at-cta-scope": _unseen("multicast", _ROUNDS * _READERS, 2 * _READERS),
    "dependent-stores": _unseen("stored_by_last", 1, _CTAS * _ROUNDS),
    "plain-meeting-loads": _unseen("loaded_plainly", 1, _CTAS * _ROUNDS),
    "triggers-hand-on": _handed_on,
    "groups-cover-loads": _changed_maps,
    "groups-of-warpgroups": _unseen("waited_by_one", _ROUNDS, 128),
    "stride-unit": _strides,
    "fp8-sums": _fp8_sums,
    "rounding": _rounded,
    "nan-bits": _nans,
    "scale-columns": _columns,
    "scale-copies": _bad_copies,
    "scale-reuse": _reused,
    "scale-sign": _signs,
    "d-column": _placed,
    "empty-commit": _empty,
}
_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
#: In the order of the report.
POINTS = tuple(
    Point(name=name, trials=_TRIALS.get(name), **fields | {"backends": tuple(fields["backends"])})
    for name, fields in _TABLE.items()
)
