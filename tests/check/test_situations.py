"""What default checks reach, and how far a budget of time lets them go."""

from __future__ import annotations

from typing import Any

import pytest

import kernelbench
from kernelbench.checks.api import SMS
from kernelbench.cli import invoke
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.project.problem_loading import load_problem
from kernelbench.worker.call_sequence import CALLS, LESS_DEPTH


def test_default_shapes_reach_every_situation(in_checkout: Any) -> None:
    """Of each step of each lineage."""
    context = Context.find()
    lines = [context.lineages.steps_of(name) for name in ("group_gemm", "moe", "group_gemm_hopper")]
    steps = [step for line in lines for step in line if step.kind == "step"]
    missing = {step.name: unreached(context, step) for step in steps}
    assert len(missing) > 40
    assert {name: names for name, names in missing.items() if names} == {}


def unreached(context: Context, step: Step) -> list[str]:
    problem: Any = load_problem(context.lineage_for(step))
    shapes = [context.shapes.of(problem.name)[each] for each in problem.check_shapes]
    taken = [shape for shape in shapes if not problem.broken_limit(shape, step.limits)]
    found = [problem.situations(shape, step, sms) for shape in taken for sms in SMS]
    assert len({tuple(each) for each in found}) == 1
    return [each for each in found[0] if not any(one[each] for one in found)]


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")
def test_a_budget_ends_after_half_a_round_at_the_earliest(in_checkout: Any) -> None:
    report = kernelbench.check("v13", ["u1", "u4"], sms=(2, 3), budget_s=0.001, seed=5)
    first, second = ({*row.calls} for row in report.steps[0].rows)
    for row in report.steps[0].rows:
        assert (row.status, row.schedules, row.asked) == ("clean", 1, 200)
    assert first != second and first < {*CALLS, LESS_DEPTH} > second
    assert "eight groups of one tile" in report.steps[0].not_reached
    assert "a ring of stages that comes round within a tile" not in report.steps[0].not_reached


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")
def test_a_number_of_schedules_is_kept(in_checkout: Any) -> None:
    report = kernelbench.check("v13", "u1", sms=(2,), schedules=3, sequence=False)
    (row,) = report.steps[0].rows
    assert (row.schedules, row.asked, row.calls) == (3, 3, ())


@pytest.mark.usefixtures("ready_workers")
@pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("budget", ["0", "0.001"])
def test_what_had_no_time_is_told(
    budget: str, in_checkout: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", "v13", "--shape", "u1", "--sms", "2,3", "--schedules", "1", "--no-save"]
    assert invoke([*words, "--budget", budget]) == 0
    assert ("1 of 1 shapes had no time" in capsys.readouterr().out) == (budget != "0")
