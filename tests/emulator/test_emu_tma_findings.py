"""Wrong uses of TMA in the emulator: each is found, with its class and line."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tma_model import (
    EARLY_READ,
    EARLY_WRITE,
    F16,
    NO_COMMIT,
    NO_EXPECT,
    NO_FENCE,
    NO_WAIT,
    RIGHT,
    SHARED_MAP,
    SW128,
    U8,
    BoxStruct,
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


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (EARLY_WRITE, "overwrite", "TMA store may still read"),
        (NO_FENCE, "proxy-fence", "fence.proxy.async"),
        (NO_COMMIT, "exit", "never committed"),
    ],
)
def test_a_wrong_store_is_found(
    kernels: Callable[..., Kernels], fault: int, kind: str, says: str
) -> None:
    for seed in range(3):
        run = kernels(check=True, seed=seed)
        run_store(run, tile(U8, (128, 16), (128, 16), SW128), (0, 0), fault=fault)
        matching = [f for f in run.emulation.findings() if f["class"] == kind]
        assert matching, run.emulation.findings()
        assert says in matching[0]["text"]
        assert matching[0]["line"] is not None


def test_a_store_that_is_not_waited_for(kernels: Callable[..., Kernels]) -> None:
    run = kernels(check=True)
    run_store(run, tile(U8, (128, 16), (128, 16), SW128), (0, 0), fault=NO_WAIT)
    assert set(run.classes()) == {"exit", "overwrite"}


def test_a_missing_fence_stores_stale_bytes(kernels: Callable[..., Kernels]) -> None:
    run = kernels(check=True)
    box = tile(U8, (128, 16), (128, 16), SW128)
    before = box.memory.copy()
    data = aligned(8192, 0x5A)
    run.emulation.register(box.memory, "tensor", writable=True)
    run.emulation.register(data, "in")
    struct = box_of(box, (0, 0))
    run.call("run_store", run.encode(box), ctypes.byref(struct), data, data.size, NO_FENCE)
    stored, box.memory[:] = box.memory.copy(), before
    assert (stored == 0xFF).all(), "shared memory's bytes before the stores of the threads"


def test_a_store_beyond_the_end_of_a_buffer(kernels: Callable[..., Kernels]) -> None:
    """The last row's padding is written up to 16 bytes, and has to belong to the buffer."""
    packed = tile(F16, (97, 4), (64, 4))
    for spare, fails in ((0, False), (16, True)):
        memory = packed.memory[: packed.memory.size - spare]
        run = kernels()
        run_store(
            run, Tile(memory, F16, packed.dims, packed.strides, packed.box), (64, 0), fails=fails
        )
        assert run.classes() == (["out-of-bounds"] if fails else [])


def test_a_store_from_a_negative_start(kernels: Callable[..., Kernels]) -> None:
    run = kernels()
    run_store(run, tile(U8, (128, 16), (128, 16)), (0, -1), fails=True)
    assert "negative coordinate -1" in run.one("out-of-bounds")["text"]


def test_missing_expect_tx(kernels: Callable[..., Kernels]) -> None:
    found = set()
    for seed in range(8):
        run = kernels(check=True, seed=seed)
        box = tile(U8, (128, 16), (128, 16), SW128)
        out = aligned(4096, 0)
        run.emulation.register(box.memory, "tensor")
        run.emulation.register(out, "out", writable=True)
        struct = box_of(box, (0, 0))
        message = ctypes.create_string_buffer(512)
        image = run.encode(box)
        run.lib.run_load(
            message,
            image.ctypes.data_as(ctypes.c_void_p),
            ctypes.byref(struct),
            out.ctypes.data_as(ctypes.c_void_p),
            out.size,
            NO_EXPECT,
        )
        assert run.classes(), "every schedule shows it"
        found |= set(run.classes())
    assert "transaction-count" in found


def test_a_load_that_is_not_waited_for(kernels: Callable[..., Kernels]) -> None:
    for seed in range(4):
        run = kernels(check=True, seed=seed)
        run.load(tile(U8, (128, 16), (128, 16), SW128), (0, 0), fault=NO_WAIT)
        assert any("nobody has waited" in f["text"] for f in run.emulation.findings())
        assert set(run.classes()) == {"exit"}


def test_reading_before_completion(kernels: Callable[..., Kernels]) -> None:
    poison, early = 0, 0
    for seed in range(8):
        run = kernels(check=True, seed=seed)
        out = run.load(tile(U8, (128, 16), (128, 16), SW128), (0, 0), fault=EARLY_READ)
        # A thread that reads before the issue is overwritten.
        assert set(run.classes()) <= {"early-read", "overwrite"}
        early += "early-read" in run.classes()
        poison += bool((out[:2048] == 0xFF).any())
    assert early >= 6
    assert poison, "no schedule read while the copy was in flight"


WRONG_LOADS = [
    pytest.param(tile(U8, (128, 16), (128, 16)), (0, 0), 16, "alignment", "128", id="dst"),
    pytest.param(
        tile(U8, (128, 16), (128, 16)), (0, 0), 48 * 1024, "out-of-bounds", "shared", id="beyond"
    ),
    pytest.param(
        tile(U8, (128, 16), (128, 16)), (0, 0, 0), 0, "descriptor", "dimensions", id="rank"
    ),
    pytest.param(tile(U8, (128, 16), (128, 16)), (8, 0), 0, "alignment", "x = 8", id="x"),
    pytest.param(tile(F16, (64, 16), (64, 16)), (-4, 0), 0, "alignment", "x = -4", id="x-f16"),
]


@pytest.mark.parametrize(("tile", "at", "offset", "kind", "says"), WRONG_LOADS)
def test_a_wrong_load_ends_the_launch(
    kernels: Callable[..., Kernels],
    tile: Tile,
    at: Sequence[int],
    offset: int,
    kind: str,
    says: str,
) -> None:
    run = kernels()
    run.load(tile, at, offset=offset, fails=True)
    finding = run.one(kind)
    assert says in finding["text"]
    assert finding["line"] is not None


def test_a_map_in_shared_memory(kernels: Callable[..., Kernels]) -> None:
    run = kernels()
    run.load(tile(U8, (128, 16), (128, 16)), (0, 0), fault=SHARED_MAP, fails=True)
    assert "shared memory" in run.one("descriptor")["text"]


def test_a_map_beyond_its_buffer(kernels: Callable[..., Kernels]) -> None:
    box = tile(U8, (128, 16), (128, 16))
    long = Tile(box.memory, U8, (128, 17), box.strides, (128, 17))
    run = kernels()
    run.load(long, (0, 0), fails=True)
    assert "tensor" in run.one("out-of-bounds")["text"]


def test_a_map_never_encoded(kernels: Callable[..., Kernels]) -> None:
    run = kernels()
    out = aligned(4096, 0)
    run.emulation.register(out, "out", writable=True)
    struct = BoxStruct(2, (0, 0, 0), 0, 2048)
    run.call("run_load", aligned(128, 0), ctypes.byref(struct), out, 4096, RIGHT, fails=True)
    assert "never encoded" in run.one("descriptor")["text"]


@pytest.mark.parametrize(
    ("address", "offset", "size", "says"),
    [(8, 0, 64, "global"), (0, 8, 64, "shared"), (0, 0, 40, "size")],
)
def test_alignment_of_plain_copies(
    kernels: Callable[..., Kernels], address: int, offset: int, size: int, says: str
) -> None:
    run = kernels()
    data = aligned(256)
    run.emulation.register(data, "in")
    run.call("run_bulk_load", data[address:], offset, size, fails=True)
    assert says in run.one("alignment")["text"]
