"""The pytest plug-in, in a project of somebody else's."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import COUNTED, environment_of, write_project

TESTS = """
import pytest


def test_right(kernelbench):
    assert kernelbench.assert_correct("right", "u0").results


def test_wrong(kernelbench):
    kernelbench.assert_correct(["right", "wrong"], "u0", inputs="gpu-mode")


def test_clean(kernelbench):
    report = kernelbench.assert_clean("v22", "u1", schedules=1, sms=(2,))
    assert report.rows()[0]["status"] == "clean"


def test_slower(kernelbench):
    kernelbench.assert_not_slower(
        "slow", than="right", shapes="u0", metric="call", reps=100, sessions=1, budget_s=5
    )


def test_unknown(kernelbench):
    kernelbench.run("rihgt")


@pytest.mark.kernelbench_needs(gpu=True)
def test_gpu(kernelbench):
    raise AssertionError("never called")


@pytest.mark.kernelbench_needs(step="no-module")
def test_step(kernelbench):
    raise AssertionError("never called")


@pytest.mark.kernelbench_needs(module="no_such_module.part")
def test_module(kernelbench):
    raise AssertionError("never called")


@pytest.mark.kernelbench_needs("gpu")
def test_marker(kernelbench):
    raise AssertionError("never called")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, right_source: str, slow_source: str) -> Path:
    wrong = right_source.replace("] = product", "] = product + 1")
    root = write_project(
        tmp_path_factory.mktemp("plugin") / "p",
        {"right": right_source, "slow": slow_source, "wrong": wrong, "no-module": right_source},
    )
    with (root / "tiny" / "no-module" / "step.toml").open("a") as file:
        file.write('needs = ["no_such_module"]\n')
    (root / "test_kernels.py").write_text(TESTS)
    return root


def pytest_in(project: Path, *arguments: str) -> tuple[int, dict[str, str], str]:
    """Exit code, outcome by test, and everything printed."""
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "kernelbench.testing.plugin", "-rA", "-q",
            "--strict-markers", "-p", "no:cacheprovider", *arguments,
        ],
        cwd=project, capture_output=True, text=True, timeout=150, check=False,
        env=environment_of(project) | COUNTED | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    found = {}
    for line in done.stdout.splitlines():
        outcome, _, rest = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR") and "::" in rest:
            found[rest.split("::")[1].split(" ")[0]] = outcome
    return done.returncode, found, done.stdout


def test_fixture_and_markers(project: Path) -> None:
    code, found, text = pytest_in(project)
    assert code == 1, text
    assert found == {
        "test_right": "PASSED", "test_clean": "PASSED", "test_wrong": "FAILED",
        "test_slower": "FAILED", "test_unknown": "FAILED", "test_marker": "ERROR",
    }, text  # fmt: skip
    assert "wrong u0 gpu-mode: wrong: " in text
    assert "slow u0: SLOWER than right" in text
    assert "did you mean 'right'?" in text
    assert "kernelbench_needs takes its arguments by name" in text
    assert "no GPU: " in text
    assert "no-module cannot run here: gpu: no_such_module not installed" in text
    assert "no_such_module.part is not installed" in text
    assert "3 skipped" in text
    # A failure shows the test's lines and none of what it called.
    shown = [line for line in text.splitlines() if re.match(r"\S+\.py:\d+: ", line)]
    assert shown and all(line.startswith("test_kernels.py:") for line in shown), shown


def test_what_would_be_skipped_fails_if_asked(project: Path) -> None:
    code, found, text = pytest_in(project, "--kernelbench-no-skip", "-k", "gpu or module or step")
    assert code == 1
    assert found == {"test_gpu": "ERROR", "test_module": "ERROR", "test_step": "ERROR"}
    assert "no GPU: " in text
