"""An executor that another package brings: installed beside kernelbench, known to every command.

The package is a folder on the path with a module and the metadata of an installed distribution.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Outcome, launch, result_row, run_record, write_project

from kernelbench.base import json_file

MODULE = '''
"""Two executors: one runs Python steps anywhere, one is the emulator by another name."""

from dataclasses import dataclass

from kernelbench.executors.emulated import EmulatorExecutor
from kernelbench.executors.executor import Target
from kernelbench.executors.torch_cpu import TorchExecutor


@dataclass(frozen=True)
class Anywhere(TorchExecutor):
    """It has what the steps say that they need."""

    name: str = "anywhere"
    letter: str = "A"
    meaning: str = "anywhere"

    def availability(self, step, device):
        return True, "it runs anywhere"

    def target(self, device, emulation):
        return Target(self, "cpu", None)


@dataclass(frozen=True)
class Mirror(EmulatorExecutor):
    """Correctness only."""

    name: str = "mirror"
    letter: str = "M"
    meaning: str = "the emulator again"


ANYWHERE = Anywhere()
MIRROR = Mirror()
LACKING = object()
'''

RIGHT = "tests/submissions/right.py"
SHAPE = "m=4:n=128:k=256"
QUICK = ("--reps", 3, "--no-save", "--inputs", "gpu-mode")


def install(folder: Path, entry_points: str) -> dict[str, str]:
    """A package in ``folder``; the environment in which commands find it."""
    info = folder / "own_executors-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-executors\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kernelbench.executors]\n{entry_points}")
    (folder / "own_executors.py").write_text(MODULE)
    return {"PYTHONPATH": f"{ROOT}:{folder}"}


@pytest.fixture
def own(tmp_path: Path) -> Callable[..., Outcome]:
    """A command where the package is installed, in a project whose step needs what is not here."""
    env = install(
        tmp_path / "site", "anywhere = own_executors:ANYWHERE\nmirror = own_executors:MIRROR\n"
    )
    project = write_project(tmp_path / "p", {"w0": (ROOT / RIGHT).read_text()})
    step = project / "tiny" / "w0" / "step.toml"
    step.write_text(step.read_text() + 'needs = ["gpu", "no_such_module"]\n')

    def call(*arguments: object, root: Path = project) -> Outcome:
        return launch(*arguments, root=root, env=env)

    return call


def document(outcome: Outcome) -> Any:
    assert outcome.code == 0, outcome.out + outcome.err
    return json.loads(outcome.out)


def test_run_and_list_know_it(own: Callable[..., Outcome]) -> None:
    assert "anywhere" in own("list").out
    record = document(own("run", "w0", "--shape", SHAPE, *QUICK, "--json", "-"))
    (row,) = record["results"]
    assert (row["executor"], row["status"]) == ("anywhere", "pass")
    assert row["call_us"]["median"] > 0


def test_one_that_is_asked_for_by_name_is_never_timed_if_it_says_so(
    own: Callable[..., Outcome],
) -> None:
    found = own("run", "v07", "--executor", "mirror", "--shape", "u3", *QUICK, "--json", "-",
                root=ROOT)  # fmt: skip
    (row,) = document(found)["results"]
    assert (row["executor"], row["status"], row["call_us"]) == ("mirror", "pass", None)


def test_check_takes_the_emulator_that_ships(own: Callable[..., Outcome]) -> None:
    refused = own("check", "w0")
    assert refused.code == 2
    assert "check emulates compiled, PTX, Triton and CUDA steps" in refused.error


def test_the_gate_compares_times_of_what_is_timed(
    own: Callable[..., Outcome], tmp_path: Path
) -> None:
    files = {}
    for executor in ("anywhere", "mirror"):
        for name, median in (("before", 40.0), ("after", 60.0)):
            row = result_row("w0", "A", median, executor=executor)
            file = files[executor, name] = tmp_path / f"{executor}-{name}.json"
            json_file.write_json(file, run_record(row, id=name))

    def gate(executor: str) -> Outcome:
        before, after = files[executor, "before"], files[executor, "after"]
        return own("gate", "--baseline", before, "--current", after)

    assert "FAIL: w0: 1 regressed" in gate("anywhere").out
    assert "regressed" not in gate("mirror").out


def test_doctor_shows_it(own: Callable[..., Outcome]) -> None:
    assert "executor anywhere" in own("doctor").out


@pytest.mark.parametrize(
    ("entry_point", "said"),
    [
        ("own_executors:LACKING", "has no 'name'"),
        ("own_executors:ABSENT", "cannot be loaded: AttributeError"),
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError"),
        ("kernelbench.executors.gpu:GPU", "there is another executor 'gpu'"),
    ],
)
def test_a_broken_one_is_named_in_one_line(entry_point: str, said: str, tmp_path: Path) -> None:
    env = install(tmp_path / "site", f"broken = {entry_point}\n")
    for command in (("list",), ("run", RIGHT, "--shape", SHAPE)):
        found = launch(*command, env=env)
        assert found.code == 5
        assert found.error.startswith("kernelbench: executor 'broken' of the installed package")
        assert said in found.error
