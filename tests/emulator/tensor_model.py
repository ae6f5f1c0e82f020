"""Tensor memory, matrix descriptors and block-scaled products as numpy: written from the PTX ISA's
tables, without a look at the emulator, for tests to compare it with."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMAGE_BYTES = 96 * 1024
REGISTERS = 16
LANES = 128
COLUMNS = 512
COPY, MULTIPLY, COMMIT = range(3)
WIDTHS = {0: 0, 2: 128, 4: 64, 6: 32}  # of a swizzle code, bytes
FAULTS = (
    "right", "no proxy fence", "no commit wait", "no wait ld", "no wait st", "overwrite tile",
    "overwrite sums", "every lane", "other commits", "leak", "early dealloc", "wrong dealloc",
    "wrong slab", "unequal address", "unequal scales", "alloc grows", "alloc relinquished",
    "alloc not power", "alloc blocked", "mixed groups", "pair one allocates", "second round",
    "load at once", "no fence before", "store too early", "no fence after",
)  # fmt: skip

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
OPERATION = np.dtype(
    [
        ("a", "u8"),
        ("b", "u8"),
        ("kind", "u4"),
        ("d", "u4"),
        ("instruction", "u4"),
        ("scales_a", "u4"),
        ("scales_b", "u4"),
        ("accumulate", "u4"),
    ]
)
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint32]


def ue4m3(code: int) -> float:
    """Value of an unsigned e4m3 byte; NaN for 0x7f."""
    exponent, mantissa = code >> 3 & 15, code & 7
    if code & 127 == 127:
        return float("nan")
    return (mantissa * 2.0**-9) if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


UE4M3 = np.array([ue4m3(code) for code in range(256)])


def codes(rows: Bytes) -> Bytes:
    """The e2m1 codes of packed bytes, low nibble first."""
    return np.stack([rows & 15, rows >> 4], axis=-1).reshape(*rows.shape[:-1], -1)


def instruction(
    n: int, m: int = 128, *, negate_a: bool = False, negate_b: bool = False, extra: int = 0
) -> int:
    """Instruction descriptor of kind mxf4nvf4, PTX ISA table 44."""
    signs = negate_a << 13 | negate_b << 14
    return 1 << 7 | 1 << 10 | signs | n // 8 << 17 | m // 128 << 27 | extra


@dataclass
class Tile:
    """A K-major tile of 32 bytes a row, at ``start`` of the image."""

    start: int
    swizzle: int = 2
    leading: int = 16
    stride: int = 1024

    def descriptor(self, *, constant: int = 1, extra: int = 0) -> int:
        """Its shared memory descriptor; the start counts from the image."""
        return (
            self.start >> 4
            | (self.leading >> 4) << 16
            | (self.stride >> 4) << 32
            | constant << 46
            | self.swizzle << 61
            | extra
        )

    def put(self, image: Bytes, rows: Bytes) -> None:
        """Write rows of 32 bytes where the hardware reads them."""
        width = WIDTHS[self.swizzle]
        for row, data in enumerate(rows):
            for byte, value in enumerate(data):
                group = self.start + row // 8 * self.stride
                if width == 0:
                    at = group + row % 8 * 16 + byte // 16 * self.leading + byte % 16
                else:
                    at = group + row % 8 * width + byte
                    unit = (at >> 7) & {128: 7, 64: 3, 32: 1}[width]
                    at ^= unit << 4
                image[at] = value


def put_scales(image: Bytes, start: int, scales: Bytes) -> None:
    """Write the scales of 128 rows and four blocks as one 512-byte atom."""
    for row in range(128):
        for block in range(4):
            image[start + row % 32 * 16 + row // 32 * 4 + block] = scales[row, block]


def scales_descriptor(start: int) -> int:
    """Descriptor of an atom for tcgen05.cp."""
    return Tile(start, swizzle=0, leading=0, stride=128).descriptor()


def products(a: Bytes, b: Bytes, scales_a: Bytes, scales_b: Bytes) -> NDArray[np.float64]:
    """Every product of K = 64, exact: [m, n, k]."""
    left = E2M1[codes(a)] * UE4M3[scales_a].repeat(16, axis=1)
    right = E2M1[codes(b)] * UE4M3[scales_b].repeat(16, axis=1)
    exact: NDArray[np.float64] = left[:, None, :] * right[None, :, :]
    return exact


def add_in_order(old: NDArray[np.float32], terms: NDArray[np.float64]) -> NDArray[np.float32]:
    """fp32 sum in order of k."""
    total = old.copy()
    for k in range(terms.shape[2]):
        total = (total.astype(np.float64) + terms[:, :, k]).astype(np.float32)
    return total


def scale_parts(code: int, ue8m0: bool) -> tuple[Fraction, int]:
    """Mantissa and exponent of a scale; a subnormal keeps the least exponent, zero has none."""
    if ue8m0:
        return Fraction(1), code - 127
    code &= 127
    if code == 0:
        return Fraction(0), -126
    return (Fraction(code, 8), -6) if code < 8 else (Fraction(8 + code % 8, 8), code // 8 - 7)


def hardware_element(
    old: int,
    a: list[int],
    b: list[int],
    scales_a: list[int],
    scales_b: list[int],
    *,
    ue8m0: bool = False,
) -> int:
    """One element as the tensor core rounds it, in rationals; fp32 bits in and out.

    Terms, the old value among them, are cut to 35 fractional bits of the largest exponent, added,
    and the sum is cut to fp32.
    """
    mask, nan = (255, 255) if ue8m0 else (127, 127)
    if any(scale & mask == nan for scale in scales_a + scales_b):
        return 0x7FFFFFFF
    terms = []
    for block in range(4):
        dot = sum(
            Fraction(E2M1[a[i]]) * Fraction(E2M1[b[i]]) for i in range(16 * block, 16 * block + 16)
        )
        left, right = (scale_parts(each[block], ue8m0) for each in (scales_a, scales_b))
        terms.append((dot * left[0] * right[0], left[1] + right[1]))
    field, mantissa = old >> 23 & 255, old & 0x7FFFFF
    value = Fraction(mantissa + (0x800000 if field else 0), 1 << 23)
    if field == 255:
        raise ValueError("an infinite or undefined old value")
    terms.append((-value if old >> 31 else value, max(field, 1) - 127))
    largest = max(exponent for _, exponent in terms)
    total = Fraction(0)
    for value, exponent in terms:
        units = value * Fraction(2) ** (exponent - largest + 35)
        total += Fraction(int(units), 1 << 35)  # int() truncates toward zero
    return to_fp32_truncated(total * Fraction(2) ** largest)


def to_fp32_truncated(value: Fraction) -> int:
    """fp32 bits of a rational, truncated toward zero; zero is +0."""
    if value == 0:
        return 0
    sign, value = (1 << 31 if value < 0 else 0), abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent = max(exponent - (value < Fraction(2) ** exponent), -126)
    units = int(value / Fraction(2) ** (exponent - 23))
    if units < 1 << 23:
        return sign | units
    return sign | (exponent + 126 << 23) + units


class ProgramArguments(ctypes.Structure):
    """``Program`` of tensor_kernels.cu."""

    _fields_ = (
        ("image", ctypes.c_void_p),
        ("operations", ctypes.c_void_p),
        ("fill", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("operation_count", ctypes.c_uint32),
        ("commits", ctypes.c_uint32),
        ("columns", ctypes.c_uint32),
        ("load_column", ctypes.c_uint32),
        ("store_column", ctypes.c_uint32),
        ("loads", ctypes.c_uint32),
        ("shape", ctypes.c_int32),
        ("fault", ctypes.c_int32),
    )


@dataclass
class Program:
    """What one launch of the interpreting kernel does.

    Attributes:
        image: Shared memory of each CTA.
        operations: By whom asked for: kind, then the fields by name.
        fill: What tensor memory is filled with before, [CTAs, 128, columns].
        columns: Allocated.
        shape: 0, 1 or 2 for loads of 32x32b, 16x64b and 16x256b; 11 and 12 for the upper half.
    """

    image: Bytes = field(default_factory=lambda: np.zeros(IMAGE_BYTES, np.uint8))
    operations: list[dict[str, int]] = field(default_factory=list)
    fill: Words | None = None
    columns: int = 512
    load_column: int = 0
    store_column: int = 0
    loads: int = 1
    shape: int = 0

    def copy(self, d: int, source: int) -> None:
        """Append a tcgen05.cp."""
        self.operations.append({"kind": COPY, "d": d, "a": source})

    def multiply(self, **fields: int) -> None:
        """Append a tcgen05.mma."""
        self.operations.append({"kind": MULTIPLY, **fields})

    def commit(self) -> None:
        """Append a tcgen05.commit, to the next barrier."""
        earlier = sum(each["kind"] == COMMIT for each in self.operations)
        self.operations.append({"kind": COMMIT, "d": earlier})

    def run(self, of: Any, fault: str = "right") -> tuple[str, Words]:
        """The launch's message and what the threads loaded: [CTAs, loads, 128, 16]."""
        ctas = self.image.size // IMAGE_BYTES
        table = np.zeros(max(len(self.operations), 1), OPERATION)
        for row, fields in zip(table, self.operations, strict=False):
            for name, value in fields.items():
                row[name] = value
        out = np.zeros((ctas, self.loads, LANES, REGISTERS), np.uint32)
        arguments = ProgramArguments(
            self.image.ctypes.data,
            table.ctypes.data,
            None if self.fill is None else self.fill.ctypes.data,
            out.ctypes.data,
            len(self.operations),
            sum(fields["kind"] == COMMIT for fields in self.operations),
            self.columns,
            self.load_column,
            self.store_column,
            self.loads,
            self.shape,
            FAULTS.index(fault),
        )
        of.register(self.image, "image")
        of.register(table, "operations")
        if self.fill is not None:
            of.register(self.fill, "fill")
        of.register(out, "out", writable=True)
        message = ctypes.create_string_buffer(256)
        of.lib.run_program(ctypes.byref(arguments), int(ctas == 2), message)
        return message.value.decode(), out


