"""What the tests of several folders share: the command line as a user runs it, and projects."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import ready_commands
import ready_launchers
from emulated_kernels import emulated, emulated_files, emulator_runtime

from kernelbench.records.metrics import Summary
from kernelbench.records.run_record import RUN_SCHEMA, Environment, Protocol, Result, RunRecord

__all__ = ["emulated", "emulated_files", "emulator_runtime"]  # fixtures

# Before torch is imported. Each process would take a thread per core; of several such processes the
# threads spend their time waiting for one another: a test of references took 15.7 s of CPU time,
# and 2.4 s with one thread (2 cores, busy, 2026-11-22).
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Processes of pytest-xdist are told the width of the terminal, and tables would be fitted to it.
os.environ.pop("COLUMNS", None)
# Where it is set, nobody would see what a command leaves beside a user's file.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell's background job ignores Ctrl-C, and so would the commands that the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# pytest and torch are many objects, few of them garbage.
gc.set_threshold(50_000, 20, 50)


def pytest_collection_finish() -> None:
    """What is there by now stays: no collection of a test has to look at it."""
    gc.collect()
    gc.freeze()


ROOT = Path(__file__).resolve().parents[1]
#: Left to `make test-long`, by what `make test` has taken for each: about 2 s or more of a core.
LONG = frozenset((ROOT / "tests" / "long_tests.txt").read_text().splitlines())


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in LONG:
            item.add_marker(pytest.mark.long)


SUBMISSIONS = ROOT / "tests" / "submissions"
MAIN = str(ROOT / "kernelbench" / "__main__.py")


def python_path(*folders: Path) -> str:
    """``PYTHONPATH`` with these folders before those that the tests themselves run with."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([*map(str, folders), *([inherited] if inherited else [])])


#: Environment of a command that measures by a clock of the tests' own: ``counted_clock``.
COUNTED = {"PYTHONPATH": python_path(ROOT / "tests" / "counted_clock", ROOT)}
TINY = "m=8,24:n=128:k=256"
#: Commands that start workers, unless what they are given needs none.
WITH_WORKERS = ("ab", "calibrate", "check", "demo", "gate", "replay", "run", "sweep")

STEP_TOML = """name = "{name}"
title = "{name}"
technique = "none"
hypothesis = "none"
arch = "any"
kind = "python"
status = "{status}"
{extra}
"""


@dataclass(frozen=True)
class Outcome:
    """What one command left behind."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one line on stderr that says what is wrong."""
        lines = [line for line in self.err.splitlines() if line.startswith("kernelbench: ")]
        assert len(lines) == 1, self.err
        return lines[0]


def environment_of(root: Path, *, gpu: bool = False) -> dict[str, str]:
    """The environment of a command in the project ``root``: one thread, no colours, no summary.

    GPUs are hidden unless ``gpu``, so that tests of the CPU's behaviour are the same everywhere.
    """
    dropped = ("GITHUB_STEP_SUMMARY", "COLUMNS", "PYTHONSAFEPATH")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    hidden = {} if gpu else {"CUDA_VISIBLE_DEVICES": ""}
    return (
        kept
        | hidden
        | {
            "KERNELBENCH_ROOT": str(root),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": python_path(ROOT),
            "NO_COLOR": "1",
        }
    )


def launch(
    *arguments: object,
    root: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 150,
    gpu: bool = False,
    cwd: Path | None = None,
) -> Outcome:
    """Run ``python -m kernelbench``, or a fork of what it is; a traceback fails the test."""
    words = [*map(str, arguments)]
    variables = environment_of(root, gpu=gpu) | dict(env or {})
    ready = contextlib.nullcontext(variables)
    if arguments and arguments[0] in WITH_WORKERS and not gpu:
        ready = ready_launchers.served(variables, cwd)
    source = None if gpu else ready_commands.source(variables)
    with ready as there:
        if source is not None:
            done = ready_commands.run(source, [MAIN, *words], there, cwd, timeout)
        else:
            done = subprocess.run(
                [sys.executable, "-m", "kernelbench", *words],
                capture_output=True, env=there, timeout=timeout, check=False, cwd=cwd,
            )  # fmt: skip
    outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in outcome.err, outcome.err
    return outcome


@pytest.fixture(scope="session")
def bench() -> Callable[..., Outcome]:
    """``launch``, for tests."""
    return launch


