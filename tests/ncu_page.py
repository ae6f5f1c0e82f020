"""A raw page as Nsight Compute prints it with ``--csv --page raw --print-units base``."""

from __future__ import annotations

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
#: Column: unit and the values of two launches.
PAGE = {
    "ID": ("", "0", "1"),
    "Process ID": ("", "1234", "1234"),
    "Kernel Name": ("", "route_tokens", "multiply_experts"),
    "Block Size": ("", "(128, 1, 1)", "(256, 1, 1)"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "1.25", "71.50"),
    "gpu__time_duration.sum": ("ns", "2,528", "93,600"),
    "launch__registers_per_thread": ("register/thread", "40", "168"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "0", "197,632"),
    "launch__shared_mem_per_block_static": ("byte/block", "16", "0"),
    "lts__t_sector_hit_rate.pct": ("%", "55.0", "48.2"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "100", "12.5"),
    "sm__pipe_tc_cycles_active.avg.pct_of_peak_sustained_elapsed": ("", "n/a", "n/a"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "0", "21.75"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "30.5", "12.1"),
    STALLED.format("long_scoreboard"): ("inst", "0.00", "6.00"),
    STALLED.format("barrier"): ("inst", "0.00", "1.00"),
    STALLED.format("gmma"): ("inst", "0.00", "1.50"),
    STALLED.format("wait"): ("inst", "0.00", "0.50"),
    STALLED.format("selected"): ("inst", "0.00", "1.00"),
}


def page(columns: dict[str, tuple[str, ...]]) -> str:
    """The table: names, units, a row for each launch."""
    rows = [[*columns], *zip(*columns.values(), strict=True)]
    return "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
