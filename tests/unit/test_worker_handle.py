"""The watchdog of a worker, with a clock and counts of waiting that the tests turn."""

from __future__ import annotations

import os
import tempfile
from types import SimpleNamespace
from typing import Any

import pytest

from kernelbench.worker import worker_handle
from kernelbench.worker.worker_handle import START_LIMIT_S, WorkerHandle


@pytest.mark.parametrize("waited", [0.0, 70.0])
def test_time_without_a_core_is_not_the_workers(
    waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody answers; of the first seconds it waits for a core, as the machine counts."""
    clock = SimpleNamespace(now=0.0)
    killed: list[float] = []

    def select(_reads: Any, _writes: Any, _errors: Any, seconds: float) -> tuple[Any, Any, Any]:
        clock.now += seconds
        return [], [], []

    monkeypatch.setattr(worker_handle, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(worker_handle, "select", SimpleNamespace(select=select))
    monkeypatch.setattr(worker_handle, "queued_s", lambda _task: min(clock.now, waited))
    monkeypatch.setattr(worker_handle, "kill_group", lambda _pid: killed.append(clock.now))
    read_end, write_end = os.pipe()
    with tempfile.TemporaryFile() as log:
        worker = WorkerHandle(os.getpid(), read_end, -1, log, gated=False, reap=lambda _pid: 9)
        assert not [*worker.messages()]
        worker.close()
    os.close(write_end)
    assert killed == [START_LIMIT_S + waited]
    assert worker.ending is not None and worker.ending.kind == "hang"


def test_a_worker_may_end_while_its_threads_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_given: Any) -> Any:
        raise FileNotFoundError("it has ended")

    worker = WorkerHandle.__new__(WorkerHandle)
    worker._pid = os.getpid()
    monkeypatch.setattr(os, "scandir", gone)
    monkeypatch.setattr(os, "listdir", gone)
    assert worker._queued_by_thread() == {}
