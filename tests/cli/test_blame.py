"""Who is at fault: a problem's hook, its reference, the machine, kernelbench; never the step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Outcome, launch, write_step

from kernelbench.base.errors import ExitCode, ProblemError
from kernelbench.measure.correctness import Checker
from kernelbench.measure.results import status_of
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import project_at

RIGHT = "def custom_kernel(x):\n    return 3 * x\n"
SMALL = """\
import torch

from kernelbench import TensorProblem


class Triple(TensorProblem):
    class Shape:
        rows: int
        columns: int = 8

    depth = 1

    def make_inputs(self, shape, input_class, seed, device):
        draw = torch.Generator(device).manual_seed(seed)
        return torch.randn(shape.rows, shape.columns, generator=draw, device=device)

    def reference(self, x):
        return 3 * x.double()
"""
#: The same by hand; ``{hook}`` marks where a case breaks it.
WHOLE = """\
import torch

from kernelbench.project.arena import GuardedOutputs
from kernelbench.project.problem import Inputs, OutputVerdict, Work


class Shape:
    def __init__(self, name, rows):
        self.name, self.rows = name, rows

    def describe(self):
        return f"rows={self.rows}"


class Triple:
    name = "triple"
    input_classes = ("normal",)
    benchmark_shapes = ()

    def parse_shape(self, name, fields):
        return Shape(name, fields["rows"])

    def make_inputs(self, shape, input_class, seed, device):
        x = torch.randn(shape.rows, generator=torch.Generator().manual_seed(seed))
        return Inputs(x, [x], [], GuardedOutputs([], torch.float32, device))

    def outputs_of(self, result, inputs):
        return [result]

    def reference(self, inputs, shape, input_class):
        return 3 * inputs.data.double()

    def compare(self, outputs, reference, shape, input_class):
        return OutputVerdict(bool((outputs[0] == reference.float()).all()), True, 0.0)

    def broken_limit(self, shape, limits):
        return ""

    def work(self, shape, inputs=None):
        return Work(1.0, 4.0, 4.0, "fp32")


PROBLEM = Triple()
"""


@pytest.fixture
def project(tmp_path: Path) -> Callable[..., Path]:
    """A project with the problem ``source`` and the step ``s0``."""

    def make(source: str, entry: str = "Triple", step: str = RIGHT) -> Path:
        (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
        (tmp_path / "shapes.yaml").write_text("triple:\n  small: {rows: 4}\n")
        (tmp_path / "own").mkdir()
        (tmp_path / "own" / "lineage.toml").write_text(
            f'name = "own"\ntitle = "Own"\nproblem = "problem.py:{entry}"\n'
        )
        (tmp_path / "own" / "problem.py").write_text(source)
        write_step(tmp_path / "own", "s0", step)
        return tmp_path

    return make


def broken(source: str, old: str, new: str) -> tuple[str, int]:
    """``source`` with a line changed, and that line's number."""
    assert source.count(old) == 1, old
    line = source[: source.index(old)].count("\n") + 1
    return source.replace(old, new), line


def run(root: Path, *arguments: object) -> Outcome:
    return launch("run", "s0", "--reps", 2, "--no-save", *arguments, root=root)


def statuses(found: Outcome) -> list[str]:
    """The status of each row; none where the command ended before there was one."""
    start = found.out.find("{")
    rows = json.loads(found.out[start:])["results"] if start >= 0 else []
    return [row["status"] for row in rows]


HOOKS = [
    (WHOLE, 'return Shape(name, fields["rows"])', "return 1 / 0", "parse_shape",
     "ZeroDivisionError"),
    (WHOLE, "        x = torch.randn", "        raise KeyError('a')\n        x = torch.randn",
     "make_inputs", "KeyError: 'a'"),
    (WHOLE, "        return Inputs(x, [x]", "        return (x, [x]", "make_inputs", "gave tuple"),
    (WHOLE, "return [result]", "return result.absent", "outputs_of", "AttributeError"),
    (WHOLE, "return 3 * inputs.data.double()", "raise SystemExit(0)", "reference", "SystemExit"),
    (WHOLE, "return OutputVerdict(bool((outputs[0] == reference.float()).all()), True, 0.0)",
     "return True", "compare", "gave bool: expected an OutputVerdict"),
    (WHOLE, 'return ""', "return None", "broken_limit", "gave None"),
    (WHOLE, 'return Work(1.0, 4.0, 4.0, "fp32")', "return shape.absent", "work", "AttributeError"),
    (SMALL, "        return torch.randn(", "        return shape.absent(", "make_inputs",
     "AttributeError"),
    (SMALL, "return 3 * x.double()", "return 3 * x.absent", "reference", "AttributeError"),
    (SMALL, "return 3 * x.double()", "return 3 * x.half()", "reference", "expected float64"),
    (SMALL, "return 3 * x.double()", "return x.double() * float('nan')", "reference", "gave NaN"),
    (SMALL, "return 3 * x.double()", "return 3.0", "reference", "expected a tensor"),
    (SMALL, "    depth = 1", "    depth = 'much'", "depth", "expected a number of roundings"),
    (SMALL, "    depth = 1", "    tolerance = 1e-3", "tolerance", "expected (rtol, atol)"),
    (SMALL, "    depth = 1", "    unknown = 1", "tolerance", "missing: give depth"),
    (SMALL, "    depth = 1", "    depth = 1\n    accumulate = 'fp9'", "accumulate", "'fp9'"),
    (SMALL, "        columns: int = 8", "        columns: complex", "Shape", "'columns' has type"),
    (SMALL, "    def reference(self, x)", "    def referenze(self, x)", "reference", "missing"),
]  # fmt: skip


