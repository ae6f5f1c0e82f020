"""Stand-ins of the campaign's tests: a kernelbench that costs nothing, and a pool that obeys."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conftest import result_row, run_record

from kernelbench.base import schema
from kernelbench.campaign.code_archive import CodeArchive
from kernelbench.campaign.engine import Engine, EngineSettings, Eta, PieceFault
from kernelbench.campaign.outcome_files import OutcomeFiles
from kernelbench.campaign.pieces import Piece
from kernelbench.campaign.worker_pool import Order, PoolWorker

#: In place of the package: `WORD... --results DIR` does what the first word says.
PROGRAM = r"""
import os, pathlib, signal, subprocess, sys, time
word, results = sys.argv[1], pathlib.Path(sys.argv[-1])
log = os.environ.get("STAND_IN_LOG")
if log:
    with open(log, "a") as stream:
        gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        stream.write(f"{os.getpid()} {sys.argv[2]} {gpu} {time.time()}\n")
if word == "hang":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    time.sleep(60)
if word == "wait":
    time.sleep(float(sys.argv[3]))
if word == "lacks":
    sys.exit("kernelbench: no compiler here")
folder = results / "cpu" / "checks"
folder.mkdir(parents=True)
(folder / f"{sys.argv[2]}.json.gz").write_bytes(b"made by " + word.encode())
if log:
    with open(log, "a") as stream:
        stream.write(f"{os.getpid()} {sys.argv[2]} {gpu} {time.time()}\n")
sys.exit({"wrong": 3, "usage": 2}.get(word, 0))
"""


def archive_of(program: str = PROGRAM) -> CodeArchive:
    """An archive with a program in place of kernelbench."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("code/kernelbench/__init__.py", "")
        archive.writestr("code/kernelbench/__main__.py", program)
        archive.writestr("project/pyproject.toml", "")
    return CodeArchive(buffer.getvalue(), "0" * 40 + str(hash(program)), "1", "project")


def piece(name: str, word: str = "fine", *more: str, on_gpu: bool = False) -> Piece:
    """A piece of a name of its own."""
    return Piece(f"{name:0>8}", (word, name, *more), word, on_gpu)


def order_of(found: Piece, limit_s: float = 30.0, gpu: bool = False, **environment: str) -> Order:
    """What a worker is given."""
    return {
        "key": found.key, "arguments": [*found.arguments], "limit_s": limit_s, "gpu": gpu,
        "environment": environment,
    }  # fmt: skip


def report_of(order: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A worker's report of a piece that went well."""
    found: dict[str, Any] = {
        "key": order["key"], "code": 0, "fault": "", "host": "node", "gpu": "", "seconds": 2.0,
        "tail": "", "files": {},
    }  # fmt: skip
    return found | changes


class ObedientPool:
    """Workers in this process: ``answer`` says what a worker returns for an order, None nothing."""

    def __init__(
        self,
        names: Sequence[str],
        answer: Callable[[str, Order], dict[str, Any] | None],
    ) -> None:
        self.here = [PoolWorker(name, f"host of {name}", 1) for name in names]
        self.answer = answer
        self.given: list[tuple[str, str]] = []
        self.most = 0
        self._waiting: list[tuple[str, Order]] = []

    def workers(self) -> Sequence[PoolWorker]:
        return list(self.here)

    def unfit(self) -> dict[str, str]:
        return {}

    def start(self, worker: PoolWorker, order: Order) -> None:
        self.given.append((worker.address, order["key"].split("-")[0]))
        self._waiting.append((worker.address, order))
        self.most = max(self.most, len(self._waiting))

    def give_up(self, key: str) -> None:
        self._waiting = [each for each in self._waiting if each[1]["key"] != key]

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        answers = [(name, order, self.answer(name, order)) for name, order in self._waiting]
        self._waiting = [(name, order) for name, order, found in answers if found is None]
        return [found for _, _, found in answers if found is not None]

    def close(self) -> None:
        pass


class Sweep:
    """An engine with what it takes, in a results folder."""

    def __init__(self, results: Path, pool: Any, *, gpu: bool = False, patience_s: float = 0.0):
        self.told: list[str] = []
        self.faults: list[PieceFault] = []
        self.outcomes = OutcomeFiles(results, "trial")
        self.eta = Eta()
        self.engine = Engine(
            pool,
            self.outcomes,
            self.eta,
            EngineSettings(30.0, gpu, {}, patience_s),
            self.told.append,
            self.faults.append,
        )

    def run(self, pieces: Sequence[Piece]) -> Engine:
        for each in pieces:
            self.eta.left[each.like] += self.outcomes.find(each.key) is None
        self.engine.run(iter(pieces))
        return self.engine


def run_files(identifier: str, **changes: Any) -> dict[str, bytes]:
    """The files of a run, as a worker returns them."""
    record = run_record(result_row(**changes), id=identifier, created="2030-01-01T00:00:00+00:00")
    return {
        f"nvidia-h200/runs/{identifier}.json.gz": gzip.compress(
            json.dumps(schema.encode(record)).encode()
        ),
        f"nvidia-h200/runs/{identifier}.samples.json.gz": gzip.compress(b'[{"call": [1.0]}]'),
    }
