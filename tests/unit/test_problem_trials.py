"""``doctor --problem`` finds what a hook does not do; a problem that does it all passes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import launch

from kernelbench.base.errors import UsageError
from kernelbench.inspection.problem_doctor import examine_problem
from kernelbench.inspection.problem_trials import Trials
from kernelbench.lineages.scaffold import new_project
from kernelbench.problems.tensor.problem import TensorProblem
from kernelbench.project.arena import MixedArena
from kernelbench.project.context import Context
from kernelbench.project.error_attribution import guarded
from kernelbench.project.problem import Inputs, OutputVerdict, Work
from kernelbench.project.shapes import check_fields


@dataclass(frozen=True)
class Rows:
    name: str
    rows: int

    def describe(self) -> str:
        return f"rows={self.rows}"


class Triple:
    """3 x, by the whole interface and without a mistake."""

    name = "triple"
    input_classes = ("normal",)
    benchmark_shapes = ()

    def parse_shape(self, name: str, fields: Any) -> Rows:
        check_fields(fields, ("rows",), ())
        return Rows(name, fields["rows"])

    def make_inputs(self, shape: Rows, input_class: str, seed: int, device: str) -> Inputs:
        x = torch.randn(shape.rows, generator=torch.Generator().manual_seed(seed))
        return Inputs(x, [x], [], MixedArena([], device))

    def outputs_of(self, result: Any, inputs: Inputs) -> Any:
        if not isinstance(result, torch.Tensor) or result.shape != inputs.data.shape:
            raise ValueError("expected a tensor")
        return [result]

    def reference(self, inputs: Inputs, shape: Rows, input_class: str) -> Any:
        return 3 * inputs.data.double()

    def right_outputs(self, reference: Any, inputs: Inputs) -> Any:
        return [reference.float()]

    def compare(self, outputs: Any, reference: Any, shape: Rows, input_class: str) -> Any:
        error = (outputs[0].double() - reference).abs()
        return OutputVerdict(bool((error <= 1e-6 * reference.abs()).all()), True, None)

    def broken_limit(self, shape: Rows, limits: Any) -> str:
        if limits:
            raise UsageError("no limits are known")
        return ""

    def work(self, shape: Rows, inputs: Inputs | None = None) -> Work:
        return Work(shape.rows, 4.0 * shape.rows, 4.0 * shape.rows, "fp32")


def tried(**hooks: Any) -> Trials:
    """The trials of the problem with these hooks in place of its own."""
    problem = guarded(type("Changed", (Triple,), hooks), "changed")
    trials = Trials(problem, "cpu")
    trials.parse_shape(["s"])
    trials.shape(problem.parse_shape("s", {"rows": 64}))
    return trials


def test_one_without_a_mistake() -> None:
    trials = tried()
    assert (trials.faults, trials.warnings) == ({}, {})
    assert "not all elements changed by 9.5e-07" in trials.found["compare"]


def ok(*_: Any) -> OutputVerdict:
    return OutputVerdict(True, True, None)


def lets_nan_pass(_: Any, outputs: Any, reference: Any, *__: Any) -> OutputVerdict:
    error = (outputs[0].double() - reference).abs()
    return OutputVerdict(not bool((error > 1e-6 * reference.abs()).any()), True, None)


def within(rtol: float) -> Any:
    def compare(_: Any, outputs: Any, reference: Any, *__: Any) -> OutputVerdict:
        error = (outputs[0].double() - reference).abs()
        return OutputVerdict(bool((error <= rtol * reference.abs()).all()), True, None)

    return compare


def seedless(_: Any, shape: Rows, *__: Any) -> Inputs:
    x = torch.randn(shape.rows)
    return Inputs(x, [x], [], MixedArena([], "cpu"))


def takes_the_first(_: Any, result: Any, inputs: Inputs) -> Any:
    if isinstance(result, str):
        raise ValueError("expected a tensor")
    return [result[0] if isinstance(result, tuple) else result]


def changes_inputs(_: Any, inputs: Inputs, *__: Any) -> Any:
    return 3 * inputs.data.mul_(2).double()


@pytest.mark.parametrize(
    ("hooks", "hook", "said"),
    [
        ({"make_inputs": seedless}, "make_inputs", "two draws from one seed differ"),
        ({"reference": changes_inputs}, "reference", "it changes its inputs"),
        ({"compare": ok}, "compare", "poison passes"),
        ({"compare": lets_nan_pass}, "compare", "one NaN passes"),
        ({"compare": within(-1.0)}, "compare", "does not pass its own comparison"),
        ({"compare": within(1.0)}, "compare", "an output of zeros passes"),
        ({"broken_limit": lambda *_: "always"}, "broken_limit", "no limits are broken by s"),
        ({"work": lambda *_: Work(1.0, float("inf"), 1.0, "fp32")}, "work", "no amount of work"),
        ({"work": lambda *_: Work(1.0, 1.0, 1.0, "fp33")}, "work", "precision 'fp33'"),
        ({"outputs_of": lambda _, result, inputs: [result]}, "outputs_of", "gave str among"),
        ({"outputs_of": takes_the_first}, "outputs_of", "an output too many passes"),
    ],
)  # fmt: skip
def test_a_fault_is_found(hooks: Any, hook: str, said: str) -> None:
    trials = tried(**hooks)
    assert [*trials.faults] == [hook]
    assert said in trials.faults[hook]


@pytest.mark.parametrize(
    ("hooks", "hook", "said"),
    [
        ({"compare": within(0.6)}, "compare", "wide: every element may be off by 0.5 of itself"),
        ({"broken_limit": lambda *_: ""}, "broken_limit", "passes over a limit"),
        ({"parse_shape": lambda _, name, fields: Rows(name, 64)}, "parse_shape", "does not exist"),
        ({"work": lambda *_: Work(1.0, 1e9, 1.0, "fp32")}, "work", "inputs that have 256"),
        ({"right_outputs": None}, "compare", "tried on nothing"),
    ],
)
def test_what_is_odd_is_said(hooks: Any, hook: str, said: str) -> None:
    trials = tried(**hooks)
    assert trials.faults == {}
    assert said in trials.warnings[hook]


def test_the_problems_that_ship(in_checkout: Path) -> None:
    context = Context.find()
    for name, shape in (("group_gemm", "u0"), ("fused_moe", "u0")):
        problem = context.problems[name]
        found = context.shapes_here(problem)
        trials = Trials(problem, "cpu")
        trials.parse_shape([*found])
        trials.shape(found.get(shape) or found[context.check_shapes(problem)[0]])
        assert trials.faults == {}, name


class Flat(TensorProblem):
    """A tolerance that lets everything pass."""

    class Shape:
        """Fields."""

        rows: int

    tolerance = (10.0, 100.0)

    def make_inputs(self, shape: Any, input_class: str, seed: int, device: str) -> Any:
        return torch.randn(shape.rows, generator=torch.Generator().manual_seed(seed))

    def reference(self, x: torch.Tensor) -> Any:
        return 3 * x.double()


def test_a_tolerance_that_is_none() -> None:
    problem = guarded(Flat, "flat")
    trials = Trials(problem, "cpu")
    trials.shape(problem.parse_shape("s", {"rows": 100}))
    assert trials.faults["compare"].startswith("an output of zeros passes")


@pytest.mark.parametrize(
    ("seconds", "left_out"),
    [([4.0, 0.1, 1.0], ()), ([0.5, 0.5], ("large",)), ([30.0], ("large",))],
)
def test_what_a_process_does_once_says_nothing_of_larger_shapes(
    seconds: list[float],
    left_out: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A GPU's first use takes seconds, and the larger shape holds 131 times as much."""
    new_project(tmp_path / "p", "rmsnorm")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path / "p"))
    monkeypatch.setattr(Trials, "shape", lambda _self, _shape: seconds.pop(0))
    with torch.enable_grad():  # and as it was afterwards
        assert examine_problem("rmsnorm").left_out == left_out
    assert not seconds