@pytest.fixture(scope="session")
def submissions() -> Path:
    """The folder of submissions that are wrong in one way each."""
    return SUBMISSIONS


@pytest.fixture
def ready_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process have a launcher that is ready."""
    monkeypatch.setattr("kernelbench.worker.served._begin", ready_launchers.begun)


@pytest.fixture
def in_checkout(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commands run in this process work on this checkout."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(ROOT))
    return ROOT


def write_step(lineage: Path, name: str, source: str | None, extra: str = "") -> None:
    """A step of a lineage; ``source`` None makes it planned."""
    folder = lineage / name
    folder.mkdir(parents=True, exist_ok=True)
    status = "planned" if source is None else "works"
    (folder / "step.toml").write_text(STEP_TOML.format(name=name, status=status, extra=extra))
    if source is not None:
        (folder / "submission.py").write_text(source)


def write_project(root: Path, steps: Mapping[str, str | None]) -> Path:
    """A project with one lineage, ``tiny``, of the group GEMM."""
    root.mkdir(parents=True, exist_ok=True)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny"]\n')
    (root / "shapes.yaml").write_text("group_gemm:\n  u0: {m: 1, n: 128, k: 256}\n")
    (root / "tiny").mkdir()
    (root / "tiny" / "lineage.toml").write_text(
        'name = "tiny"\ntitle = "A tiny lineage"\n'
        'problem = "kernelbench.problems.group_gemm:PROBLEM"\n'
    )
    for name, source in steps.items():
        write_step(root / "tiny", name, source)
    return root


@pytest.fixture(scope="session")
def right_source() -> str:
    """Source of a step that is right."""
    return (SUBMISSIONS / "right.py").read_text()


@pytest.fixture(scope="session")
def slow_source(right_source: str) -> str:
    """Source of the same step with a sleep of a millisecond."""
    return right_source.replace("import functools\n", "import functools\nimport time\n", 1).replace(
        "    outputs = []\n", "    time.sleep(0.001)\n    outputs = []\n", 1
    )


def processes_with(mark: str) -> list[int]:
    """Ids of the processes, of any parent, whose environment holds ``mark``."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def read_document(text: str) -> Any:
    """The one JSON document that ``text`` is; anything before or after it is an error."""
    value, end = json.JSONDecoder().raw_decode(text)
    assert text[end:].strip() == "", "more than one JSON document"
    return value


ENVIRONMENT = Environment(
    device="NVIDIA H200", kind="cuda", arch="sm_90", sms=132, l2_bytes=50 << 20,
    memory_bytes=141 << 30, driver="580.65", cuda="13.0", torch="2.11.0", python="3.12.3",
    kernelbench="0.1.0",
)  # fmt: skip
PROTOCOL = Protocol(seed=1, reps=500, warmups=50, l2="cold", call="single", flush_bytes=100 << 20)


def times(median: float) -> Summary:
    """Five hundred repetitions that all took ``median`` microseconds."""
    return Summary(median, median, median, median, median, 0.0, 500, "graph")


def result_row(step: str = "v00", shape: str = "A", median: float = 40.0, **changes: Any) -> Result:
    """A passing row of the group GEMM with a device time."""
    values: dict[str, Any] = {
        "step": step, "lineage": "group_gemm", "problem": "group_gemm", "shape": shape,
        "dims": "g=8", "inputs": "gpu-mode", "executor": "gpu", "status": "pass", "exact": True,
        "max_abs_err": 0.0, "metrics": {"device": times(median)}, "reason": "",
    }  # fmt: skip
    return with_metrics(Result(**values), **changes)


def with_metrics(row: Result, **changes: Any) -> Result:
    """The row with changes, of which ``device_us`` and ``call_us`` are of its metrics."""
    found = {**row.metrics}
    for name in ("device", "call"):
        if f"{name}_us" in changes:
            found[name] = changes.pop(f"{name}_us")
    return replace(row, **{"metrics": {k: v for k, v in found.items() if v}, **changes})


def run_record(*rows: Result, **changes: Any) -> RunRecord:
    """A complete run on an H200 with these rows."""
    found = RunRecord(
        schema=RUN_SCHEMA, id="x", created="2030-01-01T00:00:00+00:00",
        command="kernelbench run", device="NVIDIA H200", environment=ENVIRONMENT,
        protocol=PROTOCOL, results=rows,
    )  # fmt: skip
    return replace(found, **changes)
