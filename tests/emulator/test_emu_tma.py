"""Copies by TMA in the emulator against a model, and what a thread knows after waiting."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from tma_model import (
    BF16,
    F16,
    F32,
    NO_SWIZZLE,
    SW32,
    SW64,
    SW128,
    SWIZZLE_RELATIVE,
    SWIZZLE_ROW_BIT,
    U8,
    U16,
    UNTOUCHED,
    Kernels,
    Tile,
    aligned,
    box_of,
    run_store,
    tile,
)


@pytest.fixture
def kernels(emulated: Callable[..., Any]) -> Callable[..., Kernels]:
    return lambda **options: Kernels(emulated("tma_kernels.cu", **options))


LOADS = [
    pytest.param(tile(U8, (256, 40), (128, 32), SW128), (128, 4), 0, id="sw128"),
    pytest.param(tile(U8, (256, 40), (128, 32), SW128), (0, 0), 128, id="sw128-off-pattern"),
    pytest.param(tile(U8, (201, 40), (128, 32), SW128), (96, 20), 1024, id="sw128-right-bottom"),
    pytest.param(tile(U8, (201, 40), (128, 32), SW128), (-48, -5), 1024, id="sw128-left-top"),
    pytest.param(tile(U8, (128, 12), (80, 12), SW128), (16, 1), 128, id="sw128-narrow"),
    pytest.param(tile(U8, (64, 9), (64, 16), SW64), (0, 0), 256, id="sw64"),
    pytest.param(tile(F16, (64, 9), (8, 7), SW64), (16, -1), 128, id="sw64-narrow"),
    pytest.param(tile(F16, (50, 30), (16, 24), SW32), (40, 10), 128, id="sw32"),
    pytest.param(tile(F32, (21, 12), (64, 8)), (-4, 7), 0, id="plain-wide"),
    pytest.param(tile(BF16, (72, 12), (40, 12), pitch=48), (8, -1), 512, id="plain-pitched"),
    pytest.param(tile(U8, (100, 7, 5), (128, 6, 3), SW128), (-16, 3, -1), 0, id="3d-all-sides"),
    pytest.param(tile(U16, (64, 8, 4), (64, 8, 2), SW128), (0, 0, 1), 0, id="3d"),
    pytest.param(tile(U8, (128, 5, 3, 4), (128, 4, 2, 3), SW128), (0, 2, -1, 2), 0, id="4d"),
    pytest.param(tile(U8, (64, 8), (64, 8)), (208, 0), 0, id="outside"),
]


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize(("tile", "at", "offset"), LOADS)
def test_load_is_the_models(
    kernels: Callable[..., Kernels], tile: Tile, at: Sequence[int], offset: int, check: bool
) -> None:
    run = kernels(check=check, seed=7)
    out = run.load(tile, at, offset=offset)
    want = tile.load(at, offset, np.full(out.size, UNTOUCHED, np.uint8))
    assert np.array_equal(out, want)
    assert run.classes() == []


@pytest.mark.parametrize("variant", [1, 2, 3], ids=["policy", "multicast", "multicast-policy"])
@pytest.mark.parametrize("at", [(16, 3), (16, 3, 1)], ids=["2d", "3d"])
def test_each_form_of_a_load(
    kernels: Callable[..., Kernels], at: Sequence[int], variant: int
) -> None:
    box = tile(U8, (64, 12, 3)[: len(at)], (32, 8, 2)[: len(at)], SW32)
    run = kernels(check=True, seed=variant)
    out = run.load(box, at, variant=variant)
    assert np.array_equal(out, box.load(at, 0, np.full(out.size, UNTOUCHED, np.uint8)))
    assert run.classes() == []


def test_a_4d_load_with_a_policy(kernels: Callable[..., Kernels]) -> None:
    box = tile(U8, (64, 6, 3, 3), (32, 4, 2, 2), SW32)
    run = kernels(check=True, seed=1)
    out = run.load(box, (16, 1, 1, 0), variant=1)
    assert np.array_equal(out, box.load((16, 1, 1, 0), 0, np.full(out.size, UNTOUCHED, np.uint8)))
    assert run.classes() == []


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize("bar_rank", [0, 1])
@pytest.mark.parametrize("at", [(16, 3), (16, 3, 1)], ids=["2d", "3d"])
def test_a_pair_completes_on_one_barrier(
    kernels: Callable[..., Kernels], at: Sequence[int], bar_rank: int, check: bool
) -> None:
    box = tile(U8, (64, 12, 3)[: len(at)], (32, 8, 2)[: len(at)], SW32)
    run = kernels(check=check, seed=bar_rank)
    out = aligned(2 * box.bytes, 0)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(out, "out", writable=True)
    run.call("run_pair", run.encode(box), ctypes.byref(box_of(box, at)), out, bar_rank, 2)
    for rank in range(2):
        got = out[rank * box.bytes : (rank + 1) * box.bytes]
        assert np.array_equal(got, box.load((at[0], at[1] + rank, *at[2:]), 0, got))
    assert run.classes() == []


def test_a_barrier_outside_the_pair(kernels: Callable[..., Kernels]) -> None:
    box = tile(U8, (64, 12), (32, 8), SW32)
    run = kernels()
    out = aligned(4 * box.bytes, 0)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(out, "out", writable=True)
    arguments = (run.encode(box), ctypes.byref(box_of(box, (0, 0))), out, 2, 4)
    run.call("run_pair", *arguments, fails=True)
    assert "outside its CTA pair" in run.one("descriptor")["text"]


def test_shared_dimension_order_of_a_3d_map_with_a_folded_dimension(
    kernels: Callable[..., Kernels],
) -> None:
    """Rows of 512 bytes as 2 slabs of 256: the third stride is smaller than the second."""
    memory = aligned(64 * 512)
    memory[:] = np.random.default_rng(2).integers(0, 256, memory.size, np.uint8)
    folded = Tile(memory, U8, (128, 64, 4), (512, 128), (128, 16, 4), SW128)
    out = kernels().load(folded, (0, 32, 0))
    assert np.array_equal(out[: 16 * 512], folded.load((0, 32, 0), 0, out)[: 16 * 512])


@pytest.mark.parametrize(
    ("fact", "offset", "differs"),
    [
        (NO_SWIZZLE, 0, True),
        (SWIZZLE_ROW_BIT, 0, True),
        (SWIZZLE_RELATIVE, 0, False),
        (SWIZZLE_RELATIVE, 128, True),
    ],
)
def test_a_broken_fact_shows(
    kernels: Callable[..., Kernels], fact: int, offset: int, differs: bool
) -> None:
    box = tile(U8, (128, 16), (128, 16), SW128)
    out = kernels(broken_fact=fact).load(box, (0, 0), offset=offset)
    want = box.load((0, 0), offset, np.full(out.size, UNTOUCHED, np.uint8))
    assert np.array_equal(out, want) != differs


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize(("mask", "ctas"), [(0b11, 2), (0b10, 2), (0b1011, 4)])
def test_multicast_reaches_the_masked_ctas(
    kernels: Callable[..., Kernels], mask: int, ctas: int, check: bool
) -> None:
    run = kernels(check=check, seed=3)
    box = tile(U8, (128, 32), (128, 16), SW128)
    size = 4096
    out = aligned(size * ctas, 0x11)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(out, "out", writable=True)
    struct = box_of(box, (0, 5), 1024)
    run.call("run_multicast", run.encode(box), ctypes.byref(struct), out, size, mask, ctas)
    assert run.classes() == []
    for rank in range(ctas):
        got = out[rank * size : (rank + 1) * size]
        if mask >> rank & 1:
            want = box.load((0, 5), 1024, got)
            assert np.array_equal(got, want)
            assert not (got[1024:3072] == 0xFF).all()
        else:
            assert (got == 0x11).all()


def test_multicast_outside_the_cluster(kernels: Callable[..., Kernels]) -> None:
    run = kernels()
    box = tile(U8, (128, 32), (128, 16), SW128)
    out = aligned(8192, 0)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(out, "out", writable=True)
    struct = box_of(box, (0, 0))
    arguments = (run.encode(box), ctypes.byref(struct), out, 4096, 0b101, 2)
    assert "multicast mask" in run.call("run_multicast", *arguments, fails=True)
    run.one("descriptor")


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
def test_plain_copies_between_ctas(kernels: Callable[..., Kernels], check: bool) -> None:
    run = kernels(check=check, seed=11)
    data = aligned(4096)
    data[:] = np.random.default_rng(3).integers(0, 256, data.size, np.uint8)
    out = aligned(data.size, 0)
    run.emulation.register(data, "in")
    run.emulation.register(out, "out", writable=True)
    run.call("run_peer", data, out, data.size)
    assert np.array_equal(out, data)
    assert run.classes() == []


STORES = [
    pytest.param(tile(U8, (256, 40), (128, 32), SW128), (128, 8), 0, id="sw128"),
    pytest.param(tile(F16, (100, 40), (64, 32), SW128), (64, 20), 1024, id="sw128-clipped"),
    pytest.param(tile(F16, (97, 40), (64, 32), pitch=32), (64, 20), 0, id="clipped-in-a-piece"),
    pytest.param(tile(U8, (128, 12), (48, 12), SW64), (64, 0), 128, id="sw64-narrow"),
    pytest.param(tile(U8, (64, 40), (64, 32), SW64), (0, 30), 256, id="sw64-clipped"),
    pytest.param(tile(F32, (40, 10, 3), (32, 4, 2)), (16, 8, 2), 128, id="3d-clipped"),
    pytest.param(tile(U8, (64, 8), (64, 8)), (0, 8), 0, id="outside"),
]


@pytest.mark.parametrize("check", [False, True], ids=["plain", "checked"])
@pytest.mark.parametrize(("tile", "at", "offset"), STORES)
def test_store_is_the_models(
    kernels: Callable[..., Kernels], tile: Tile, at: Sequence[int], offset: int, check: bool
) -> None:
    run = kernels(check=check, seed=5)
    run_store(run, tile, at, offset, variant=int(check))


def test_a_group_is_read_before_it_is_written(kernels: Callable[..., Kernels]) -> None:
    """wait_group.read may return before the write, wait_group never does."""
    data = aligned(4096)
    data[:] = np.random.default_rng(6).integers(0, 255, data.size, np.uint8)
    word = int(data[:4].view(np.uint32)[0])
    after_read = set()
    for seed in range(20):
        run = kernels(check=True, seed=seed)
        out = aligned(data.size)
        seen = np.zeros(2, np.uint32)
        run.emulation.register(data, "in")
        run.emulation.register(out, "out", writable=True)
        run.emulation.register(seen, "seen", writable=True)
        run.call("run_plain", data, out, data.size, seen)
        assert run.classes() == ["early-read"]  # of the first look
        assert np.array_equal(out, data)
        assert seen[1] == word
        after_read.add(int(seen[0]))
    assert after_read == {word, 0xFFFFFFFF}


def test_the_newest_group_may_be_pending(kernels: Callable[..., Kernels]) -> None:
    data = aligned(384)
    data[:] = np.arange(384) % 251
    words = data.view(np.uint32)[[0, 32, 64]]
    newest = set()
    for seed in range(20):
        run = kernels(check=True, seed=seed)
        out = aligned(data.size)
        seen = np.zeros(3, np.uint32)
        run.emulation.register(data, "in")
        run.emulation.register(out, "out", writable=True)
        run.emulation.register(seen, "seen", writable=True)
        run.call("run_groups", data, out, seen)
        assert run.classes() == ["early-read"]  # of the newest
        assert np.array_equal(out, data)
        assert list(seen[:2]) == list(words[:2])
        newest.add(int(seen[2]))
    assert newest == {int(words[2]), 0xFFFFFFFF}


def test_cache_policies(kernels: Callable[..., Kernels]) -> None:
    data = aligned(64)
    run = kernels()
    run.emulation.register(data, "in")
    run.call("run_policy", data, ctypes.c_uint64(0x1000000000000000))
    assert run.classes() == []
    run.call("run_policy", data, ctypes.c_uint64(7))
    assert "createpolicy" in run.one("descriptor")["text"]


@pytest.mark.parametrize("seed", range(6))
def test_a_right_pipeline_has_no_findings(kernels: Callable[..., Kernels], seed: int) -> None:
    run = kernels(check=True, seed=seed)
    box = tile(U8, (128, 128), (128, 128), SW128)
    sums = np.zeros(32, np.uint32)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(sums, "sums", writable=True)
    run.call("run_ring", run.encode(box), box.bytes, 5, sums, 1)
    stage = box.load((0, 0), 0, np.zeros(box.bytes, np.uint8)).view(np.uint32)
    assert np.array_equal(sums, stage[32:64] * np.uint32(20))
    assert run.classes() == []


def test_an_initialization_that_no_fence_shows_to_copies(kernels: Callable[..., Kernels]) -> None:
    run = kernels(check=True)
    box = tile(U8, (128, 128), (128, 128), SW128)
    sums = np.zeros(32, np.uint32)
    run.emulation.register(box.memory, "tensor")
    run.emulation.register(sums, "sums", writable=True)
    run.call("run_ring", run.encode(box), box.bytes, 1, sums, 0)
    assert "fence.mbarrier_init" in run.one("proxy-fence")["text"]