def test_the_command(tmp_path: Path) -> None:
    """A file's problem, in no project; one line a hook, exit code 2 where one is at fault."""
    file = tmp_path / "problem.py"
    source = Path(__file__).read_text()
    start, end = (
        source.index("class Flat("),
        source.index("\n\n\ndef test_a_tolerance_that_is_none"),
    )
    head = "from typing import Any\nimport torch\nfrom kernelbench import TensorProblem\n\n\n"
    file.write_text(head + source[start:end] + "\n")
    found = launch("doctor", "--problem", f"{file}:Flat", "--shape", "rows=100", "--json", "-")
    assert found.code == 2, found.err
    document = json.loads(found.out)
    states = {row["hook"]: row["state"] for row in document["rows"]}
    assert states["compare"] == "fault"
    assert states["make_inputs"] == states["work"] == "ok"
    file.write_text(file.read_text().replace("(10.0, 100.0)", "(1e-3, 0.0)"))
    found = launch("doctor", "--problem", f"{file}:Flat", "--shape", "rows=100")
    assert found.code == 0, found.out
    assert "every hook does its part" in found.out
    absent = launch("doctor", "--problem", f"{file}:Flta", "--shape", "rows=100")
    assert absent.code == 2
    assert "unknown problem 'Flta' in" in absent.error
    assert "did you mean 'Flat'?" in absent.error
