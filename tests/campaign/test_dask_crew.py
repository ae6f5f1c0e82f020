"""A real cluster of two processes: pieces reach both, and one is killed in the middle."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from stand_ins import Sweep, archive_of, piece

pytest.importorskip("distributed", reason="the extra 'campaign' is not installed")

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.campaign.dask_crew import DaskCrew, local_cluster


def test_a_worker_is_killed_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was done is lost or done again; the lost piece is named, and done."""
    log = tmp_path / "log"
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STAND_IN_LOG", str(log))
    pieces = [piece(f"{i}", "wait", "0.1") for i in range(16)]
    killed: list[int] = []
    with local_cluster(2, []) as address:
        crew = DaskCrew(address, archive_of())
        try:
            sweep = Sweep(tmp_path / "results", crew, patience_s=20)

            def kill_one(_text: str) -> None:
                if sweep.engine.done >= 3 and not killed:
                    (first, *_) = crew._client.run(os.getpid).values()
                    killed.append(first)
                    os.kill(first, signal.SIGKILL)

            sweep.engine._on_progress = kill_one
            engine = sweep.run(pieces)
        finally:
            crew.close()
    assert engine.done == len(pieces)
    assert engine.missing == []
    assert engine.most_workers == 2
    assert len(list((tmp_path / "results").glob("cpu/checks/*"))) == len(pieces)
    assert killed
    # None if it was killed between two pieces.
    assert [fault.why for fault in sweep.faults] in ([], ["the worker has gone"])
    began = Counter(line.split()[1] for line in log.read_text().splitlines())
    lost = {fault.piece.split()[2] for fault in sweep.faults}
    assert {name for name, times in began.items() if times != 2} <= lost


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelbench.campaign.dask_crew._CONNECT_S", 0.5)
    with pytest.raises(EnvironmentProblem, match="no Dask scheduler answers at tcp://127"):
        DaskCrew("tcp://127.0.0.1:9", archive_of())
