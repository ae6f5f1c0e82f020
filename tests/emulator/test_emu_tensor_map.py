"""Tensor maps in the emulator: encoding, replacing fields, what the tensormap proxy sees."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tma_model import (
    BF16,
    F16,
    F32,
    GROUP_ALONE,
    NO_ACQUIRE,
    NO_READ_WAIT,
    NO_RELEASE,
    NO_SYNC_BEFORE_ACQUIRE,
    NONE,
    RIGHT,
    SW32,
    SW64,
    U8,
    U16,
    Bytes,
    Kernels,
    Tile,
    aligned,
    box_of,
    tile,
)


@pytest.fixture
def kernels(emulated: Callable[..., Any]) -> Callable[..., Kernels]:
    return lambda **options: Kernels(emulated("tensor_map_kernels.cu", **options))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rank": 0}, "tensorRank is 0"),
        ({"rank": 6}, "tensorRank is 6"),
        ({"address": 8}, "globalAddress"),
        ({"dims": (0, 16)}, "globalDim[0] is 0"),
        ({"dims": (16, 2**33)}, "globalDim[1]"),
        ({"strides": (24,)}, "globalStrides[0] is 24"),
        ({"strides": (2**40,)}, "globalStrides[0]"),
        ({"box": (256, 257)}, "boxDim[1] is 257"),
        ({"box": (24, 4)}, "boxDim[0] is 24 bytes"),
        ({"swizzle": SW64, "box": (128, 4)}, "at most 64"),
        ({"swizzle": 7}, "swizzle"),
        ({"element": 99}, "element"),
    ],
)
def test_encoding_refuses(
    kernels: Callable[..., Kernels], change: dict[str, Any], says: str
) -> None:
    run = kernels()
    struct = tile(U8, (128, 16), (128, 16)).struct()
    for name, value in change.items():
        kept = getattr(struct, name)
        if isinstance(value, tuple):
            for i, each in enumerate(value):
                kept[i] = each
        else:
            setattr(struct, name, value)
    message = run.call("encode", ctypes.byref(struct), aligned(128), fails=True)
    assert message.startswith("cuTensorMapEncodeTiled: ")
    assert says in message
    assert "\n" not in message


def replaced(base: Tile, number: int) -> tuple[int, Tile]:
    """The value that replaces field ``number`` of ``replace`` in tma_kernels.cu, and the result."""
    other = aligned(base.memory.size)
    other[:] = 255 - base.memory
    changes: list[tuple[int, Tile]] = [
        (other.ctypes.data, Tile(other, U8, base.dims, base.strides, base.box, base.swizzle)),
        (1, base),
        (8, Tile(base.memory, U8, base.dims, base.strides, (base.box[0], 8), base.swizzle)),
        (40, Tile(base.memory, U8, (40, base.dims[1]), base.strides, base.box, base.swizzle)),
        (64, Tile(base.memory, U8, base.dims, (64,), base.box, base.swizzle)),
        (
            3,
            Tile(base.memory, U8, base.dims, base.strides, base.box, base.swizzle, (1, 3, 1, 1, 1)),
        ),
        (0, Tile(base.memory, U16, base.dims, base.strides, base.box, base.swizzle)),
        (0, base),
        (0, Tile(base.memory, U8, base.dims, base.strides, base.box, SW32)),
        (0, base),
    ]
    return changes[number]


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("use_first", [False, True], ids=["fresh", "used"])
@pytest.mark.parametrize("number", range(10))
def test_replacing_a_field(
    kernels: Callable[..., Kernels], number: int, use_first: bool, check: bool
) -> None:
    run = kernels(check=check, seed=number)
    base = tile(U8, (64, 64), (32, 16), NONE if number in (6, 8) else SW32)
    value, changed = replaced(base, number)
    out, _ = run_replace(run, base, changed, number, value, use_first)
    want = changed.load((16, 5), 1024, out)
    assert np.array_equal(out[1024 : 1024 + changed.bytes], want[1024 : 1024 + changed.bytes])
    assert run.classes() == []


@pytest.mark.parametrize("element", [F16, BF16, F32])
def test_filling_with_nan(kernels: Callable[..., Kernels], element: int) -> None:
    run = kernels()
    base = tile(element, (20, 9), (16, 16))
    out, _ = run_replace(run, base, base, 10, 0, False)
    want = base.load((16, 5), 1024, out, fill=0x7FF7)
    assert np.array_equal(out[1024 : 1024 + base.bytes], want[1024 : 1024 + base.bytes])
    assert np.isnan(want[1024 : 1024 + base.bytes].view(np.float16)).any()


def run_replace(
    run: Kernels,
    base: Tile,
    changed: Tile,
    number: int,
    value: int,
    use_first: bool,
    fault: int = RIGHT,
) -> tuple[Bytes, Bytes]:
    """What the second box left in shared memory, and the map in global memory at the end."""
    run.emulation.register(base.memory, "tensor")
    if changed.memory is not base.memory:
        run.emulation.register(changed.memory, "another tensor")
    template = run.encode(base)
    in_global = template.copy() if use_first else aligned(128)
    placed = aligned(128)
    placed[:] = in_global
    out = aligned(8192, 0)
    run.emulation.register(placed, "maps", writable=True)
    run.emulation.register(out, "out", writable=True)
    struct = box_of(base, (16, 5), 1024)
    run.call(
        "run_replace",
        template,
        placed,
        ctypes.byref(struct),
        changed.bytes,
        number,
        ctypes.c_uint64(value),
        int(use_first),
        out,
        out.size,
        fault,
    )
    return out, placed


def test_a_map_that_was_not_acquired(kernels: Callable[..., Kernels]) -> None:
    """It is a finding, and the copy uses the map as its CTA last saw it."""
    base = tile(U8, (64, 64), (32, 16))
    value, changed = replaced(base, 0)
    for use_first, source in ((True, base), (False, changed)):
        run = kernels(check=True, seed=1)
        out, _ = run_replace(run, base, changed, 0, value, use_first, NO_ACQUIRE)
        finding = run.one("tensor-map-proxy")
        assert "acquire" in finding["text"]
        assert finding["line"] is not None
        assert finding["other_line"] is not None
        want = source.load((16, 5), 1024, out)
        assert np.array_equal(out[1024:1536], want[1024:1536])


def test_a_map_changed_under_a_copy(kernels: Callable[..., Kernels]) -> None:
    base = tile(U8, (64, 64), (32, 16))
    value, changed = replaced(base, 0)
    for seed in range(4):
        run = kernels(check=True, seed=seed)
        run_replace(run, base, changed, 0, value, True, NO_READ_WAIT)
        assert "may not have read" in run.one("overwrite")["text"]


def test_a_group_that_covers_loads_is_an_assumption(kernels: Callable[..., Kernels]) -> None:
    """A group is of copies that complete in it; a load completes on its mbarrier."""
    base = tile(U8, (64, 64), (32, 16))
    value, changed = replaced(base, 0)
    for fault, assumed in ((RIGHT, []), (GROUP_ALONE, ["groups-cover-loads"])):
        run = kernels(check=True, seed=1)
        run_replace(run, base, changed, 0, value, True, fault)
        assert run.classes() == []
        assert run.emulation.report()["assumptions"] == assumed


@pytest.mark.parametrize(
    ("fault", "user", "says"),
    [
        (RIGHT, 0, ""),
        (RIGHT, 5, ""),
        (NO_RELEASE, 5, "not released"),
        (NO_SYNC_BEFORE_ACQUIRE, 5, "not acquired"),
    ],
)
def test_replacing_in_global_memory(
    kernels: Callable[..., Kernels], fault: int, user: int, says: str
) -> None:
    base = tile(U8, (64, 64), (32, 16))
    other = aligned(base.memory.size)
    other[:] = 255 - base.memory
    findings = []
    for seed in range(6):
        run = kernels(check=True, seed=seed)
        run.emulation.register(base.memory, "tensor")
        run.emulation.register(other, "another tensor")
        placed = aligned(128)
        placed[:] = run.encode(base)
        out = aligned(4096, 0)
        run.emulation.register(placed, "maps", writable=True)
        run.emulation.register(out, "out", writable=True)
        struct = box_of(base, (0, 0))
        run.call(
            "run_replace_global",
            placed,
            ctypes.byref(struct),
            other,
            user,
            out,
            out.size,
            fault,
        )
        if fault == RIGHT:
            want = Tile(other, U8, base.dims, base.strides, base.box).load((0, 0), 0, out)
            assert np.array_equal(out, want)
        findings += run.emulation.findings()
    if fault == RIGHT:
        assert findings == []
    else:
        # Without order the map may also change under the copy.
        assert {f["class"] for f in findings} <= {"tensor-map-proxy", "overwrite"}
        assert any(says in f["text"] for f in findings)


@pytest.mark.parametrize("fault", [RIGHT, NO_ACQUIRE])
def test_a_map_of_another_cluster(kernels: Callable[..., Kernels], fault: int) -> None:
    base, other = (tile(U8, (64, 64), (32, 16), SW32, seed=seed) for seed in (1, 2))
    for seed in range(4):
        run = kernels(check=True, seed=seed)
        run.emulation.register(base.memory, "tensor")
        run.emulation.register(other.memory, "another tensor")
        placed, flags, out = run.encode(base), np.zeros(2, np.uint32), aligned(512, 0)
        run.emulation.register(placed, "maps", writable=True)
        run.emulation.register(flags, "flags", writable=True)
        run.emulation.register(out, "out", writable=True)
        box = ctypes.byref(box_of(base, (0, 4)))
        run.call("run_other_cluster", run.encode(other), placed, box, flags, out, out.size, fault)
        want = (base if fault == NO_ACQUIRE else other).load((0, 4), 0, out)
        assert np.array_equal(out, want)
        assert set(run.classes()) == (set() if fault == RIGHT else {"tensor-map-proxy"})


@pytest.mark.parametrize(
    ("number", "value", "kind", "says"),
    [
        (0, 8, "descriptor", "multiple of 16"),
        (1, 5, "descriptor", "0 … 4"),
        (2, 0, "descriptor", "1 … 256"),
        (4, 40, "descriptor", "multiple of 16"),
        (5, 9, "descriptor", "1 … 8"),
        (1, 2, "descriptor", "dim"),
    ],
)
def test_replacing_by_a_wrong_value(
    kernels: Callable[..., Kernels], number: int, value: int, kind: str, says: str
) -> None:
    run = kernels()
    base = tile(U8, (64, 64), (32, 16))
    run.emulation.register(base.memory, "tensor")
    template, placed, out = run.encode(base), aligned(128), aligned(4096, 0)
    run.emulation.register(placed, "maps", writable=True)
    run.emulation.register(out, "out", writable=True)
    struct = box_of(base, (0, 0))
    arguments = (template, placed, ctypes.byref(struct), 512, number, ctypes.c_uint64(value), 0)
    run.call("run_replace", *arguments, out, 4096, RIGHT, fails=True)
    assert says in run.one(kind)["text"].lower()
