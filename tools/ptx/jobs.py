"""Many commands side by side, each in a process, with a record that a later run goes on from.

A command writes its rows to its output, a line of JSON each. The record has a line of JSON for each
command that has ended: ``{"key": …, "rows": […], "error": …, "seconds": …}``. One that was stopped
for lack of time has ``"partial": true``, and is made again by the next run.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_POLL_S = 0.1
_ERROR_CHARACTERS = 300


@dataclass(frozen=True)
class Job:
    """A command.

    Attributes:
        key: Its name in the record.
        after: The key of one that must have ended before; empty for none.
        limit_s: Seconds until it is stopped.
    """

    key: str
    command: Sequence[str]
    after: str = ""
    limit_s: float = 1500.0


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[str]
    out: IO[str]
    errors: IO[str]
    began: float


def read(record: Path) -> dict[str, dict[str, Any]]:
    """The record's lines by key; of a command with several, the last."""
    lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    return {each["key"]: each for each in map(json.loads, lines)}


def run(jobs: Iterable[Job], parallel: int, record: Path, until_s: float = float("inf")) -> None:
    """Run what the record does not have yet.

    Args:
        parallel: Processes at a time.
        until_s: Seconds after which nothing is started and what runs is stopped.
    """
    done = {key for key, each in read(record).items() if not each.get("partial")}
    waiting = [job for job in jobs if job.key not in done]
    running: list[_Running] = []
    began = time.monotonic()
    record.parent.mkdir(parents=True, exist_ok=True)
    while waiting or running:
        late = time.monotonic() - began > until_s
        if late:
            waiting = []
        for each in list(running):
            ended = each.process.poll() is not None
            if ended or late or time.monotonic() - each.began > each.job.limit_s:
                running.remove(each)
                done.add(each.job.key)
                _write(record, _ended(each, ended))
        known = {job.key for job in waiting} | {each.job.key for each in running}
        for job in list(waiting):
            if len(running) < parallel and job.after not in known:
                waiting.remove(job)
                running.append(_started(job))
        time.sleep(_POLL_S)


def _started(job: Job) -> _Running:
    out = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
    errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
    # A session of its own: what it started is stopped with it.
    process = subprocess.Popen(
        job.command, stdout=out, stderr=errors, text=True, start_new_session=True
    )
    return _Running(job, process, out, errors, time.monotonic())


def _ended(each: _Running, ended: bool) -> dict[str, Any]:
    """The record's line of a command, which is stopped if it has not ended."""
    if not ended:
        os.killpg(each.process.pid, signal.SIGKILL)
        each.process.wait()
    line: dict[str, Any] = {"key": each.job.key, "rows": list(_rows(each.out))}
    each.errors.seek(0)
    said = each.errors.read().strip().splitlines()
    each.out.close()
    each.errors.close()
    line["seconds"] = round(time.monotonic() - each.began, 1)
    if not ended:
        line |= {"partial": True, "error": f"stopped after {line['seconds']:.0f} s"}
    elif each.process.returncode != 0:
        last = said[-1] if said else f"exit code {each.process.returncode}"
        line["error"] = last[:_ERROR_CHARACTERS]
    return line


def _rows(out: IO[str]) -> Iterator[Any]:
    """What was written whole."""
    out.seek(0)
    for line in out:
        if line.startswith("{") and line.endswith("}\n"):
            yield json.loads(line)


def _write(record: Path, line: dict[str, Any]) -> None:
    with record.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(line) + "\n")
    print(f"{line['key']}: {line['seconds']} s {line.get('error', '')}", file=sys.stderr)
