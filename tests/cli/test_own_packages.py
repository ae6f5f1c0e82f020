"""A problem, its peers and an executor from one installed package, by their entry points."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, STEP_TOML, Outcome, launch, write_step

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "triple-kernels"
version = "1.0"

[project.entry-points."kernelbench.problems"]
triple = "triple_kernels.problem:Triple"
none = "triple_kernels.problem:ABSENT"

[project.entry-points."kernelbench.peers"]
triple = "triple_kernels.peers"

[project.entry-points."kernelbench.executors"]
anywhere = "triple_kernels.executor:ANYWHERE"
"""
PROBLEM = """\
import torch

from kernelbench import TensorProblem


class Triple(TensorProblem):
    class Shape:
        rows: int

    depth = 1

    def make_inputs(self, shape, input_class, seed, device):
        return torch.randn(shape.rows, generator=torch.Generator(device).manual_seed(seed))

    def reference(self, x):
        return 3 * x.double()
"""
EXECUTOR = """\
from dataclasses import dataclass

from kernelbench.executors.torch_cpu import TorchExecutor


@dataclass(frozen=True)
class Anywhere(TorchExecutor):
    name: str = "anywhere"
    letter: str = "A"
    meaning: str = "anywhere"


ANYWHERE = Anywhere()
"""
RIGHT = "def custom_kernel(x):\n    return 3 * x\n"
LINEAGE = 'name = "{name}"\ntitle = "Triples"\nproblem = "{problem}"\n'


def write_package(folder: Path) -> None:
    """The sources of a package with all three."""
    package = folder / "triple_kernels"
    step = package / "peers" / "sums"
    step.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").write_text("")
    (package / "problem.py").write_text(PROBLEM)
    (package / "executor.py").write_text(EXECUTOR)
    (package / "peers" / "__init__.py").write_text("raise RuntimeError('nobody runs this')\n")
    peers = LINEAGE.format(name="triple_peers", problem="triple") + 'peers_of = "own"\n'
    (package / "peers" / "lineage.toml").write_text(peers)
    (step / "step.toml").write_text(STEP_TOML.format(name="sums", status="works", extra=""))
    (step / "submission.py").write_text("def custom_kernel(x):\n    return x + x + x\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path into which pip has installed the package."""
    sources, target = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    write_package(sources)
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index",
               "--disable-pip-version-check", "--target", str(target), str(sources)]  # fmt: skip
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    return target


@pytest.fixture
def own(site: Path, tmp_path: Path) -> Callable[..., Outcome]:
    """A command in a project whose lineage names the installed problem."""

    def call(*arguments: object, problem: str = "triple") -> Outcome:
        (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
        (tmp_path / "shapes.yaml").write_text("triple:\n  small: {rows: 4}\n")
        (tmp_path / "own").mkdir(exist_ok=True)
        text = LINEAGE.format(name="own", problem=problem)
        (tmp_path / "own" / "lineage.toml").write_text(text)
        write_step(tmp_path / "own", "s0", RIGHT)
        return launch(*arguments, root=tmp_path, env={"PYTHONPATH": f"{ROOT}:{site}"})

    return call


def test_problem_peers_and_executor(own: Callable[..., Outcome]) -> None:
    found = own("run", "s0", "--peers", "--executor", "anywhere", "--reps", 3, "--no-save",
                "--json", "-")  # fmt: skip
    assert found.code == 0, found.err
    rows = json.loads(found.out)["results"]
    assert [(row["step"], row["problem"], row["executor"], row["status"]) for row in rows] == [
        ("s0", "triple", "anywhere", "pass"),
        ("sums", "triple", "anywhere", "pass"),
    ]


def test_doctor_tries_an_installed_problem(own: Callable[..., Outcome]) -> None:
    found = own("doctor", "--problem", "triple", "--json", "-")
    assert found.code == 0, found.out
    document = json.loads(found.out)
    assert (document["problem"], document["shapes"]) == ("triple", ["small"])
    assert {row["state"] for row in document["rows"]} == {"ok"}


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("triplet", "unknown installed problem 'triplet' in "),
        ("none", "problem 'none' cannot be loaded: AttributeError"),
    ],
)
def test_a_problem_that_no_package_has(
    own: Callable[..., Outcome], problem: str, said: str
) -> None:
    found = own("run", "s0", problem=problem)
    assert found.code == 2
    assert said in found.error


def test_peers_of_nothing_here_are_left_alone(site: Path) -> None:
    found = launch("list", "--json", "-", env={"PYTHONPATH": f"{ROOT}:{site}"})
    assert found.code == 0
    assert "sums" not in {step["name"] for step in json.loads(found.out)["steps"]}


def test_peers_that_are_none_are_named(tmp_path: Path) -> None:
    info = tmp_path / "odd-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelbench.peers]\nodd = json\n")
    found = launch("list", env={"PYTHONPATH": f"{ROOT}:{tmp_path}"})
    assert found.code == 5
    assert "peers 'odd' of the installed package 'odd' (json): no lineage.toml" in found.error
