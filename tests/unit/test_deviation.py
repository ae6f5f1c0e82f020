"""Largest and root mean square error over outputs, and what the problems and records make of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import result_row, run_record

from kernelbench.base import schema
from kernelbench.cli.run import error_text
from kernelbench.problems.deviation import Deviation
from kernelbench.problems.fused_moe.problem import PROBLEM as MOE
from kernelbench.problems.group_gemm.problem import PROBLEM as GEMM
from kernelbench.project.problem import Inputs
from kernelbench.records import run_record as records

MOE_SHAPE = MOE.parse_shape("x", {"m": 5, "n": 128, "k": 128, "e": 4, "topk": 2})
GEMM_SHAPE = GEMM.parse_shape("x", {"m": [3, 8], "n": 16, "k": 64})


def test_over_tensors_of_different_sizes() -> None:
    deviation = Deviation()
    error = deviation.add(torch.tensor([1.0, 2.5]), torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert error.tolist() == [0.0, 0.5]
    deviation.add(torch.tensor([[-4.0]]), torch.tensor([[-2.0]], dtype=torch.float64))
    deviation.add(torch.empty(0, 3), torch.empty(0, 3, dtype=torch.float64))
    assert deviation.max_abs == 2.0
    assert deviation.rel_rms == pytest.approx(math.sqrt((0.25 + 4) / (1 + 4 + 4)), rel=1e-15)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_have_no_error(value: float) -> None:
    deviation = Deviation()
    deviation.add(torch.tensor([1.0, value]), torch.ones(2, dtype=torch.float64))
    deviation.add(torch.tensor([1.0]), torch.ones(1, dtype=torch.float64))
    assert (deviation.max_abs, deviation.rel_rms) == (None, None)


def test_a_reference_of_zeros() -> None:
    deviation = Deviation()
    zeros = torch.zeros(2, dtype=torch.float64)
    deviation.add(torch.zeros(2), zeros)
    assert (deviation.max_abs, deviation.rel_rms) == (0.0, 0.0)
    deviation.add(torch.ones(2), zeros)
    assert (deviation.max_abs, deviation.rel_rms) == (1.0, None)


def values_of(problem: Any, reference: Any) -> list[torch.Tensor]:
    return [reference.values] if problem is MOE else [group.exact for group in reference]


@pytest.mark.parametrize(
    ("problem", "shape", "input_class"),
    [(MOE, MOE_SHAPE, "random"), (GEMM, GEMM_SHAPE, "full")],
    ids=["fused_moe", "group_gemm"],
)
def test_a_problem_reports_the_relative_error_also_of_wrong_outputs(
    problem: Any, shape: Any, input_class: str
) -> None:
    inputs: Inputs = problem.make_inputs(shape, input_class, 4, "cpu")
    reference = problem.reference(inputs, shape, input_class)
    outputs = [values.clone() for values in values_of(problem, reference)]
    for factor in (1.0, 1.25):
        scaled = [factor * output for output in outputs]
        verdict = problem.compare(scaled, reference, shape, input_class)
        assert verdict.ok is (factor == 1.0)
        assert verdict.rel_rms_err == pytest.approx(factor - 1, rel=1e-12)
        assert verdict.max_abs_err == pytest.approx(
            (factor - 1) * max(float(output.abs().max()) for output in outputs), rel=1e-12
        )
    outputs[-1].view(-1)[3] = math.nan
    assert problem.compare(outputs, reference, shape, input_class).rel_rms_err is None


def test_records_from_before_it_was_taken_are_read() -> None:
    value = schema.encode(run_record(result_row(rel_rms_err=2.5e-4)))
    assert records.parse_run(value, "x").results[0].rel_rms_err == 2.5e-4
    value["schema"] = "kernelbench.run/1"
    del value["results"][0]["rel_rms_err"]
    assert records.parse_run(value, "x").results[0].rel_rms_err is None


def test_the_largest_error_is_shown() -> None:
    assert error_text(None, 2e-4, 1.5e-3) == "0.0015"
    assert error_text(None) == "–"
