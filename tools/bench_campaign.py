"""What a campaign costs beside its pieces: seconds a piece, and the client's memory.

python tools/bench_campaign.py                        1,000 pieces of 10 ms on two workers
python tools/bench_campaign.py --pieces 1000 --workers 4

Pieces go through the same engine, outcome files and Dask cluster as those of ``kernelbench sweep``:
once as a sleep in the worker, once as a process that only starts Python and sleeps. The memory is
that of a generator of 100,000 pieces that cost nothing, through the engine alone, and of twice
--pieces through Dask. Nothing fails for being slow; nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelbench.campaign.code_archive import CodeArchive
from kernelbench.campaign.dask_pool import DaskPool, local_cluster
from kernelbench.campaign.engine import Engine, EngineSettings, Eta
from kernelbench.campaign.outcome_files import OutcomeFiles, PieceOutcome
from kernelbench.campaign.pieces import Piece
from kernelbench.campaign.worker_pool import Order, PoolWorker, WorkerPool

PIECE_S = 0.01
PROGRAM = f"import time; time.sleep({PIECE_S})"


class KeepsNothing(OutcomeFiles):
    """Outcomes that are forgotten, where files are not what is measured."""

    def find(self, key: str) -> PieceOutcome | None:
        """None is ever there."""

    def keep(self, outcome: PieceOutcome, made: Mapping[str, bytes]) -> PieceOutcome:
        """Forget it."""
        return outcome

    def merge(self, outcome: PieceOutcome) -> PieceOutcome:
        """Nothing to do."""
        return outcome


class InstantCrew:
    """Two workers that have done each piece at once."""

    def __init__(self) -> None:
        self._done: list[dict[str, Any]] = []

    def workers(self) -> Sequence[PoolWorker]:
        """Both."""
        return [PoolWorker("a", "here", 1), PoolWorker("b", "here", 1)]

    def unfit(self) -> dict[str, str]:
        """Nobody."""
        return {}

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Do it."""
        self._done.append(nothing(0.0)(order))

    def give_up(self, key: str) -> None:
        """Nothing."""

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """All."""
        found, self._done = self._done, []
        return found

    def close(self) -> None:
        """Nothing."""


def nothing(seconds: float) -> Callable[[Order], dict[str, Any]]:
    """A task that sleeps; a function within a function goes to a worker by value."""

    def run(order: Order) -> dict[str, Any]:
        time.sleep(seconds)
        return {
            "key": order["key"], "code": 0, "fault": "", "host": "", "gpu": "",
            "seconds": seconds, "tail": "", "files": {},
        }  # fmt: skip

    return run


def pieces(number: int) -> Iterator[Piece]:
    """Pieces that are made as they are asked for."""
    for i in range(number):
        yield Piece(f"{i:032x}", ("run", str(i)), "run", False)


def small_archive() -> CodeArchive:
    """An archive with a program that only sleeps in place of kernelbench."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("code/kernelbench/__init__.py", "")
        archive.writestr("code/kernelbench/__main__.py", PROGRAM)
        archive.writestr("project/pyproject.toml", "")
    return CodeArchive(buffer.getvalue(), f"bench-{os.getpid()}", "", "project")


def seconds_of(pool: WorkerPool, outcomes: OutcomeFiles, number: int) -> float:
    """Seconds that a sweep of so many pieces takes."""
    settings = EngineSettings(60.0, False, {}, 5.0)
    engine = Engine(pool, outcomes, Eta(), settings, lambda _text: None, print)
    began = time.perf_counter()
    engine.run(pieces(number))
    assert engine.done == number, f"{engine.done} of {number} pieces"
    return time.perf_counter() - began


def peak_mib() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description="What a campaign costs beside its pieces.")
    parser.add_argument("--pieces", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    number, workers = asked.pieces, asked.workers
    print(f"load at the start {os.getloadavg()[0]:.1f}")
    seconds_of(InstantCrew(), KeepsNothing(Path(), ""), 1000)
    small = peak_mib()
    took = seconds_of(InstantCrew(), KeepsNothing(Path(), ""), 100_000)
    print(f"engine alone, 100,000 pieces: {1e6 * took / 100_000:.0f} us a piece,")
    print(f"  peak memory {small:.1f} MiB after 1,000, {peak_mib():.1f} MiB after 100,000")
    with tempfile.TemporaryDirectory() as folder, local_cluster(workers, []) as address:
        pool = DaskPool(address, small_archive())
        try:
            os.environ["KERNELBENCH_CACHE"] = folder
            places = [OutcomeFiles(Path(folder), name) for name in ("warm", "process", "sleep")]
            seconds_of(pool, places[0], 2 * workers)
            for what, place in (("a process each", places[1]), ("a sleep each", places[2])):
                if place is places[2]:
                    pool.task = nothing(PIECE_S)
                took = seconds_of(pool, place, number)
                beside = took * workers / number - PIECE_S
                print(f"Dask, {workers} workers, {number} pieces of 10 ms, {what}: {took:.2f} s,")
                print(f"  {1e3 * beside:.1f} ms of a worker beside its piece")
            pool.task = nothing(0.0)
            before = peak_mib()
            seconds_of(pool, KeepsNothing(Path(), ""), 2 * number)
            print(
                f"Dask, {2 * number} more: client {before:.1f} MiB before, {peak_mib():.1f} after"
            )
        finally:
            pool.close()
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
