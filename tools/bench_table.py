"""The file and the tables of ``tools/bench.py``: figures of several calls, the newest of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCHEMA = "kernelbench.bench/2"


def merged(file: Path, record: dict[str, Any]) -> list[dict[str, Any]]:
    """The new figures, then those of the file that they do not replace."""
    before: list[dict[str, Any]] = []
    if file.exists():
        content = json.loads(file.read_text())
        # At first a file held one call's.
        before = content["measured"] if content.pop("schema") == SCHEMA else [content]
    names = {row["name"] for row in record["figures"]}
    left = [
        each | {"figures": [row for row in each["figures"] if row["name"] not in names]}
        for each in before
    ]
    return [record, *(each for each in left if each["figures"])]


def markdown(measured: Sequence[dict[str, Any]]) -> str:
    """The tables that people read."""
    return "\n".join(["# What users wait for", *(_section(each) for each in measured)])


def _section(record: dict[str, Any]) -> str:
    commit = record["commit"][:12] + (" with changes" if record["changed"] else "")
    where = f"{record['device']}, {record['compiler']}"
    if "load" in record:
        where += f", load average {record['load']} (15 min)"
    when = f"Python {record['python']}; {record['created'][:10]}, commit {commit}"
    how = f"medians of {record['repetitions']}: `{record['command']}`."
    lines = ["", f"{where}, {when}; {how}", ""]
    if record["against"]:
        lines += [
            f"Against {record['against'][:12]}, interleaved: a ratio above 1 is slower (95 %).",
            "",
            "| What | Base s | Here s | Ratio | Interval |",
            "|---|--:|--:|--:|:-:|",
        ]
    else:
        lines += ["| What | s | Least | Most |", "|---|--:|--:|--:|"]
    for row in record["figures"]:
        if "failed" in row:
            lines.append(
                f"| {row['name']} | {row['failed']} |" + " |" * (2 + bool(record["against"]))
            )
        elif record["against"]:
            ratio, ends = row.get("ratio"), row.get("ratio_ci", [])
            lines.append(
                f"| {row['name']} | {row['base_seconds']:.3g} | {row['seconds']:.3g} | "
                f"{f'{ratio:.3f}' if ratio else '–'} | {' to '.join(f'{e:.3f}' for e in ends)} |"
            )
        else:
            least, most = min(row["samples"]), max(row["samples"])
            lines.append(f"| {row['name']} | {row['seconds']:.3g} | {least:.3g} | {most:.3g} |")
    return "\n".join(lines) + "\n"