def judge(root: Path) -> list[str]:
    """What each hook of a project's problem says, in this process; a right step is right."""
    context = Context(project_at(root))
    found = []
    try:
        problem = load_problem(context.lineages.lineage("own"))
        (shape,) = context.shapes_here(problem).values()
        checker = Checker(lambda x: 3 * x, problem, shape, "cpu", 1, lambda *_: None, 10)
        result = checker.check("normal")
        found.append(f"{result.status}: {result.reason}")
        problem.broken_limit(shape, {})
        problem.work(shape)
    except ProblemError as error:
        found.append(f"{status_of(error)}: {error}")
    return found


@pytest.mark.parametrize(("source", "entry"), [(SMALL, "Triple"), (WHOLE, "PROBLEM")])
def test_the_problems_that_are_broken_below_are_right(
    project: Callable[..., Path], source: str, entry: str
) -> None:
    assert judge(project(source, entry)) == ["pass: "]


@pytest.mark.parametrize(
    ("source", "old", "new", "hook", "said"), HOOKS, ids=[f"{h}-{s}" for _, _, _, h, s in HOOKS]
)
def test_a_mistake_in_a_hook_is_one_line_and_the_problems(
    project: Callable[..., Path], source: str, old: str, new: str, hook: str, said: str
) -> None:
    text, _ = broken(source, old, new)
    found = judge(project(text, "PROBLEM" if source is WHOLE else "Triple"))[-1]
    assert found.startswith("reference: " if hook == "reference" else "problem: ")
    assert f"{hook} of problem triple: " in found
    assert said in found
    assert "problem.py:" in found


@pytest.mark.parametrize("part", ["name", "input_classes", "compare", "work"])
def test_a_part_that_is_missing_is_named(project: Callable[..., Path], part: str) -> None:
    text = WHOLE.replace(f"    {part} =", "    other =").replace(f"def {part}(", "def other(")
    (found,) = judge(project(text, "PROBLEM"))
    line = text.splitlines().index("class Triple:") + 1
    assert re.search(rf"problem.py:{line}: {part} of problem .*: missing", found)


def test_a_run_says_it_in_one_line_with_its_code(project: Callable[..., Path]) -> None:
    text, line = broken(SMALL, "return 3 * x.double()", "return 3 * x.absent")
    found = run(project(text), "--json", "-")
    assert (found.code, statuses(found)) == (ExitCode.USAGE, ["reference"])
    assert found.error.startswith(
        f"kernelbench: own/problem.py:{line}: reference of problem triple: AttributeError: "
    )


def test_ab_and_gate_blame_it_too(project: Callable[..., Path]) -> None:
    text, line = broken(SMALL, "return 3 * x.double()", "return 3 * x.absent")
    root = project(text)
    write_step(root / "own", "s1", RIGHT + "\n# another\n")
    found = launch("ab", "s0", "s1", "--metric", "call", "--reps", 2, root=root)
    assert found.code == ExitCode.USAGE
    assert f"problem.py:{line}: reference of problem triple: AttributeError" in found.error
    assert "s0 on shape" not in found.error


def test_no_memory_for_the_inputs_is_the_machines(project: Callable[..., Path]) -> None:
    text, _ = broken(
        SMALL,
        "        return torch.randn(",
        "        torch.empty(2**55)\n        return torch.randn(",
    )
    found = run(project(text), "--json", "-")
    assert (found.code, statuses(found)) == (ExitCode.ENVIRONMENT, ["machine"])
    assert "make_inputs of problem triple: RuntimeError" in found.error


