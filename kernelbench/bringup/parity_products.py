"""Inputs of the products, on Hopper's tensor cores and on Blackwell's in software."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kernelbench.bringup.parity_inputs import words
from kernelbench.bringup.parity_runner import ParityCase

Float32s = npt.NDArray[np.float32]

# ---- wgmma: A [64, 128 bytes], B [256, 128 bytes], fragments of A, accumulators

E4M3_COUNTS = (4, 8, 16, 32, 64, 128)
F16_COUNTS = (32, 64, 128)


def e4m3(rng: np.random.Generator, count: int, top: int = 0x7E) -> bytes:
    """Random codes up to ``top``, without NaN."""
    codes = rng.integers(0, top + 1, count, dtype=np.uint8)
    return bytes(codes | rng.integers(0, 2, count, dtype=np.uint8) << 7)


def f16(rng: np.random.Generator, count: int, spread: int = 6) -> bytes:
    """Random halves with exponents from -spread to spread."""
    values = rng.uniform(1, 2, count) * 2.0 ** rng.integers(-spread, spread + 1, count)
    return bytes((values * rng.choice([-1, 1], count)).astype(np.float16))


def _large(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32s:
    """Accumulators that dwarf the products, to different degrees: low bits get lost."""
    exponents = rng.integers(0, 22, shape)
    values = rng.uniform(1, 2, shape) * 2.0**exponents * rng.choice([-1, 1], shape)
    return np.asarray(values, np.float32)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32s:
    values = rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 3, shape)
    return np.asarray(values, np.float32)


def _zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32s:
    return np.zeros(shape, np.float32)


@dataclass(frozen=True)
class Crafted:
    """How the operands of a wgmma are made."""

    steps: int
    accumulate: bool
    accumulators: Callable[[np.random.Generator, tuple[int, ...]], Float32s]
    top: int = 0x7E  # of the e4m3 codes
    spread: int = 6  # of the halves' exponents


CRAFTED = {
    "one-step": Crafted(1, False, _zero),
    "four-steps": Crafted(4, True, _zero),
    "large-accumulators": Crafted(1, True, _large, 0x40, 2),
    "large-accumulators-four-steps": Crafted(4, True, _large, 0x50, 3),
    "small-accumulators": Crafted(2, True, _small, 0x7E, 10),
    "subnormals": Crafted(2, True, _small, 0x0F, 1),
    "wide-exponents": Crafted(4, True, _large, 0x7E, 14),
}


def wgmma(
    rng: np.random.Generator, kind: str, count: int, source: str, crafted: Crafted
) -> ParityCase:
    """One product of ``parity_wgmma.cu``."""

    def operand(size: int) -> bytes:
        if kind == "e4m3":
            return e4m3(rng, size, crafted.top)
        return f16(rng, size // 2, crafted.spread)

    header = np.array([crafted.steps, crafted.accumulate, 0, 0], np.uint32).tobytes()
    operands = operand(64 * 128) + operand(256 * 128) + operand(4 * 128 * 16)
    accumulators = crafted.accumulators(rng, (128, 128)).tobytes()
    return ParityCase(f"{kind}_{count}_{source}", header + operands + accumulators, 128 * count * 4)


def wgmma_cases(rng: np.random.Generator, kind: str) -> dict[str, ParityCase]:
    """Every product of ``parity_wgmma.cu`` of one type."""
    return {
        f"{count}-{source}-{name}": wgmma(rng, kind, count, source, crafted)
        for count in (E4M3_COUNTS if kind == "e4m3" else F16_COUNTS)
        for source in ("shared", "registers")
        for name, crafted in CRAFTED.items()
    }


# ---- tcgen05: a product of one period of K

ROWS, MAX_N, MAX_STEPS, ROW_WORDS = 128, 256, 4, 32
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def ue4m3(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Values of scale codes; bit 7 is not part of them."""
    exponent, mantissa = codes >> 3 & 15, codes & 7
    normal = (8.0 + mantissa) * 2.0 ** (exponent.astype(np.float64) - 10)
    value = np.where(exponent == 0, mantissa * 2.0**-9, normal)
    return np.where(codes & 0x7F == 0x7F, np.nan, value)


@dataclass(frozen=True)
class Product:
    """Operands as the input of ``parity_tensor.cu`` holds them; codes one per element."""

    n: int
    row_bytes: int
    ctas: int
    #: ``a``, ``b``: Codes, [2 * 128 or 256 rows, 64 * steps].
    a: npt.NDArray[np.uint8]
    b: npt.NDArray[np.uint8]
    #: ``scales_a``, ``scales_b``: Codes, [256 rows, steps, 4].
    scales_a: npt.NDArray[np.uint8]
    scales_b: npt.NDArray[np.uint8]
    d: Float32s  #: Accumulators, [256, 256].
    accumulate: bool = True
    negate: tuple[bool, bool] = (False, False)
    shift: int = 0
    issuer: int = 0
    column: int = 0
    steps: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", self.a.shape[1] // 64)

    def work(self) -> ParityCase:
        header = [
            self.n, self.row_bytes, self.accumulate, *self.negate, self.shift, self.issuer,
            self.column,
        ]  # fmt: skip
        parts: list[npt.NDArray[Any]] = [
            np.array(header, np.uint32),
            _packed(self.a),
            _packed(self.b),
        ]
        parts += [_atoms(self.scales_a[:128]), _atoms(self.scales_a[128:])]
        pair = np.stack([_atoms(self.scales_b[:128]), _atoms(self.scales_b[128:])], axis=1)
        given = b"".join(part.tobytes() for part in [*parts, pair, self.d])
        case = "product" if self.ctas == 1 else "pair_product"
        return ParityCase(case, given, self.ctas * ROWS * MAX_N * 4)

    def expected(self) -> npt.NDArray[np.uint32]:
        """D by the definition: exact sums of 16, then one rounded addition for each, in order."""
        d = self.d[: self.ctas * ROWS].copy()
        columns = slice(self.column, self.column + self.n)
        result = np.zeros((self.ctas * ROWS, self.n), np.float32)
        if self.accumulate:
            result = d[:, columns].copy()
        sign = -1.0 if self.negate[0] != self.negate[1] else 1.0
        a, b = E2M1[self.a[: self.ctas * ROWS]], E2M1[self.b[: self.n]]
        rows_b = np.arange(self.n) + 32 * self.shift
        scales_a = ue4m3(self.scales_a[: self.ctas * ROWS])
        scales_b = ue4m3(self.scales_b[rows_b])
        for step in range(self.steps):
            for block in range(4):
                k = slice(64 * step + 16 * block, 64 * step + 16 * block + 16)
                scale = np.outer(scales_a[:, step, block], scales_b[:, step, block]) * sign
                # Exact in double: 12 bits of sum, 8 of scale, and an accumulator not far away.
                result = (result + (a[:, k] @ b[:, k].T) * scale).astype(np.float32)
        d[:, columns] = result
        return d.view(np.uint32).ravel()


