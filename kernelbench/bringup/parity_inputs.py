"""Inputs of the parity cases, random from a seed; the layouts are those of the ``.cu`` files."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kernelbench.bringup.parity_runner import ParityCase, Words

#: As ``TensorMapElement``: number -> bytes.
ELEMENTS = {
    "u8": (0, 1), "u16": (1, 2), "u32": (2, 4), "s32": (3, 4), "u64": (4, 8), "s64": (5, 8),
    "f16": (6, 2), "f32": (7, 4), "f32ftz": (8, 4), "f64": (9, 8), "bf16": (10, 2),
}  # fmt: skip
#: As ``TensorMapSwizzle``: number -> bytes of a row at most.
SWIZZLES = {0: 256, 1: 32, 2: 64, 3: 128}
DATA_WORDS = 1024  # where a tensor's data starts
CHANGE_WORD = 512


def words(rng: np.random.Generator, count: int) -> Words:
    """Uniform random 32-bit words."""
    return rng.integers(0, 2**32, count, dtype=np.uint32)


# ---- Threads


def thread_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Every case of ``parity_threads.cu``."""
    script = mbarrier_script(rng, 400)
    floats = conversion_inputs(rng)
    cases = {
        "identities": (bytes(4), 12 * 96 * 13 * 4),
        "cluster_identities": (bytes(4), 8 * 96 * 13 * 4),
        "exchanges": (words(rng, 66).tobytes(), 32 * 12 * 4),
        "named_barriers": (words(rng, 256).tobytes(), 1024),
        "mbarrier_script": (script.tobytes(), int(script[1]) * 16),
        "conversions": (floats.tobytes(), (3 * floats.size // 2 + 2 * 65536) * 4),
        "reductions": (words(rng, 128 * 16).tobytes(), 64 * 4),
        "counters": (words(rng, 128).tobytes(), (16 + 128) * 4),
        "thread_copies": (words(rng, 148).tobytes(), (73 + 68) * 4),
        "dependent_launch": (words(rng, 1024).tobytes(), 8192),
        "relay": (words(rng, 16).tobytes(), 64),
        "register_counts": (words(rng, 384).tobytes(), 384 * 4),
    }
    return {name: ParityCase(name, given, size) for name, (given, size) in cases.items()}


def conversion_inputs(rng: np.random.Generator) -> Words:
    """Floats of every exponent, and the neighbourhood of every half and e4m3: ties among them."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    near = halves.view(np.uint32)[:, None] + np.array(
        [0, 1, 0xFFFFFFFF, 0x1000, 0xFFF, 0x1001, 0x8000, 0x80000, 0x7FFFF, 0x80001], np.uint32
    )
    special = np.array(
        [0, 0x80000000, 1, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7F800001, 0x43E00000,
         0x43E80000, 0x43E80001, 0x477FF000, 0x477FEFFF], np.uint32,
    )  # fmt: skip
    found = np.concatenate([near.ravel(), words(rng, 60000), special, special[::-1]])
    return found[: found.size // 2 * 2]


# As ``enum Operation``.
_ARRIVE, _DROP, _EXPECT, _COMPLETE, _ARRIVE_EXPECT = 0, 1, 2, 3, 4
_REMOTE = {0: (0, 5, 6), 2: (2, 7), 3: (3, 8), 4: (4, 9), 1: (1,)}


def mbarrier_script(rng: np.random.Generator, count: int) -> Words:
    """A first count, and operations that are legal in their order (PTX ISA 9.1, 9.7.13.15)."""
    expected = pending = int(rng.integers(3, 9))
    tx = 0
    script = [expected, count]
    while len(script) < 2 + 2 * count:
        options = []
        # A last arrival while bytes are owed the wrong way round could never be made good.
        most = pending if tx >= 0 else pending - 1
        if most > 0:
            options += [_ARRIVE, _ARRIVE]
            if expected > 2:
                options.append(_DROP)
        if pending > 1 or (pending == 1 and tx >= 0):
            options.append(_ARRIVE_EXPECT)
        if pending > 0:
            options.append(_EXPECT)
        if pending > 0 or tx > 0:
            options += [_COMPLETE] * (1 if pending else 4)
        operation = int(rng.choice(options))
        argument = int(rng.integers(1, 5000))
        if operation == _ARRIVE:
            argument = int(rng.integers(1, most + 1))
            pending -= argument
        elif operation == _DROP:
            expected, pending = expected - 1, pending - 1
        elif operation == _EXPECT:
            tx += argument
        elif operation == _COMPLETE:
            if pending == 0:
                argument = min(argument, tx)
            tx -= argument
        else:
            # As one operation: the arrival must not be the last of a phase that owes bytes.
            if pending == 1 and tx + argument < 0:
                argument = -tx
            tx += argument
            pending -= 1
        if pending == 0 and tx == 0:
            pending = expected
        script += [int(rng.choice(_REMOTE[operation])), argument]
    return np.array(script, np.uint32)


# ---- Tensors


@dataclass(frozen=True)
class Tensor:
    """The header of ``parity_tma.cu``."""

    element: str
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    hint: int = 0
    box_bytes: int = 0

    @property
    def bytes_of_box(self) -> int:
        return self.box_bytes or int(np.prod(self.box)) * ELEMENTS[self.element][1]

    @property
    def bytes_of_data(self) -> int:
        return self.strides[len(self.dims) - 2] * self.dims[-1]

    def header(self, corners: npt.NDArray[np.int64]) -> Words:
        """The words before the data, with the corner of each box."""

        def padded(values: tuple[int, ...], count: int, fill: int) -> list[int]:
            return [*values, *[fill] * (count - len(values))]

        found = np.zeros(DATA_WORDS, np.uint32)
        row = [ELEMENTS[self.element][0], len(self.dims), *padded(self.dims, 4, 1)]
        row += [*padded(self.strides, 3, 16), *padded(self.box, 4, 1)]
        row += [self.swizzle, self.bytes_of_box, self.hint, len(corners)]
        found[: len(row)] = row
        flat = np.zeros((len(corners), 4), np.int32)
        flat[:, : corners.shape[1]] = corners
        found[len(row) : len(row) + flat.size] = flat.ravel().view(np.uint32)
        return found


def load_case(
    rng: np.random.Generator, tensor: Tensor, count: int = 12, shift: int = 0
) -> ParityCase:
    """Boxes at random corners, some partly and some wholly outside."""
    low = [-box for box in tensor.box]
    high = [dim + 2 for dim in tensor.dims]
    corners = rng.integers(low, high, (count, len(tensor.dims)))
    # A box starts at a multiple of 16 bytes, or the GPU traps.
    unit = max(16 // ELEMENTS[tensor.element][1], 1)
    corners[:, 0] = corners[:, 0] // unit * unit + shift
    corners[0, 1:] = 0
    data = words(rng, tensor.bytes_of_data // 4 + 64)
    given = np.concatenate([tensor.header(corners), data])
    return ParityCase("tensor_loads", given.tobytes(), count * tensor.bytes_of_box)


def store_case(rng: np.random.Generator, tensor: Tensor) -> ParityCase:
    """Boxes that do not overlap, the last of each dimension partly outside."""
    axes = [np.arange(0, dim, box) for dim, box in zip(tensor.dims, tensor.box, strict=True)]
    corners = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))
    corners = rng.permutation(corners)[:48]
    data = words(rng, len(corners) * tensor.bytes_of_box // 4)
    given = np.concatenate([tensor.header(corners), data])
    return ParityCase("tensor_stores", given.tobytes(), tensor.bytes_of_data)


def tensors(rng: np.random.Generator) -> dict[str, Tensor]:
    """Each swizzle and each element type, in two and three dimensions."""
    found = {}
    for swizzle, row in SWIZZLES.items():
        inner = row if swizzle else 176
        found[f"2d-swizzle{swizzle}"] = Tensor(
            "u8", (int(rng.integers(row, 300)), 70), (304,), (inner, 24), swizzle
        )
        found[f"3d-swizzle{swizzle}"] = Tensor(
            "u8", (int(rng.integers(row, 300)), 19, 5), (304, 304 * 19), (inner, 8, 3), swizzle
        )
    found["4d-swizzle3"] = Tensor("u8", (200, 9, 2, 5), (208, 208 * 9, 208 * 18), (128, 4, 2, 3), 3)
    for hint in (1, 2):
        found[f"4d-hint{hint}"] = replace(found["4d-swizzle3"], hint=hint)
        found[f"2d-hint{hint}"] = replace(found["2d-swizzle3"], hint=hint)
        found[f"3d-hint{hint}"] = replace(found["3d-swizzle3"], hint=hint)
    for element, (_, size) in ELEMENTS.items():
        row = 128 // size
        found[f"2d-{element}"] = Tensor(element, (row * 2 - 3, 21), (256,), (row // 2, 8), 2)
    return found


# As ``enum Field``: name -> (number, value, what the copies then look like).
BASE = Tensor("u8", (128, 40), (128,), (64, 8))
HALVES = Tensor("f16", (64, 40), (128,), (32, 8))
CHANGES = {
    "nothing": (0, 0, BASE),
    "address": (1, 1024, BASE),
    "rank": (2, 1, BASE),
    "box0": (3, 32, replace(BASE, box_bytes=32 * 8)),
    "box1": (4, 16, replace(BASE, box_bytes=64 * 16)),
    "dim0": (5, 100, BASE),
    "dim1": (6, 20, BASE),
    "stride0": (7, 256, replace(BASE, dims=(128, 20))),
    "element-stride1": (8, 2, replace(BASE, box_bytes=64 * 4)),
    "element": (9, 1, replace(BASE, box_bytes=128 * 8)),
    "interleave": (10, 0, BASE),
    "swizzle": (11, 3, replace(BASE, box=(128, 8))),
    "fill": (12, 1, HALVES),
}


def change(rng: np.random.Generator, name: str, in_global: bool) -> ParityCase:
    """Loads with a map that the device has changed."""
    field, value, tensor = CHANGES[name]
    corners = rng.integers([-16, -6], [128, 44], (8, 2))
    corners[:, 0] = corners[:, 0] // 16 * 16
    header = tensor.header(corners)
    header[CHANGE_WORD : CHANGE_WORD + 3] = field, value, int(in_global)
    given = np.concatenate([header, words(rng, 4096)])
    return ParityCase("changed_map", given.tobytes(), 8 * tensor.bytes_of_box)


def copy_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Every case of ``parity_tma.cu`` with the maps as the host encodes them."""
    found = {}
    for name, tensor in tensors(rng).items():
        found[f"load-{name}"] = load_case(rng, tensor)
        if tensor.hint < 2 and len(tensor.dims) < 4:
            found[f"store-{name}"] = store_case(rng, tensor)
    found["bulk"] = ParityCase("bulk_copies", words(rng, 2048).tobytes(), (1028 + 1020) * 4)
    return found


def change_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Every field changed on the device, in shared and in global memory."""
    places = {"shared": False, "global": True}
    return {
        f"{name}-{place}": change(rng, name, in_global)
        for name in CHANGES
        for place, in_global in places.items()
    }


def cluster_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Every case of ``parity_clusters.cu``."""
    return {
        "memory": ParityCase("peer_memory", words(rng, 256).tobytes(), 4 * 64 * 6 * 4),
        "copies": ParityCase("peer_copies", words(rng, 4096).tobytes(), 4 * 2048 * 4),
        "reuse": ParityCase("peer_reuse", words(rng, 4096).tobytes(), 4 * 1024 * 4),
        "multicasts": ParityCase("multicasts", words(rng, 10240).tobytes(), 10 * 2048 * 4),
    }
