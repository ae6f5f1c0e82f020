"""The raw page of Nsight Compute, as CSV."""

from __future__ import annotations

import pytest
from ncu_page import PAGE, page

from kernelbench.inspection.nsight_counters import (
    CountersError,
    Launch,
    Stall,
    missing,
    read_raw_page,
)


def test_a_page_between_other_lines() -> None:
    text = f"==PROF== Connected to process 1234\n{page(PAGE)}==PROF== Disconnected\n"
    route, gemm = read_raw_page(text)
    assert gemm == Launch(
        kernel="multiply_experts",
        duration_us=pytest.approx(93.6),
        dram_pct=71.5,
        tensor_pct=21.75,
        occupancy_pct=12.1,
        occupancy_limit_pct=12.5,
        registers=168,
        shared_bytes=197632,
        l2_hit_pct=48.2,
        stalls=(Stall("long scoreboard", 0.6), Stall("gmma", 0.15), Stall("barrier", 0.1)),
    )
    assert route.duration_us == pytest.approx(2.528)
    assert (route.shared_bytes, route.stalls) == (16, ())
    assert missing((route, gemm)) == ()


@pytest.mark.parametrize(
    ("unit", "microseconds"), [("nsecond", 0.002528), ("us", 2.528), ("usecond", 2.528)]
)
def test_units_of_time_are_obeyed(unit: str, microseconds: float) -> None:
    columns = PAGE | {"gpu__time_duration.sum": (unit, "2.528", "2.528")}
    assert read_raw_page(page(columns))[0].duration_us == pytest.approx(microseconds)


def test_a_unit_that_is_not_known_gives_no_value() -> None:
    columns = PAGE | {
        "gpu__time_duration.sum": ("fortnight", "1", "1"),
        "launch__shared_mem_per_block_dynamic": ("Kbyte/block", "1", "193"),
    }
    launch = read_raw_page(page(columns))[1]
    assert (launch.duration_us, launch.shared_bytes) == (None, None)


def test_what_a_chip_does_not_have_is_missing() -> None:
    left_out = ("lts__t_sector_hit_rate.pct", *(name for name in PAGE if "stalled" in name))
    columns = {name: cells for name, cells in PAGE.items() if name not in left_out}
    columns["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"] = ("", "n/a", "n/a")
    launches = read_raw_page(page(columns))
    assert [launch.tensor_pct for launch in launches] == [None, None]
    assert missing(launches) == ("tensor pipe", "L2 hit rate", "stall reasons")


def test_the_busier_tensor_pipe_counts() -> None:
    columns = PAGE | {
        "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0", "81.6")
    }
    assert read_raw_page(page(columns))[1].tensor_pct == 81.6


def test_a_table_without_launches() -> None:
    assert read_raw_page(page({name: cells[:1] for name, cells in PAGE.items()})) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
        page(PAGE).splitlines()[0],
        page(PAGE) + '"2","1234"\n',
    ],
)
def test_what_is_no_page(text: str) -> None:
    with pytest.raises(CountersError):
        read_raw_page(text)