def accumulator(out: Words, n: int) -> Words:
    """D of a CTA from its 32x32b loads: [128, n]."""
    loads, lanes, registers = out.shape
    return out.transpose(1, 0, 2).reshape(lanes, loads * registers)[:, :n]


# Where the operands of a simple product are: A and B by tiles, scales behind them.
A, B, SCALES = 0, 32 * 1024, 80 * 1024
SFA, SFB = 256, 288  # columns


class Operands:
    """Random operands of K = 64 · steps, and their exact products."""

    def __init__(self, n: int, steps: int = 1, seed: int = 0, rows: int = 128) -> None:
        random = np.random.default_rng(seed)
        shape = (steps, 32)
        self.n = n
        self.a = random.integers(0, 256, (rows, *shape), np.uint8)
        self.b = random.integers(0, 256, (n, *shape), np.uint8)
        # Scales of two rows or blocks differ mostly; the rest of an atom holds NaN.
        self.scales_a = random.integers(0x28, 0x48, (rows, steps, 4), np.uint8)
        self.scales_b = np.full((-(-n // 128) * 128, steps, 4), 0x7F, np.uint8)
        self.scales_b[:n] = random.integers(0x28, 0x48, (n, steps, 4), np.uint8)

    def sums(self, old: Any = None, rows: slice = slice(None)) -> Any:
        """fp32 bits of D."""
        a = self.a[rows]
        total = np.zeros((len(a), self.n), np.float32) if old is None else old
        for step in range(a.shape[1]):
            terms = products(
                a[:, step],
                self.b[:, step],
                self.scales_a[rows, step],
                self.scales_b[: self.n, step],
            )
            total = add_in_order(total, terms)
        return total.view(np.uint32)


def simple(
    operands: Operands, *, accumulate: bool = False, d: int = 0, extra: int = 0, m: int = 128
) -> Program:
    """A launch of one product with 128-byte swizzled tiles."""
    n = operands.n
    steps = operands.a.shape[1]
    program = Program(loads=-(-n // REGISTERS), load_column=d)
    for step in range(steps):
        Tile(A + 32 * step).put(program.image, operands.a[:, step])
        Tile(B + 32 * step).put(program.image, operands.b[:, step])
        atoms = 1 + -(-n // 128)
        at = SCALES + step * atoms * 512
        put_scales(program.image, at, operands.scales_a[:, step])
        program.copy(SFA + 4 * step, scales_descriptor(at))
        for block in range(atoms - 1):
            rows = slice(128 * block, 128 * block + 128)
            put_scales(program.image, at + 512 * (block + 1), operands.scales_b[rows, step])
            program.copy(SFB + 8 * step + 4 * block, scales_descriptor(at + 512 * (block + 1)))
        program.multiply(
            d=d,
            a=Tile(A + 32 * step).descriptor(),
            b=Tile(B + 32 * step).descriptor(),
            instruction=instruction(n, m, extra=extra),
            scales_a=SFA + 4 * step,
            scales_b=SFB + 8 * step,
            accumulate=int(accumulate or step > 0),
        )
    program.commit()
    return program


def kinds(of: Any) -> set[str]:
    """Classes of the findings."""
    return {each["class"] for each in of.findings()}


def pair(operands: Operands) -> Program:
    """One product with M = 256: each CTA has its rows of A and half of B's."""
    n = operands.n
    program = Program(image=np.zeros(2 * IMAGE_BYTES, np.uint8), loads=-(-n // REGISTERS))
    atoms = -(-n // 128)
    for rank in range(2):
        image = program.image[rank * IMAGE_BYTES :][:IMAGE_BYTES]
        rows = slice(128 * rank, 128 * rank + 128)
        Tile(A).put(image, operands.a[rows, 0])
        Tile(B).put(image, operands.b[n // 2 * rank : n // 2 * (rank + 1), 0])
        put_scales(image, SCALES, operands.scales_a[rows, 0])
        for block in range(atoms):
            own = slice(128 * block, 128 * block + 128)
            put_scales(image, SCALES + 512 * (block + 1), operands.scales_b[own, 0])
    program.copy(SFA, scales_descriptor(SCALES))
    for block in range(atoms):
        program.copy(SFB + 4 * block, scales_descriptor(SCALES + 512 * (block + 1)))
    program.multiply(
        a=Tile(A).descriptor(),
        b=Tile(B).descriptor(),
        instruction=instruction(n, 256),
        scales_a=SFA,
        scales_b=SFB,
    )
    program.commit()
    return program


def bits(values: Any) -> Any:
    """fp32 as integers."""
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def pointer(array: Any) -> ctypes.c_void_p:
    """An array's address, for ctypes."""
    return ctypes.c_void_p(array.ctypes.data)


def call(of: Any, name: str, *arguments: Any) -> str:
    """The message of an entry point of the test's library; empty if it succeeded."""
    message = ctypes.create_string_buffer(256)
    getattr(of.lib, name)(*arguments, message)
    return message.value.decode()
