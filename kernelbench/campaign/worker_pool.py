"""Who runs pieces: the interface that the engine knows, and this process alone."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kernelbench.campaign.code_archive import CodeArchive
from kernelbench.campaign.piece_process import PieceRunner

#: What is to be done, as plain values: see :meth:`PieceRunner.run`.
Order = dict[str, Any]


@dataclass(frozen=True)
class PoolWorker:
    """One that runs pieces.

    Attributes:
        address: What tells it from every other; one that is started again has another.
        slots: How many pieces it runs at the same time.
    """

    address: str
    host: str
    slots: int


class WorkerPool(Protocol):
    """Workers, which may come and go."""

    def workers(self) -> Sequence[PoolWorker]:
        """Who can be given a piece now."""

    def unfit(self) -> dict[str, str]:
        """Those that are there and cannot be used: why, by name."""

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Have a worker carry out a piece."""

    def give_up(self, key: str) -> None:
        """Wait no longer for a piece whose worker has gone."""

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """What came back since, as :meth:`PieceRunner.run` returns it; waits for the first."""

    def close(self) -> None:
        """End what runs, and let the workers go."""


class ReportQueue:
    """Reports that come from other threads."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def put(self, report: dict[str, Any]) -> None:
        """Add the report of a worker."""
        self._queue.put(report)

    def take(self, timeout_s: float) -> list[dict[str, Any]]:
        """Those that are there; the first is waited for."""
        found = []
        try:
            found.append(self._queue.get(timeout=timeout_s))
            while True:
                found.append(self._queue.get_nowait())
        except queue.Empty:
            return found


class LocalPool:
    """This process, one piece after another; it needs no Dask."""

    def __init__(self, archive: CodeArchive) -> None:
        self._runner = PieceRunner(archive.data, archive.sha, archive.root)
        self._worker = PoolWorker("here", os.uname().nodename, 1)
        self._reports = ReportQueue()

    def workers(self) -> Sequence[PoolWorker]:
        """The one worker: this process."""
        return [self._worker]

    def unfit(self) -> dict[str, str]:
        """Nothing: this process can carry out every piece."""
        return {}

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Run a piece beside the engine."""
        threading.Thread(
            target=lambda: self._reports.put(self._runner.run(order)), daemon=True
        ).start()

    def give_up(self, key: str) -> None:
        """Nothing: this process does not go."""

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """What came back."""
        return self._reports.take(timeout_s)

    def close(self) -> None:
        """End what runs."""
        self._runner.stop()
