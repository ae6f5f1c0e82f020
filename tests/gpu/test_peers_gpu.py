"""The peers' kernels and the read floor on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import ROOT

from kernelbench.executors import targets
from kernelbench.kinds.callables import load_callable, notes_of
from kernelbench.machine import devices
from kernelbench.measure import ceilings_bench, speed_of_light
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.project.problem import Work, judging, refill
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not devices.gpus(), reason="no GPU here"),
    pytest.mark.timeout(600),
]

CASES: list[tuple[str, dict[str, Any]]] = [
    ("random", {"m": 1, "n": 512, "k": 2048, "e": 256, "topk": 8}),
    ("structured", {"m": 130, "n": 512, "k": 2048, "e": 256, "topk": 8}),
    ("skewed", {"m": 64, "n": 256, "k": 384, "e": 40, "topk": 3, "renormalize": False}),
    ("random", {"m": 300, "n": 128, "k": 256, "e": 16, "topk": 8, "routing": "one"}),
    ("structured", {"m": 33, "n": 128, "k": 128, "e": 1, "topk": 1, "softcap": 30.0}),
]


def steps() -> list[str]:
    lineages = load_lineages(find_project(ROOT))
    return [step.name for step in lineages.steps_of("peers.moe")]


@pytest.mark.parametrize("name", steps())
@pytest.mark.parametrize(("input_class", "fields"), CASES)
def test_a_peer_is_right_and_can_be_captured(
    name: str, input_class: str, fields: dict[str, Any]
) -> None:
    step = load_lineages(find_project(ROOT)).get(name)
    works, reason = next((w, why) for e, w, why in targets.executors_for(step) if e == "gpu")
    if not works:
        pytest.skip(reason)
    assert step.entry is not None
    kernel = load_callable(step.entry)
    problem: Any = judging(PROBLEM, step)
    shape = problem.parse_shape("x", fields)
    first, second = (problem.make_inputs(shape, input_class, seed, "cuda") for seed in (1, 2))
    references = [problem.reference(each, shape, input_class) for each in (first, second)]
    first.outputs[0].fill_(torch.nan)
    assert problem.compare([kernel(first.data)], references[0], shape, input_class).ok
    assert notes_of(kernel)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        kernel(first.data)
    refill(first, second)
    for _ in range(3):
        first.outputs[0].fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        verdict = problem.compare(first.outputs, references[1], shape, input_class)
        assert verdict.ok, verdict.reason


@pytest.mark.parametrize("name", ["moe-triton", "moe-torch"])
def test_operands_that_are_not_finite(name: str) -> None:
    step = load_lineages(find_project(ROOT)).get(name)
    works, reason = next((w, why) for e, w, why in targets.executors_for(step) if e == "gpu")
    if not works:
        pytest.skip(reason)
    assert step.entry is not None
    problem: Any = judging(PROBLEM, step)
    shape = problem.parse_shape("x", {"m": 40, "n": 256, "k": 512, "e": 32, "topk": 4})
    inputs = problem.make_inputs(shape, "random", 5, "cuda")
    inputs.data.hidden[3, 200] = torch.nan
    inputs.data.hidden[17, 0] = -torch.inf
    inputs.data.gating[5, 7] = torch.nan
    inputs.data.gating[6, 8] = torch.inf
    inputs.data.gating[9, :] = -torch.inf
    inputs.data.gating[11, 1:] = -torch.inf
    output = load_callable(step.entry)(inputs.data)
    reference = problem.reference(inputs, shape, "random")
    verdict = problem.compare([output], reference, shape, "random")
    assert verdict.ok, verdict.reason
    assert torch.isnan(output).all(dim=1).nonzero().flatten().tolist() == [3, 5, 6, 9, 17]


@pytest.mark.parametrize("l2", ["cold", "warm"])
def test_the_read_floor_is_possible_and_grows(l2: Any) -> None:
    small, large = (ceilings_bench.read_floor(0, size, l2) for size in (64 << 20, 512 << 20))
    assert large.us > 2 * small.us
    assert large.bytes == 512 << 20
    ceilings = speed_of_light.datasheet(torch.cuda.get_device_name())
    if ceilings is not None:
        work = Work(0.0, float(large.bytes), 0.0, "fp8")
        floor = speed_of_light.speed_of_light(work, ceilings, l2)
        assert not speed_of_light.below_floor(large.us, floor)
