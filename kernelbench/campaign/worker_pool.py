"""Who runs pieces: the interface that the engine knows, and this process alone."""

from __future__ import annotations

import contextlib
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
    """One that runs pieces."""

    address: str  #: What tells it from every other; one that is started again has another.
    host: str
    slots: int  #: How many pieces it runs at the same time.


class WorkerPool(Protocol):
    """Workers, which may come and go."""

    def workers(self) -> Sequence[PoolWorker]:
        """Who can be given a piece now."""

    def unfit(self) -> dict[str, str]:
        """Those that are there and cannot be used: why, by name."""
        return {}

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Have a worker carry out a piece."""

    def give_up(self, key: str) -> None:
        """Wait no longer for a piece whose worker has gone."""

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """What came back since, as :meth:`PieceRunner.run` returns it; waits for the first."""

    def close(self) -> None:
        """End what runs, and let the workers go."""


#: Reports that come from other threads.
ReportQueue = queue.SimpleQueue[dict[str, Any]]


def all_reports(reports: ReportQueue, timeout_s: float) -> list[dict[str, Any]]:
    """Those that are there; the first is waited for."""
    found = []
    with contextlib.suppress(queue.Empty):
        found.append(reports.get(timeout=timeout_s))
        while True:
            found.append(reports.get_nowait())
    return found


class LocalPool(WorkerPool):
    """This process, one piece after another; it needs no Dask."""

    def __init__(self, archive: CodeArchive) -> None:
        self._runner = PieceRunner(archive.data, archive.sha, archive.root)
        self._worker = PoolWorker("here", os.uname().nodename, 1)
        self._reports: ReportQueue = queue.SimpleQueue()

    def workers(self) -> Sequence[PoolWorker]:
        """The one worker: this process."""
        return [self._worker]

    def start(self, worker: PoolWorker, order: Order) -> None:
        """Run a piece beside the engine."""
        threading.Thread(
            target=lambda: self._reports.put(self._runner.run(order)), daemon=True
        ).start()

    def give_up(self, key: str) -> None:
        """Nothing: this process does not go."""

    def reports(self, timeout_s: float) -> list[dict[str, Any]]:
        """What came back."""
        return all_reports(self._reports, timeout_s)

    def close(self) -> None:
        """End what runs."""
        self._runner.stop()
