"""What the emulator finds wrong with uses of tensor memory and tcgen05."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensor_model import (
    COLUMNS,
    LANES,
    SCALES,
    SFA,
    SFB,
    A,
    B,
    Operands,
    Program,
    Tile,
    accumulator,
    instruction,
    kinds,
    pair,
    scales_descriptor,
    simple,
)

FILE = "tensor_kernels.cu"
Emulated = Callable[..., Any]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("no proxy fence", "proxy-fence"),
        ("no commit wait", "early-read"),
        ("overwrite tile", "overwrite"),
        ("overwrite sums", "overwrite"),
        ("every lane", "divergence"),
        ("other commits", "order"),
        ("leak", "tmem-allocation"),
        ("early dealloc", "overwrite"),
        ("wrong dealloc", "tmem-allocation"),
        ("wrong slab", "tmem-bounds"),
        ("unequal address", "divergence"),
        ("alloc grows", "tmem-allocation"),
        ("alloc relinquished", "tmem-allocation"),
        ("alloc not power", "tmem-allocation"),
        ("alloc blocked", "hang"),
        ("mixed groups", "descriptor"),
        ("no fence before", "overwrite"),
        ("no fence after", "early-read"),
    ],
)
def test_a_fault_is_found_on_every_schedule(emulated: Emulated, fault: str, kind: str) -> None:
    for seed in range(8):
        of = emulated(FILE, check=True, seed=seed)
        program = simple(Operands(16))
        program.columns = 256 if fault == "alloc grows" else 512
        if fault == "alloc grows":
            program.operations = []
        program.run(of, fault)
        assert kind in kinds(of), seed


@pytest.mark.parametrize("column", [SFA, SFA + 3, SFB + 1, 0, 63])
def test_columns_of_an_operation_are_its_own(emulated: Emulated, column: int) -> None:
    # Its scale factors and its accumulator, to the last column.
    for seed in range(6):
        of = emulated(FILE, check=True, seed=seed)
        program = simple(Operands(64))
        program.store_column = column
        program.load_column = 384  # nobody's, and unwritten
        program.run(of, "store too early")
        assert "overwrite" in kinds(of), seed
        free = emulated(FILE, check=True, seed=seed)
        program.store_column = 64
        program.run(free, "store too early")
        assert kinds(free) == {"unwritten"}


@pytest.mark.parametrize("column", [SFA, SFA + 3, SFB, SFB + 1])
def test_scale_factors_that_no_copy_brought_are_read(emulated: Emulated, column: int) -> None:
    program = Program(load_column=384, store_column=column)
    program.fill = np.full((1, LANES, COLUMNS), 0x38383838, np.uint32)
    program.multiply(
        a=Tile(A).descriptor(),
        b=Tile(B).descriptor(),
        instruction=instruction(64),
        scales_a=SFA,
        scales_b=SFB,
    )
    program.commit()
    for seed in range(6):
        of = emulated(FILE, check=True, seed=seed)
        program.run(of, "store too early")  # before or behind the mma: nothing orders them
        assert kinds(of) & {"overwrite", "early-read"}, seed


@pytest.mark.parametrize(
    ("what", "reader", "column"),
    [("sums", "tcgen05.mma", 0), ("scales", "tcgen05.mma", SFB), ("loads", "tcgen05.ld", 384)],
)
def test_tensor_memory_that_nothing_has_written(
    emulated: Emulated, what: str, reader: str, column: int
) -> None:
    program = simple(Operands(16), accumulate=what == "sums")
    if what == "scales":
        program.operations = [each for each in program.operations if each.get("d") != SFB]
    if what == "loads":
        program.load_column = column
    for seed in range(4):
        of = emulated(FILE, check=True, seed=seed)
        program.run(of)
        found = next(each for each in of.findings() if each["class"] == "unwritten")
        assert found["text"] == f"{reader} reads tensor memory that nothing has written"
        assert found["tmem_column"] == column
        program.run(free := emulated(FILE, check=False, seed=seed))
        assert free.findings() == []


@pytest.mark.parametrize("column", [-15, 0, 15])
def test_every_column_of_a_result_is_waited_for(emulated: Emulated, column: int) -> None:
    for seed in range(6):
        of = emulated(FILE, check=True, seed=seed)
        program = simple(Operands(16), d=32)
        program.load_column = 32 + column
        program.loads = 1
        program.run(of, "no commit wait")
        assert "early-read" in kinds(of), seed


def test_a_right_kernel_has_no_finding_on_any_schedule(emulated: Emulated) -> None:
    operands = Operands(16)
    program = simple(operands)
    for seed in range(40):
        of = emulated(FILE, check=True, seed=seed)
        message, out = program.run(of, "second round")
        assert message == "" and of.findings() == [], seed
        assert np.array_equal(accumulator(out[0], 16), operands.sums())


def test_registers_hold_poison_until_wait_ld(emulated: Emulated) -> None:
    of = emulated(FILE, check=True)
    message, out = simple(Operands(16)).run(of, "no wait ld")
    assert message == ""
    assert (out == 0xFFFFFFFF).all()


def test_a_store_is_complete_after_wait_st(emulated: Emulated) -> None:
    program = Program(columns=32)
    program.fill = np.arange(LANES * 32, dtype=np.uint32).reshape(1, LANES, 32)
    of = emulated(FILE, check=True)
    program.run(of, "no wait st")
    assert kinds(of) >= {"early-read", "overwrite"}  # the loads, and dealloc


def test_a_warp_loads_what_it_has_stored_without_fences(emulated: Emulated) -> None:
    program = Program(columns=32)
    program.fill = np.arange(LANES * 32, dtype=np.uint32).reshape(1, LANES, 32)
    for seed in range(8):
        of = emulated(FILE, check=True, seed=seed)
        assert program.run(of, "load at once")[0] == "" and of.findings() == [], seed


def test_copies_of_a_scale_must_agree(emulated: Emulated) -> None:
    program = Program(columns=512)
    operands = Operands(16)
    lanes = np.arange(LANES) % 32
    program.fill = np.zeros((1, LANES, COLUMNS), np.uint32)
    program.fill[0, :, SFA] = 0x38383838 + lanes
    program.multiply(
        a=Tile(A).descriptor(),
        b=Tile(B).descriptor(),
        instruction=instruction(operands.n),
        scales_a=SFA,
        scales_b=SFB,
    )
    program.commit()
    of = emulated(FILE, check=True)
    assert program.run(of)[0] == "" and kinds(of) == set()
    of = emulated(FILE, check=True)
    program.run(of, "unequal scales")
    assert kinds(of) == {"descriptor"}
    assert any("of A differ between lanes 0 and 64" in each["text"] for each in of.findings())


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"a": Tile(A + 16).descriptor()}, None, ""),
        ({"a": Tile(A + 112).descriptor()}, "descriptor", "leave the row"),
        ({"a": Tile(A + 128).descriptor()}, "descriptor", "past a multiple of 1024"),
        ({"b": Tile(B + 512).descriptor()}, "descriptor", "descriptor of B"),
        ({"a": Tile(A, stride=512).descriptor()}, "descriptor", "stride offset"),
        ({"a": Tile(A).descriptor(constant=0)}, "descriptor", "48:46"),
        ({"a": Tile(A).descriptor(extra=1 << 49)}, "descriptor", "base offset"),
        ({"a": Tile(A, swizzle=1).descriptor()}, "descriptor", "swizzle code 1"),
        ({"a": Tile(A, stride=32 * 1024).descriptor()}, "out-of-bounds", "shared memory"),
        ({"instruction": instruction(16) | 1 << 7 | 1 << 9}, "descriptor", "not 5"),
        ({"instruction": instruction(16) | 1 << 4}, "descriptor", "ids"),
        ({"instruction": instruction(16) | 1 << 15}, "descriptor", "transposed"),
        ({"instruction": instruction(16) | 1 << 24}, "descriptor", "reserved"),
        ({"instruction": instruction(0)}, "descriptor", "N = 0"),
        ({"instruction": instruction(264)}, "descriptor", "N = 264"),
        ({"instruction": instruction(16, 256)}, "descriptor", "M = 256"),
        ({"instruction": instruction(16, 0)}, "descriptor", "M = 0"),
        ({"d": 500}, "tmem-bounds", "columns 500 … 515"),
        ({"d": 1 << 16}, "tmem-bounds", "lane 1"),
        ({"scales_a": 8}, "tmem-bounds", "its accumulator"),
        ({"scales_b": 512}, "tmem-bounds", "scale factors of B"),
        ({"scales_b": 600}, "tmem-bounds", "scale factors of B"),
    ],
)
def test_operands_that_the_hardware_does_not_take(
    emulated: Emulated, change: dict[str, int], kind: str | None, words: str
) -> None:
    program = simple(Operands(16))
    next(each for each in program.operations if each["kind"] == 1).update(change)
    of = emulated(FILE)
    message, _ = program.run(of)
    assert kinds(of) == ({kind} if kind else set())
    assert words in message


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"d": SFA + 2}, "alignment"),
        ({"d": SFA | 1 << 16}, "alignment"),
        ({"d": 512}, "tmem-bounds"),
        ({"a": Tile(SCALES).descriptor()}, "descriptor"),
        ({"a": scales_descriptor(230 * 1024)}, "out-of-bounds"),
    ],
)
def test_copies_that_the_hardware_does_not_take(
    emulated: Emulated, change: dict[str, int], kind: str
) -> None:
    program = simple(Operands(16))
    program.operations[0].update(change)
    of = emulated(FILE)
    program.run(of)
    assert kinds(of) == {kind}


def test_m_128_of_a_pair_is_refused_in_words(emulated: Emulated) -> None:
    program = pair(Operands(16, rows=256))
    program.operations[-2]["instruction"] = instruction(16, 128)
    message, _ = program.run(emulated(FILE))
    assert "not documented" in message


def test_two_commits_in_a_row_both_arrive(emulated: Emulated) -> None:
    # The kernel waits for a phase of each.
    operands = Operands(16)
    program = simple(operands)
    program.commit()
    of = emulated(FILE, check=True)
    message, out = program.run(of)
    assert message == "" and of.findings() == []
    assert np.array_equal(accumulator(out[0], 16), operands.sums())
