"""``kernelbench doctor``: every row has a state that can change, and a broken torch is a row."""

from __future__ import annotations

import getpass
import json
import socket
import sys

import pytest

from kernelbench.base.errors import EnvironmentProblem, ExitCode
from kernelbench.cli import invoke as run
from kernelbench.inspection import doctor
from kernelbench.inspection.doctor import DoctorRow
from kernelbench.machine import clocks, devices

ARCH = {"python": "any", "step": "sm_100a"}
STEP = """name = "{name}"
title = "t"
technique = "t"
hypothesis = "h"
arch = "{arch}"
kind = "{kind}"
status = "{status}"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a Python step that works and a compiled step that is planned; no GPU."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["steps"]\n')
    steps = tmp_path / "steps"
    for name, kind, status in (("a00", "python", "works"), ("a01", "step", "planned")):
        (steps / name).mkdir(parents=True)
        (steps / name / "step.toml").write_text(
            STEP.format(name=name, arch=ARCH[kind], kind=kind, status=status)
        )
    (steps / "a00" / "submission.py").write_text("def custom_kernel(data):\n    return data\n")
    (steps / "lineage.toml").write_text('name = "mine"\ntitle = "t"\nproblem = "p.py:PROBLEM"\n')
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def rows_of(record):
    return {row["name"]: row for row in record["rows"]}


def test_json_and_table_tell_the_same(project, capsys):
    assert run(["doctor", "--json", str(project / "doctor.json")]) == ExitCode.PASS
    table = capsys.readouterr().out
    text = (project / "doctor.json").read_text()
    record = json.loads(text)
    assert record["schema"] == "kernelbench.doctor/1"
    assert record["usable"] is True
    assert record["executors"] == {
        "gpu": False,
        "gpu-soft": False,
        "emulator": False,
        "torch": True,
    }
    found = rows_of(record)
    assert found["GPU"]["state"] == "missing"
    assert found["torch"]["state"] == "ok"
    assert "runs 1 step(s): a00" in found["executor torch"]["detail"]
    assert "1 planned" in found["executor emulator"]["detail"]
    assert {row["state"] for row in record["rows"]} <= {"ok", "warn", "missing"}
    for name in found:
        assert name in table
    assert "steps can run here with: torch" in table
    for private in (socket.gethostname(), getpass.getuser()):
        assert len(private) < 4 or f"/{private}/" not in text


def test_stdout_json_stands_alone(project, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "check_torch", lambda: DoctorRow("torch", "ok", "2.13"))
    assert run(["doctor", "--json", "-"]) == ExitCode.PASS
    assert json.loads(capsys.readouterr().out)["usable"] is True


def test_exit_code_where_nothing_runs(project, capsys, monkeypatch):
    broken = DoctorRow("torch", "missing", "importing it fails: ImportError: libc10.so")
    monkeypatch.setattr(doctor, "check_torch", lambda: broken)
    assert run(["doctor"]) == ExitCode.ENVIRONMENT
    out = capsys.readouterr().out
    assert "no step can run here" in out
    assert "libc10.so" in out


def test_no_project_is_a_row(project, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "check_torch", lambda: DoctorRow("torch", "ok", "2.13"))
    (project / "steps" / "lineage.toml").unlink()
    assert run(["doctor", "--json", "-"]) == ExitCode.ENVIRONMENT
    assert rows_of(json.loads(capsys.readouterr().out))["project"]["state"] == "missing"


@pytest.mark.parametrize(
    ("code", "state", "said"),
    [
        ("raise ImportError('libc10.so: undefined symbol')", "missing", "undefined symbol"),
        ("import os; os.kill(os.getpid(), 11)", "missing", "status -11"),
        ("import time; time.sleep(60)", "missing", "took over"),
        ("print('noise')", "missing", "fails"),
        (
            'print(\'noise\'); print(\'{"version": "2.13", "cuda": null, "gpus": 0}\')',
            "ok",
            "CPU build",
        ),
    ],
)
def test_torch_is_imported_elsewhere(code, state, said):
    row = doctor.check_torch((sys.executable, "-c", code), limit_s=2)
    assert row.state == state
    assert said in row.detail
    assert "\n" not in row.detail


def test_torch_that_sees_no_gpu(monkeypatch):
    gpu = devices.GpuInfo(0, "NVIDIA H200", (9, 0), 1, "", "13.0", False)
    monkeypatch.setattr(devices, "gpus", lambda: [gpu])
    code = 'print(\'{"version": "2.13+cpu", "cuda": null, "gpus": 0}\')'
    row = doctor.check_torch((sys.executable, "-c", code))
    assert row.state == "warn"
    assert "CUDA build" in row.action


def test_clock_rows():
    cool = clocks.ClockReading(1980.0, 3201.0, 40.0, 100.5, (), 0)
    row = doctor.clocks_row(0, cool)
    assert (row.state, row.action) == ("ok", "")
    assert row.detail == (
        "SM 1980 MHz; memory 3201 MHz; temperature 40 °C; power 100 W; P0; not throttled"
    )
    hot = clocks.ClockReading(1200.0, None, None, None, ("hardware thermal slowdown",), None)
    row = doctor.clocks_row(1, hot)
    assert (row.name, row.state) == ("clocks 1", "warn")
    assert row.detail == "SM 1200 MHz; clock held by: hardware thermal slowdown"


def test_folder_rows(tmp_path):
    roomy = doctor.folder_row("x", tmp_path / "deep" / "er", "do", lambda _: (9, 9, 5 << 40))
    assert roomy.state == "ok"
    tight = doctor.folder_row("x", tmp_path, "do", lambda _: (9, 9, 1 << 30))
    assert tight.state == "warn"
    assert tight.action == "free space, or do"
    (tmp_path / "file").write_text("")
    blocked = doctor.folder_row("x", tmp_path / "file" / "y", "do")
    assert (blocked.state, blocked.action) == ("missing", "do")


def test_home_is_not_spelled_out(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor.home_relative(tmp_path / "a" / "b") == "~/a/b"
    assert doctor.home_relative(tmp_path.parent) == str(tmp_path.parent)


@pytest.mark.parametrize(
    ("package", "module", "action"),
    [
        ("pyelftools", "elftools", "`pip install pyelftools`"),
        ("triton", "triton", "`pip install triton==3.6.0`"),
        ("matplotlib", "matplotlib", "`pip install matplotlib`"),
        ("libclang", "clang", "`pip install libclang`"),
        ("clang-format", "clang_format", "`pip install clang-format`"),
    ],
)
def test_a_package_is_a_row_that_can_change(monkeypatch, package, module, action):
    """Messages name `doctor` where one of them is missing."""

    def row():
        return next(each for each in doctor.package_rows() if each.name == package)

    monkeypatch.setattr(doctor.shutil, "which", lambda _: None)
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: object())
    assert row().state == "ok"
    monkeypatch.setattr(doctor.importlib.util, "find_spec", {}.get)
    assert (row().state, row().action) == ("warn", action)
    assert row().detail.startswith("not installed: ")


def test_files_are_checked_without_torch(monkeypatch):
    monkeypatch.setattr(doctor, "emulator_compiler", lambda: None)
    monkeypatch.setattr(doctor.compiler, "nvcc", lambda: object())
    assert doctor.files_row() == DoctorRow("emulator of files", "ok", "checks .ptx and .cu files")
    monkeypatch.setattr(doctor.compiler, "nvcc", lambda: None)
    assert "take nvcc" in doctor.files_row().detail

    def none():
        raise EnvironmentProblem("no compiler")

    monkeypatch.setattr(doctor, "emulator_compiler", none)
    assert doctor.files_row().state == "missing"
