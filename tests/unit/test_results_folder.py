"""Results that cannot be written are refused before anything is measured."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.runs.settings import require_writable_results

DEVICE = "NVIDIA H200"


def test_a_folder_that_takes_files(tmp_path: Path) -> None:
    require_writable_results(tmp_path / "not" / "yet", [DEVICE])
    (tmp_path / "nvidia-h200" / "runs").mkdir(parents=True)
    require_writable_results(tmp_path, [DEVICE])
    assert [path.name for path in tmp_path.rglob("*")] == ["nvidia-h200", "runs"]


@pytest.mark.parametrize("file", ["r", "r/nvidia-h200", "r/nvidia-h200/runs"])
def test_a_file_in_the_way(tmp_path: Path, file: str) -> None:
    place = tmp_path / file
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("")
    with pytest.raises(EnvironmentProblem, match=f"{place} is not a writable folder; choose"):
        require_writable_results(tmp_path / "r", [DEVICE])


def test_another_devices_folder_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "nvidia-b200").write_text("")
    require_writable_results(tmp_path, [DEVICE])


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no /proc")
def test_where_permissions_do_not_tell() -> None:
    """Root may write in /proc, as permissions say, and cannot make a file there."""
    with pytest.raises(EnvironmentProblem, match="/proc is not a writable folder"):
        require_writable_results(Path("/proc/results"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_devices_folder_without_permission(tmp_path: Path) -> None:
    runs = tmp_path / "nvidia-h200" / "runs"
    runs.mkdir(parents=True)
    runs.chmod(0o555)
    with pytest.raises(EnvironmentProblem, match=f"{runs} is not"):
        require_writable_results(tmp_path, [DEVICE])
