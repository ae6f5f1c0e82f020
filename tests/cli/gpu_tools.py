"""A GPU that is not there, and programs that print what NVIDIA's tools print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import write_project

from kernelbench.machine import devices
from kernelbench.machine.devices import GpuInfo, TorchInfo

H200 = GpuInfo(0, "NVIDIA H200", (9, 0), 141 << 30, "580.65", "13.0", False)

#: It runs no program: it writes its log and, where asked, what the step's process would have said.
PROGRAM = """\
#!{python}
import json, os, pathlib, sys, time

told = json.loads(pathlib.Path({told!r}).read_text())
words = sys.argv[1:]
if words == ["--version"]:
    print(told["version"])
    sys.exit(told["version_code"])
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([words, dict(os.environ)]) + "\\n")
log = pathlib.Path(words[words.index("--log-file") + 1])
tool = words[words.index("--tool") + 1] if "--tool" in words else ""
logs = told["logs"]
log.write_text(logs.get(tool, logs.get("", "")))
print(told["prints"])
if told["outcome"] is not None:
    pathlib.Path(words[-1]).write_text(json.dumps(told["outcome"]))
sys.stdout.flush()
time.sleep(told["sleeps"])
sys.exit(told["code"])
"""

DONE = {"status": "done", "reason": "", "launches": [], "work_bytes": None}


class FakeTool:
    """A program on ``PATH`` that says what it is told to say."""

    def __init__(self, folder: Path, name: str, version: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._told = folder / f"{name}.told"
        self._calls = folder / f"{name}.calls"
        self._version = version
        program = folder / name
        program.write_text(
            PROGRAM.format(python=sys.executable, told=str(self._told), calls=str(self._calls))
        )
        program.chmod(0o755)
        self.says()

    def says(
        self,
        log: str = "",
        *,
        logs: dict[str, str] | None = None,
        outcome: dict[str, Any] | None = DONE,
        prints: str = "",
        code: int = 0,
        sleeps: float = 0.0,
        version: str | None = None,
        version_code: int = 0,
    ) -> None:
        """Choose what it does from now on; ``logs`` is by ``--tool``."""
        told = {
            "logs": logs if logs is not None else {"": log},
            "outcome": outcome, "prints": prints, "code": code, "sleeps": sleeps,
            "version": self._version if version is None else version, "version_code": version_code,
        }  # fmt: skip
        self._told.write_text(json.dumps(told))

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of each call but ``--version``."""
        return [words for words, _ in self._recorded()]

    @property
    def environments(self) -> list[dict[str, str]]:
        """The environment of each call."""
        return [environment for _, environment in self._recorded()]

    def _recorded(self) -> list[Any]:
        if not self._calls.exists():
            return []
        return [json.loads(line) for line in self._calls.read_text().splitlines()]


@pytest.fixture
def on_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process takes itself to be on an H200, with a torch for it."""
    monkeypatch.setattr(devices, "gpus", lambda: [H200])
    monkeypatch.setattr(devices, "torch_info", lambda: TorchInfo("2.11.0", "13.0"))


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_source: str, on_h200: None
) -> Path:
    """A project with a Python step, ``w0``; its logs go below ``tmp_path``."""
    root = write_project(tmp_path / "project", {"w0": right_source})
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    return root


@pytest.fixture
def fake_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], FakeTool]:
    """Put a program with a name and a version on ``PATH``."""

    def make(name: str, version: str) -> FakeTool:
        folder = tmp_path / "bin"
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return FakeTool(folder, name, version)

    return make
