"""``kernelbench check`` with its defaults on copies of the lineages in which something is changed.

The trials of bugs (``tools/semantic_bugs``) and of mutants (``tools/mutations/default_check.py``)
share this: a project in a folder of its own, a check in a process of its own, on cores of its own.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO, cast

ROOT = Path(__file__).resolve().parent.parent
LINEAGES = ("kernels", "moe", "hopper")
#: What a check leaves with: nothing found, something found.
CLEAN, FOUND = 0, 3


@dataclass(frozen=True)
class Checked:
    """What a check said: its exit code, seconds of wall clock and CPU, report, and last words."""

    exit: int
    seconds: float
    cpu: float
    report: dict[str, Any]
    stderr: str

    @property
    def error(self) -> str:
        """What it says where it has no verdict; else empty."""
        return "" if self.exit in (CLEAN, FOUND) else self.stderr[-2000:]


def make_project(folder: Path) -> None:
    """A project with copies of the lineages and of the shapes."""
    for name in LINEAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "shapes.yaml", folder)
    names = ", ".join(f'"{name}"' for name in LINEAGES)
    (folder / "pyproject.toml").write_text(f"[tool.kernelbench]\nlineages = [{names}]\n")


def environment(folder: Path) -> dict[str, str]:
    """That of a process which works on the project in ``folder`` with this checkout's code."""
    return {**os.environ, "KERNELBENCH_ROOT": str(folder), "PYTHONPATH": str(ROOT)}


class Cores:
    """Hands out cores: a check takes as many workers as it has cores.

    Args:
        at_once: Checks at the same time.
        each: Cores of each; 0 leaves all cores to all.
    """

    def __init__(self, at_once: int, each: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        if each and at_once * each > len(cores):
            sys.exit(f"-j {at_once} with {each} cores each: there are {len(cores)}; take fewer")
        self.each = each or len(cores)
        self._free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
        for index in range(at_once):
            self._free.put(set(cores[index * each : (index + 1) * each] if each else cores))

    @contextlib.contextmanager
    def taken(self) -> Iterator[set[int]]:
        """Cores for one check."""
        cores = self._free.get()
        try:
            yield cores
        finally:
            self._free.put(cores)


def check(
    folder: Path, step: str, options: Sequence[str], cores: Cores, *, here: bool = False
) -> Checked:
    """Check a step of the project in ``folder``, or ``here``, of this checkout."""
    report, errors = folder / "report.json", folder / "errors.txt"
    command = [sys.executable, "-m", "kernelbench", "check", step, *options, "--json", str(report)]
    with cores.taken() as own, errors.open("w") as said:
        begin = time.monotonic()
        process = subprocess.Popen(
            command, cwd=ROOT if here else folder, env=environment(ROOT if here else folder),
            stdout=subprocess.DEVNULL, stderr=said,
            preexec_fn=lambda: os.sched_setaffinity(0, own),
        )  # fmt: skip
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
    read = json.loads(report.read_text()) if report.exists() else {}
    cpu = round(used.ru_utime + used.ru_stime, 1)
    return Checked(process.returncode, round(seconds, 1), cpu, read, errors.read_text())


def read_lines(file: Path) -> list[dict[str, Any]]:
    """A record of JSON lines; empty where there is none."""
    if not file.exists():
        return []
    with _opened(file, "rt") as record:
        return [json.loads(line) for line in record]


def _opened(file: Path, mode: Literal["rt", "at"]) -> TextIO:
    """A record, by its name a compressed one."""
    if file.suffix == ".gz":
        return cast("TextIO", gzip.open(file, mode, encoding="utf-8"))
    return cast("TextIO", file.open(mode, encoding="utf-8"))


def record_all(
    file: Path, at_once: int, attempts: Iterable[Callable[[], dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Each attempt's row as it comes, when it has been added to the record."""
    with ThreadPoolExecutor(at_once) as pool, _opened(file, "at") as record:
        for future in as_completed([pool.submit(attempt) for attempt in attempts]):
            row = future.result()
            record.write(json.dumps(row) + "\n")
            record.flush()
            yield row


def first_findings(report: dict[str, Any]) -> list[str]:
    """What was found, a line for each shape, the first one first: reason, kind, text and object."""
    lines = []
    for step in report.get("steps", []):
        for row in step["rows"]:
            said = [row["reason"]] if row["status"] not in ("clean", "skipped") else []
            for seen in row["seen"][:1]:
                found = seen["finding"]
                said += [found["kind"], found["text"], found["object"], seen["calls"]]
            if said:
                lines.append(f"{row['shape']}: " + " · ".join(filter(None, said)))
    return lines
