"""Time ``kernelbench check STEP`` with its defaults, step by step, and print a table.

``python tools/check_times.py --record FILE v01..v23 m00..m13`` goes on where the record ends;
``--table`` prints it: seconds of wall clock, the load of the machine, rows, and what was found.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from planted_check import Cores, check, read_lines, record_all

from kernelbench.project.context import Context


def check_step(name: str, cores: Cores) -> dict[str, Any]:
    """A line of the record."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="check_times_") as folder:
        checked = check(Path(folder), name, ["--no-save"], cores, here=True)
    steps = checked.report.get("steps", [])
    rows = [row for step in steps for row in step["rows"]]
    return {
        "step": name,
        "exit": checked.exit,
        "cores": cores.each,
        "seconds": checked.seconds,
        "cpu": checked.cpu,
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "shapes": sum(row["status"] == "clean" for row in rows),
        "schedules": sum(row["schedules"] for row in rows),
        "findings": [row["reason"] or row["status"] for row in rows
                     if row["status"] not in ("clean", "skipped")],
        "assumed": sorted({name for row in rows for name in row["assumptions"]}),
        "not_reached": [name for step in steps for name in step["not_reached"]],
    }  # fmt: skip


def print_table(record: list[dict[str, Any]]) -> None:
    """A line for each step, and the median."""
    print("| step | exit | seconds | CPU seconds | load | shapes | schedules | not reached |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
    for row in record:
        load = " to ".join(map(str, row["load"]))
        print(
            f"| {row['step']} | {row['exit']} | {row['seconds']:.0f} | {row['cpu']:.0f} | {load} "
            f"| {row['shapes']} | {row['schedules']} | {', '.join(row['not_reached'])} |"
        )
    for what in ("seconds", "cpu"):
        print(f"\nmedian {what}: {statistics.median(row[what] for row in record):.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help="steps, as check takes them")
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("-j", type=int, default=1, help="steps at the same time")
    parser.add_argument("--cores", type=int, default=0, help="of each; default: all for all")
    arguments = parser.parse_args()
    record = read_lines(arguments.record)
    if arguments.table:
        print_table(record)
        return
    known = {row["step"] for row in record}
    steps = Context.find().lineages.select(arguments.steps)
    left = [step.name for step in steps if step.compiled and step.name not in known]
    cores = Cores(arguments.j, arguments.cores)
    attempts = [partial(check_step, name, cores) for name in left]
    for row in record_all(arguments.record, arguments.j, attempts):
        print(row["step"], row["exit"], row["seconds"], row["cpu"], row["load"], flush=True)


if __name__ == "__main__":
    main()
