"""What is run where no steps are named."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import ROOT

from kernelbench.compare.gating import comparable, lineages_with
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.gpu import GPU, SOFT_GPU
from kernelbench.executors.targets import Target
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.project.context import Context
from kernelbench.project.project_file import project_at
from kernelbench.runs.runner import StepRun

CONTEXT = Context(project_at(ROOT))
H200 = cast("Any", SimpleNamespace(name="a GPU"))


@pytest.mark.parametrize(
    ("shapes", "names"),
    [
        ([], {"group_gemm", "moe"}),
        (["D"], {"group_gemm"}),
        (["qwen35"], {"moe"}),
        (["m=8:n=128:k=256"], {"group_gemm"}),
        (["all"], {"group_gemm", "moe"}),
    ],
)
def test_lineages_that_have_the_shapes(shapes: list[str], names: set[str]) -> None:
    assert names <= {*lineages_with(CONTEXT, shapes)}
    if shapes and shapes != ["all"]:
        others = {"group_gemm", "moe"} - names
        assert not others & {*lineages_with(CONTEXT, shapes)}


def test_shapes_that_nobody_has_leave_all_lineages() -> None:
    assert {"group_gemm", "moe"} <= {*lineages_with(CONTEXT, ["D", "qwen35"])}


def plan(name: str, target: Target) -> StepRun:
    step = replace(CONTEXT.lineages.get("v00"), name=name)
    lineage = CONTEXT.lineages.lineage("group_gemm")
    return StepRun(step, lineage, CONTEXT.problems["group_gemm"], (), (), target)


def test_steps_without_times_are_left_out() -> None:
    plans = [
        plan("native", Target(GPU, "cuda:0", H200)),
        plan("soft", Target(SOFT_GPU, "cuda:0", H200)),
        plan("python", Target(TORCH, "cpu", None)),
        plan("emulated", Target(EMULATOR, "cpu", None)),
    ]
    told: list[str] = []
    kept = comparable(plans, "device", warn=told.append)
    assert [each.step.name for each in kept] == ["native"]
    kept = comparable(plans, "call", warn=told.append)
    assert [each.step.name for each in kept] == ["native", "python"]
    assert told == [
        "no device times here, left out: soft, python, emulated",
        "no call times here, left out: soft, emulated",
    ]


def test_where_none_has_times_all_are_left() -> None:
    plans = [plan("emulated", Target(EMULATOR, "cpu", None))]
    assert comparable(plans, "call", warn=lambda _: pytest.fail("told")) == plans
