"""Time ``kernelbench check STEP`` with its defaults, step by step, and print a table.

``python tools/check_times.py --record FILE v01..v23 m00..m13`` goes on where the record ends;
``--table`` prints it: seconds of wall clock, the load of the machine, rows, and what was found.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernelbench.project.context import Context


def check_step(name: str) -> dict[str, Any]:
    """A line of the record."""
    with tempfile.TemporaryDirectory(prefix="check_times_") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "kernelbench", "check", name, "--no-save"]
        load = os.getloadavg()[0]
        begin, before = time.monotonic(), os.times()
        done = subprocess.run([*command, "--json", str(report)], capture_output=True, check=False)
        seconds, after = time.monotonic() - begin, os.times()
        steps = json.loads(report.read_text())["steps"] if report.exists() else []
    rows = [row for step in steps for row in step["rows"]]
    return {
        "step": name,
        "exit": done.returncode,
        "seconds": round(seconds, 1),
        "cpu": round(after.children_user + after.children_system
                     - before.children_user - before.children_system, 1),
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
    arguments = parser.parse_args()
    lines = arguments.record.read_text().splitlines() if arguments.record.exists() else []
    record = [json.loads(line) for line in lines]
    if arguments.table:
        print_table(record)
        return
    known = {row["step"] for row in record}
    for step in Context.find().lineages.select(arguments.steps):
        if step.compiled and step.name not in known:
            row = check_step(step.name)
            with arguments.record.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(row["step"], row["exit"], row["seconds"], row["cpu"], row["load"], flush=True)


if __name__ == "__main__":
    main()
