"""What a worker does: code unpacked once, limits, no process left behind, a GPU for one piece."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import processes_with, python_path
from stand_ins import archive_of, order_of, piece

from kernelbench.campaign.piece_process import PieceRunner

ARCHIVE = archive_of()


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PieceRunner:
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    return PieceRunner(ARCHIVE.data, ARCHIVE.sha, ARCHIVE.root)


def test_a_piece_returns_what_it_has_written(runner: PieceRunner, tmp_path: Path) -> None:
    report = runner.run(order_of(piece("1")))
    assert report["fault"] == ""
    assert report["code"] == 0
    assert report["files"] == {"cpu/checks/1.json.gz": b"made by fine"}
    assert report["host"]
    (code,) = (tmp_path / "cache" / "campaigns").iterdir()
    assert code.name == ARCHIVE.sha


def test_codes_and_words_come_back(runner: PieceRunner) -> None:
    assert runner.run(order_of(piece("1", "wrong")))["code"] == 3
    report = runner.run(order_of(piece("1", "lacks")))
    assert (report["code"], report["tail"].strip()) == (1, "kernelbench: no compiler here")


def test_a_piece_that_hangs_is_ended_with_all_it_started(runner: PieceRunner) -> None:
    mark = f"mark-of-{os.getpid()}"
    report = runner.run(order_of(piece("1", "hang"), limit_s=1.5, MARK=mark))
    assert report["fault"] == "no end within 1.5 s"
    assert report["files"] == {}
    gone_by = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < gone_by:
        time.sleep(0.05)
    assert processes_with(mark) == []


def test_stopping_ends_what_runs(runner: PieceRunner) -> None:
    reports: list[dict[str, Any]] = []
    thread = threading.Thread(
        target=lambda: reports.append(runner.run(order_of(piece("1", "hang"))))
    )
    thread.start()
    while not runner._running:
        time.sleep(0.01)
    runner.stop()
    thread.join(20)
    assert reports[0]["code"] == -signal.SIGKILL
    assert runner.run(order_of(piece("2", "hang")))["fault"] == "stopped"


def test_a_killed_worker_leaves_no_command_behind(tmp_path: Path) -> None:
    mark, log = f"mark-of-killed-{os.getpid()}", tmp_path / "log"
    code = (
        "from stand_ins import *\n"
        "from kernelbench.campaign.piece_process import PieceRunner\n"
        "a = archive_of()\n"
        f"PieceRunner(a.data, a.sha, a.root).run(order_of(piece('1', 'wait', '60'), "
        f"MARK='{mark}', STAND_IN_LOG='{log}'))\n"
    )
    paths = python_path(Path(__file__).parent, Path(__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": paths, "KERNELBENCH_CACHE": str(tmp_path)}
    worker = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while not log.exists():
        assert worker.poll() is None
        time.sleep(0.02)
    assert processes_with(mark)
    worker.kill()
    worker.wait()
    gone_by = time.monotonic() + 10
    while processes_with(mark) and time.monotonic() < gone_by:
        time.sleep(0.05)
    assert processes_with(mark) == []


def test_a_disk_that_takes_no_code_is_a_fault(
    runner: PieceRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "file" / "cache"))
    assert "Not a directory" in runner.run(order_of(piece("1")))["fault"]


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    mark = os.getpid()
    rows = "".join(f"{i}, NVIDIA H200, GPU-{mark}-{i}\\n" for i in range(2))
    program.write_text(f"#!/bin/sh\nprintf '{rows}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(("visible", "gpus"), [(None, {"0", "1"}), ("1", {"1"})])
def test_a_gpu_has_one_piece_at_a_time(
    runner: PieceRunner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str | None,
    gpus: set[str],
) -> None:
    """Four pieces at once; by the log no two were at one GPU at the same time."""
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    log = tmp_path / "log"
    found = [piece(f"{i}", "wait", "0.2") for i in range(4)]
    reports: list[dict[str, Any]] = []

    def work(number: int) -> None:
        order = order_of(found[number], gpu=True, STAND_IN_LOG=str(log))
        reports.append(runner.run(order))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [each["fault"] for each in reports] == [""] * 4
    assert all("NVIDIA H200 (GPU-" in each["gpu"] for each in reports)
    here: dict[str, str] = {}
    seen = set()
    for line in log.read_text().splitlines():
        _, name, gpu, _ = line.split()
        seen.add(gpu)
        if gpu in here:
            assert here.pop(gpu) == name, "another piece was there"
        else:
            here[gpu] = name
    assert seen == gpus


def test_without_a_gpu_there_is_none(runner: PieceRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "no GPU" in runner.run(order_of(piece("1"), gpu=True))["fault"]