def _packed(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Two codes a byte, the first in the low nibble, in rows of 128 bytes."""
    found = np.zeros((len(codes), 4 * ROW_WORDS), np.uint8)
    found[:, : codes.shape[1] // 2] = codes[:, ::2] | codes[:, 1::2] << 4
    return found


def _atoms(scales: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """128 rows in the blocked layout, for each step: byte (x % 32) 16 + (x / 32) 4 + block."""
    found = np.full((MAX_STEPS, 512), 0xFF, np.uint8)
    steps = scales.shape[1]
    atom = scales.reshape(4, 32, steps, 4).transpose(2, 1, 0, 3)
    found[:steps] = atom.reshape(steps, 512)
    return found


def exact_product(
    rng: np.random.Generator, n: int, row_bytes: int = 128, ctas: int = 1, **options: Any
) -> Product:
    """All codes, scales 1, 1.5, 2 and 3: every sum fits in fp32 in any order."""
    steps = max(row_bytes // 32, 1)
    scales = np.array([0x38, 0x3C, 0x40, 0x44], np.uint8)
    d = rng.integers(-16000, 16000, (256, MAX_N)) / 16
    return Product(
        n, row_bytes, ctas,
        rng.integers(0, 16, (256, 64 * steps), dtype=np.uint8),
        rng.integers(0, 16, (256, 64 * steps), dtype=np.uint8),
        rng.choice(scales, (256, steps, 4)), rng.choice(scales, (256, steps, 4)),
        d.astype(np.float32), **options,
    )  # fmt: skip


def rounded_product(rng: np.random.Generator, n: int, nan: bool = False) -> Product:
    """Scales of every size: additions round, in the soft executor's order of blocks."""
    top = 0x80 if nan else 0x7F
    scales = [rng.integers(0, top, (256, 4, 4), dtype=np.uint8) for _ in range(2)]
    # One row in some has a NaN, so that most of the result has none.
    for found in scales:
        quiet = rng.random((256, 1, 1)) < 0.97
        found[(found == 0x7F) & quiet] = 0x38
    codes = [rng.integers(0, 16, (256, 256), dtype=np.uint8) for _ in range(2)]
    d = rng.standard_normal((256, MAX_N)).astype(np.float32) * 100
    return Product(n, 128, 1, codes[0], codes[1], scales[0], scales[1], d)


def products(rng: np.random.Generator) -> dict[str, Product]:
    """Exact products: each N class, layout of the operands, sign, shift, and pairs of CTAs."""
    found = {f"n{n}": exact_product(rng, n) for n in (8, 64, 96, 128, 200, 256)}
    found["no-accumulators"] = exact_product(rng, 128, accumulate=False)
    for row_bytes in (16, 32, 64):
        found[f"rows-of-{row_bytes}"] = exact_product(rng, 72, row_bytes)
    for shift in (1, 2, 3):
        found[f"shift-{shift}"] = exact_product(rng, 32, shift=shift)
    for negate in ((True, False), (False, True), (True, True)):
        found[f"negate-{negate[0]:d}{negate[1]:d}"] = exact_product(rng, 32, negate=negate)
    for n in (16, 128, 256):
        for issuer in (0, 1):
            found[f"pair-n{n}-issuer{issuer}"] = exact_product(rng, n, ctas=2, issuer=issuer)
    found["pair-rows-of-64"] = exact_product(rng, 48, 64, ctas=2)
    return found


def memory_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """The cases of ``parity_tensor.cu`` without a product."""
    counts = [1, 2, 4, 8, 16, 32, 64, 128]
    registers = sum(counts) + 2 * sum(counts) + 2 * sum(counts[2:])
    return {
        "tensor_memory": ParityCase(
            "tensor_memory", words(rng, 128 * 512).tobytes(), registers * 128 * 4
        ),
        "allocations": ParityCase("allocations", words(rng, 640).tobytes(), 640 * 4),
    }


def control_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """The cases of ``parity_control.cu`` that are right."""
    found = {}
    for case in ("takeovers", "cluster_takeovers"):
        given = words(rng, 600 * 32).tobytes()
        found[case] = ParityCase(case, given, 600 * 32 * 8)
    for mask in (1, 2, 6, 13, 15):
        found[f"commit-{mask:04b}"] = ParityCase("commits", np.uint32(mask).tobytes(), 16)
    return found


def pair_loads(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Loads towards the leader's barrier: for the emulator, and refused by the soft executor."""
    return {"pair_loads": ParityCase("pair_loads", words(rng, 4096).tobytes(), 4 * 4096)}
