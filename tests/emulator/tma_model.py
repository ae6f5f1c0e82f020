"""What the tests of TMA, tensor maps and cp.async share: a model of a box, and typed calls."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

U8, U16, U32, F16, F32, BF16 = 0, 1, 2, 6, 7, 10
ELEMENT_BYTES = {U8: 1, U16: 2, U32: 4, F16: 2, F32: 4, BF16: 2}
NONE, SW32, SW64, SW128 = range(4)
UNTOUCHED = 0xCD

(
    RIGHT,
    NO_EXPECT,
    NO_WAIT,
    NO_ACQUIRE,
    NO_SYNC_BEFORE_ACQUIRE,
    NO_RELEASE,
    EARLY_WRITE,
    NO_COMMIT,
    NO_FENCE,
    SHARED_MAP,
    EARLY_READ,
    NO_READ_WAIT,
    GROUP_ALONE,
) = range(13)

NO_SWIZZLE, SWIZZLE_RELATIVE, SWIZZLE_ROW_BIT = 1, 2, 3  # broken facts


class TileStruct(ctypes.Structure):
    """``kb::rt::TensorMapTile``."""

    _fields_ = (
        ("element", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("address", ctypes.c_void_p),
        ("dims", ctypes.c_uint64 * 5),
        ("strides", ctypes.c_uint64 * 4),
        ("box", ctypes.c_uint32 * 5),
        ("swizzle", ctypes.c_uint32),
    )


class BoxStruct(ctypes.Structure):
    """``Box`` of tma_kernels.cu."""

    _fields_ = (
        ("rank", ctypes.c_uint32),
        ("at", ctypes.c_int32 * 4),
        ("offset", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("variant", ctypes.c_uint32),
    )


def aligned(size: int, fill: int = 0xFF, alignment: int = 128) -> Bytes:
    """A byte array whose address is a multiple of ``alignment``."""
    memory = np.full(size + alignment, fill, np.uint8)
    start = -memory.ctypes.data % alignment
    return memory[start : start + size]


@dataclass
class Tile:
    """A tensor and its box, with a model of what a copy of the box does."""

    memory: Bytes
    element: int
    dims: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    swizzle: int = NONE
    element_strides: Sequence[int] = field(default=(1, 1, 1, 1, 1))

    @property
    def counts(self) -> list[int]:
        steps = [1, *self.element_strides[1:]]
        return [-(-extent // step) for extent, step in zip(self.box, steps, strict=False)]

    @property
    def bytes(self) -> int:
        return int(np.prod(self.counts)) * ELEMENT_BYTES[self.element]

    def struct(self) -> TileStruct:
        def padded(values: Sequence[int], size: int) -> tuple[int, ...]:
            return tuple(values) + (0,) * (size - len(values))

        return TileStruct(
            self.element,
            len(self.dims),
            self.memory.ctypes.data,
            padded(self.dims, 5),
            padded(self.strides, 4),
            padded(self.box, 5),
            self.swizzle,
        )

    def elements(self, at: Sequence[int], offset: int) -> list[tuple[list[int], int]]:
        """For each element of the box: its coordinates, and its byte in shared memory."""
        size = ELEMENT_BYTES[self.element]
        # A row takes the swizzle's width even if it is narrower.
        pitch = 16 << self.swizzle if self.swizzle else self.counts[0] * size
        pairs: list[tuple[list[int], int]] = []
        # The last dimension is the slowest in shared memory.
        for number, index in enumerate(itertools.product(*(range(c) for c in self.counts[::-1]))):
            where = [
                a + i * (step if d else 1)
                for d, (a, i, step) in enumerate(
                    zip(at, index[::-1], self.element_strides, strict=False)
                )
            ]
            row, column = divmod(number, self.counts[0])
            address = offset + row * pitch + column * size
            # The 16-byte piece's number within the swizzle's width, exclusive-or the number of the
            # 128-byte line.
            line = address // 128 % (1 << self.swizzle)
            pairs.append((where, address ^ line * 16))
        return pairs

    def place(self, where: Sequence[int]) -> int:
        """The element's byte in the tensor's memory."""
        return where[0] * ELEMENT_BYTES[self.element] + sum(
            w * s for w, s in zip(where[1:], self.strides, strict=True)
        )

    def load(self, at: Sequence[int], offset: int, shared: Bytes, fill: int = 0) -> Bytes:
        """Shared memory after a load; ``fill``: what the bytes of elements outside are, a pair."""
        size = ELEMENT_BYTES[self.element]
        result = shared.copy()
        for where, to in self.elements(at, offset):
            inside = all(0 <= w < extent for w, extent in zip(where, self.dims, strict=True))
            for byte in range(size):
                outside = fill >> 8 * (byte % 2) & 0xFF
                result[to + byte] = self.memory[self.place(where) + byte] if inside else outside
        return result

    def store(self, at: Sequence[int], offset: int, shared: Bytes) -> Bytes:
        """The tensor's memory after a store, whose rows end on multiples of 16 bytes."""
        size = ELEMENT_BYTES[self.element]
        extents = [-(-self.dims[0] * size // 16) * 16 // size, *self.dims[1:]]
        result = self.memory.copy()
        for where, source in self.elements(at, offset):
            if all(w < extent for w, extent in zip(where, extents, strict=True)):
                to = self.place(where)
                result[to : to + size] = shared[source : source + size]
        return result


def tile(
    element: int,
    dims: Sequence[int],
    box: Sequence[int],
    swizzle: int = NONE,
    *,
    pitch: int = 0,
    seed: int = 1,
) -> Tile:
    """A tile of a packed tensor of random bytes, its rows padded to a multiple of 16 bytes."""
    row = (dims[0] * ELEMENT_BYTES[element] + 15) // 16 * 16 + pitch
    strides = [row * int(np.prod(dims[1:d])) for d in range(1, len(dims))]
    memory = aligned(row * int(np.prod(dims[1:])))
    memory[:] = np.random.default_rng(seed).integers(0, 256, memory.size, np.uint8)
    return Tile(memory, element, dims, strides, box, swizzle)


class Kernels:
    """The library of tma_kernels.cu with typed calls."""

    def __init__(self, emulation: Any) -> None:
        self.emulation = emulation
        self.lib = emulation.lib

    def call(self, name: str, *arguments: Any, fails: bool = False) -> str:
        """Calls; returns the message, empty when right."""
        message = ctypes.create_string_buffer(512)
        places = [
            a.ctypes.data_as(ctypes.c_void_p) if hasattr(a, "ctypes") else a for a in arguments
        ]
        status = getattr(self.lib, name)(message, *places)
        text = message.value.decode()
        assert (status != 0) == fails, text
        return text

    def encode(self, tile: Tile) -> Bytes:
        image = aligned(128)
        self.call("encode", ctypes.byref(tile.struct()), image)
        return image

    def classes(self) -> list[str]:
        return [finding["class"] for finding in self.emulation.findings()]

    def one(self, kind: str) -> dict[str, Any]:
        """The findings are of one kind; the first one."""
        findings = self.emulation.findings()
        assert findings, "no finding"
        assert {finding["class"] for finding in findings} == {kind}, findings
        return dict(findings[0])

    def load(
        self,
        tile: Tile,
        at: Sequence[int],
        *,
        offset: int = 0,
        fault: int = RIGHT,
        size: int = 32 * 1024,
        fails: bool = False,
        variant: int = 0,
    ) -> Bytes:
        out = aligned(size, 0)
        self.emulation.register(tile.memory, "tensor")
        self.emulation.register(out, "out", writable=True)
        box = box_of(tile, at, offset, variant)
        self.call("run_load", self.encode(tile), ctypes.byref(box), out, size, fault, fails=fails)
        return out


def box_of(tile: Tile, at: Sequence[int], offset: int = 0, variant: int = 0) -> BoxStruct:
    return BoxStruct(len(at), (ctypes.c_int32 * 4)(*at), offset, tile.bytes, variant)


def run_store(
    run: Kernels,
    tile: Tile,
    at: Sequence[int],
    offset: int = 0,
    fault: int = RIGHT,
    fails: bool = False,
    variant: int = 0,
) -> None:
    data = aligned(32 * 1024)
    data[:] = np.random.default_rng(4).integers(0, 256, data.size, np.uint8)
    before = tile.memory.copy()
    run.emulation.register(tile.memory, "tensor", writable=True)
    run.emulation.register(data, "in")
    struct = box_of(tile, at, offset, variant)
    arguments = (run.encode(tile), ctypes.byref(struct), data, data.size, fault)
    try:
        run.call("run_store", *arguments, fails=fails)
        if fault == RIGHT and not fails:
            store, tile.memory[:] = tile.memory.copy(), before
            want = tile.store(at, offset, data)
            tile.memory[:] = store
            assert np.array_equal(tile.memory, want)
            assert run.classes() == []
    finally:
        tile.memory[:] = before