def test_a_problem_that_ends_its_process_is_at_fault_itself(project: Callable[..., Path]) -> None:
    text, _ = broken(
        SMALL, "        draw = ", "        import os\n        os._exit(7)\n        draw = "
    )
    found = run(project(text), "--json", "-")
    assert (found.code, statuses(found)) == (ExitCode.USAGE, ["problem"])


def test_values_that_are_not_tensors_belong_to_the_shape(project: Callable[..., Path]) -> None:
    text, _ = broken(
        SMALL, "generator=draw, device=device)", "generator=draw, device=device), seed"
    )
    found = run(project(text.replace("(self, x)", "(self, both)").replace("x.d", "both[0].d"),
                        step="def custom_kernel(data):\n    return 3 * data[0]\n"))  # fmt: skip
    assert found.code == ExitCode.USAGE
    assert "only tensors from the seed" in found.error


def test_a_shape_that_no_worker_can_have_is_the_problems(project: Callable[..., Path]) -> None:
    inside = WHOLE.replace("class Shape:\n", "def make():\n  class Shape:\n", 1)
    inside = inside.replace('rows={self.rows}"\n', 'rows={self.rows}"\n  return Shape\n', 1)
    text = inside.replace("\n\nclass Triple:", "\n\nShape = make()\n\n\nclass Triple:", 1)
    found = run(project(text, "PROBLEM"))
    assert found.code == ExitCode.USAGE
    assert "a shape of class make.<locals>.Shape cannot be given to a worker" in found.error
    assert "at the top level of the problem's file" in found.error


def test_lineages_may_name_problems_of_one_file(project: Callable[..., Path]) -> None:
    root = project(WHOLE + 'OTHER = Triple()\nOTHER.name = "other"\n', "PROBLEM")
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own", "more"]\n')
    (root / "shapes.yaml").write_text("triple:\n  a: {rows: 4}\nother:\n  b: {rows: 8}\n")
    (root / "more").mkdir()
    (root / "more" / "lineage.toml").write_text(
        'name = "more"\ntitle = "More"\nproblem = "../own/problem.py:OTHER"\n'
    )
    write_step(root / "more", "t0", RIGHT)
    for step, shape in (("s0", "a"), ("t0", "b")):
        found = launch("run", step, "--shape", shape, "--no-save", "--json", "-", root=root)
        assert (found.code, statuses(found)) == (ExitCode.PASS, ["pass"]), found.error


def test_a_defect_of_ours_is_one_line_and_has_its_own_code(
    project: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import kernelbench.measure.correctness as c\nc.Checker._merge = None\n"
    )
    root = project(SMALL)
    found = launch("run", "s0", "--no-save", "--json", "-", root=root,
                   env={"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"})  # fmt: skip
    assert (found.code, statuses(found)) == (ExitCode.DEFECT, ["harness"])
    assert "a defect in kernelbench: TypeError" in found.err
    assert "measure/correctness.py:" in found.err


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("def custom_kernel(x):\n    return x.mul_(3)\n", "lies in the memory of an input"),
        ("def custom_kernel(x):\n    return x.t()\n", "lies in the memory of an input"),
        ("OUT = []\ndef custom_kernel(x):\n    OUT.append(3 * x)\n    return OUT[0].copy_(3 * x)\n",
         "lies in the memory that the first call returned"),
        ("def custom_kernel(x):\n    y = 3 * x\n    x[0] = 0\n    return y\n",
         "overwrote its inputs"),
        ("def custom_kernel(x):\n    y = 3 * x\n    y[1, 2] = float('nan')\n    return y\n",
         "[1, 2] is nan"),
        ("OUT = []\ndef custom_kernel(x):\n    OUT.append(3 * x)\n    return OUT[0].clone()\n",
         "elements are wrong"),
        ("def custom_kernel(x):\n    return (3 * x).half()\n", "expected float32[4, 8]"),
        ("def custom_kernel(x):\n    return 3 * x, x + 1\n", "returned 2 outputs: expected 1"),
        ("def custom_kernel(x):\n    return None\n", "expected a tensor"),
    ],
)  # fmt: skip
def test_a_wrong_step_is_still_wrong(project: Callable[..., Path], step: str, said: str) -> None:
    context = Context(project_at(project(SMALL)))
    problem = load_problem(context.lineages.lineage("own"))
    (shape,) = context.shapes_here(problem).values()
    names: dict[str, Any] = {}
    exec(step, names)
    checker = Checker(names["custom_kernel"], problem, shape, "cpu", 1, lambda *_: None, 10)
    result = checker.check("normal")
    assert result.status == "wrong"
    assert said in result.reason
