"""The composite action, as a runner would call its last step: inputs become its environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, TINY, environment_of, write_project

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
_EXPRESSION = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")


def call(project: Path, **given: str) -> subprocess.CompletedProcess[str]:
    """The step ``command``, with these inputs and the defaults of the others."""
    inputs = {name: str(value["default"]) for name, value in ACTION["inputs"].items()}
    inputs |= {"python": sys.executable} | {k.replace("_", "-"): v for k, v in given.items()}
    (step,) = (step for step in ACTION["runs"]["steps"] if step["id"] == "command")
    env = {
        name: _EXPRESSION.sub(lambda match: inputs[match[1]], value)
        for name, value in step["env"].items()
    }
    assert not any("${{" in value for value in env.values() if "github" not in value)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=project, env=environment_of(project) | env, capture_output=True, text=True, timeout=150,
    )  # fmt: skip


@pytest.fixture
def project(tmp_path: Path, right_source: str) -> Path:
    wrong = right_source.replace("] = product", "] = product + 1")
    return write_project(tmp_path / "p", {"right": right_source, "wrong": wrong})


def test_run(project: Path) -> None:
    done = call(project, mode="run", steps="right", shapes=f"u0 {TINY}")
    assert done.returncode == 0, done.stderr
    assert "2 passed of 2" in done.stdout
    assert not (project / "results").exists()
    assert call(project, mode="run", steps="right wrong", shapes="u0").returncode == 3


def test_check(project: Path) -> None:
    more = "--schedules 1 --sms 2"
    done = call(project, steps="v22", shapes="u1", sarif="found.sarif", arguments=more)
    assert done.returncode == 0, done.stderr
    assert "1 clean of 1" in done.stdout
    assert json.loads((project / "found.sarif").read_text())["runs"][0]["results"] == []
    assert not (project / "results").exists()


def test_a_gate_without_a_gpu_is_no_pass(project: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True, env=env)
    done = call(project, mode="gate", steps="right", shapes="u0", against="HEAD")
    assert done.returncode == 5
    assert "device time needs a GPU" in done.stderr


def test_an_unknown_mode(project: Path) -> None:
    done = call(project, mode="test")
    assert done.returncode == 2
    assert done.stderr == "kernelbench: mode is 'test': expected check, run or gate\n"
