"""Records: atomic writes, strict reading, summaries."""

from __future__ import annotations

import errno
import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT, environment_of

from kernelbench.base import files, json_file
from kernelbench.base.errors import EnvironmentProblem, RecordError
from kernelbench.records import metrics, run_record


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_text(path, "old")
    with pytest.raises(RuntimeError), files.atomic_write(path) as stream:
        stream.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupt_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(KeyboardInterrupt), files.atomic_write(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_reader_never_sees_the_new_file_before_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x"
    files.write_text(path, "old")
    with files.atomic_write(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o644


def test_folders_are_made(tmp_path: Path) -> None:
    json_file.write_json(tmp_path / "a" / "b" / "x.json", {"y": (1, 2.5, None)})
    assert json_file.read_json(tmp_path / "a" / "b" / "x.json") == {"y": [1, 2.5, None]}


@pytest.mark.parametrize("place", ["file/x.json", "folder"])
def test_what_cannot_be_written_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(EnvironmentProblem) as caught:
        files.write_text(tmp_path / place, "x")
    assert f"cannot write {tmp_path / place}" in str(caught.value)
    # Room would not help, and a file of --json or -o is not chosen with --results.
    assert caught.value.hint == "write elsewhere; nothing was half-written"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


def test_a_pipe_is_written_and_stays_one(tmp_path: Path) -> None:
    """As root, a rename over /dev/null would take it from the whole machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)
    try:
        files.write_text(pipe, "text")
        assert os.read(reader, 10) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from kernelbench.base.json_file import write_json
from kernelbench.records.run_record import write_samples
from kernelbench.base.errors import EnvironmentProblem
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
value = [str(i * 7919 % 10007) for i in range(5000)]
try:
    globals()[sys.argv[1]](Path(sys.argv[2]), value)
except EnvironmentProblem as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("function", ["write_json", "write_samples"])
@pytest.mark.parametrize("room", [0, 5000])
def test_a_full_disk(function: str, room: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, function, str(path), str(room)],
        capture_output=True,
        text=True,
        env=environment_of(ROOT),
    )
    assert done.returncode == 5, done.stderr
    assert done.stderr == ""
    assert f"cannot write {path}: {os.strerror(errno.EFBIG)}" in done.stdout
    assert "; free space or write elsewhere; nothing was half-written" in done.stdout
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
from pathlib import Path
from kernelbench.base import files
with files.atomic_write(Path(sys.argv[1])) as stream:
    stream.write(b"half")
    stream.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_in_the_middle_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("old")
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)], env=environment_of(ROOT), check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_nan_is_written_as_null(tmp_path: Path) -> None:
    json_file.write_json(tmp_path / "x", {"a": float("nan"), "b": [float("inf"), 1.0]})
    assert json.loads((tmp_path / "x").read_text()) == {"a": None, "b": [None, 1.0]}


def test_samples_round_trip_and_are_reproducible(tmp_path: Path) -> None:
    value = [{"t_us": [1.25, 2.5], "arm": [0, 1]}]
    run_record.write_samples(tmp_path / "a", value)
    run_record.write_samples(tmp_path / "b", value)
    assert run_record.read_samples(tmp_path / "a") == value
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    "data",
    [b"", b"plain", gzip.compress(b"[1, 2")[:-3], gzip.compress(b"[1, 2")],
    ids=["empty", "plain", "cut gzip", "cut JSON"],
)
def test_broken_samples_are_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        run_record.read_samples(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\x00", b'{"a": 1} trailing'])
def test_broken_json_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    with pytest.raises(RecordError) as caught:
        json_file.read_json(path)
    assert str(path) in str(caught.value)


def test_summary_keeps_every_sample() -> None:
    times = [*range(1, 100), 1e6]
    stats = metrics.summarize(times, "wall")
    assert stats.reps == 100
    assert stats.median == 50.5
    assert stats.mean == pytest.approx(np.mean(times))
    assert stats.std == pytest.approx(np.std(times, ddof=1))
    assert (stats.min, stats.p05, stats.p95) == (1, pytest.approx(5.95), pytest.approx(95.05))
    assert metrics.summarize([2.0], "wall").std == 0.0
    with pytest.raises(ValueError, match="no samples"):
        metrics.summarize([], "wall")


def test_ids_sort_by_time_and_are_unique() -> None:
    ids = [run_record.new_id() for _ in range(200)]
    assert len(set(ids)) == 200
    assert all(a[:16] <= b[:16] for a, b in itertools.pairwise(ids))


@pytest.mark.parametrize(
    ("device", "slug"),
    [("NVIDIA H200", "nvidia-h200"), ("CPU x, 2 cores", "cpu-x-2-cores"), ("../é", "unknown"),
     ("", "unknown")],
)  # fmt: skip
def test_slugs(device: str, slug: str) -> None:
    assert run_record.device_slug(device) == slug


def test_runs_of_all_devices_oldest_first(tmp_path: Path) -> None:
    for device, name in (("b", "1.json"), ("a", "2.json"), ("b", "3.json")):
        files.write_text(tmp_path / device / "runs" / name, "")
    files.write_text(tmp_path / "a" / "calibration" / "0.json", "")
    assert [p.name for p in run_record.list_runs(tmp_path)] == ["1.json", "2.json", "3.json"]
