"""Tokens whose result is NaN by specification: the reference says which, mref agrees, and the
checker demands it."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch
from moe_cases import NOT_FINITE, spoil, with_spoiled_tokens

from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.project.problem import Inputs

MREF = Path(__file__).resolve().parents[2] / "moe" / "mref" / "submission.py"
PLAIN = MoeShape("plain", 5, 128, 256, 6, 2)
CAPPED = MoeShape("capped", 5, 128, 256, 6, 2, renormalize=False, softcap=3.0)


@pytest.fixture(scope="module")
def mref():
    spec = importlib.util.spec_from_file_location("mref_under_test", MREF)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.custom_kernel


def spoiled_inputs(shape: MoeShape, case: str, token: int = 2) -> Inputs:
    inputs = PROBLEM.make_inputs(shape, "random", 7, "cpu")
    spoil(inputs, token, case)
    return inputs


@pytest.mark.parametrize("shape", [PLAIN, CAPPED], ids=lambda shape: shape.name)
@pytest.mark.parametrize("case", NOT_FINITE)
def test_reference_and_mref_agree_on_what_is_nan(mref, case: str, shape: MoeShape) -> None:
    inputs = spoiled_inputs(shape, case)
    reference = PROBLEM.reference(inputs, shape, "random")
    spoiled = NOT_FINITE[case][3][shape.softcap > 0]
    assert reference.spoiled.tolist() == [False, False, spoiled, False, False]
    nan = torch.isnan(reference.values[:5])
    assert torch.equal(nan, reference.spoiled.unsqueeze(1).expand_as(nan))
    verdict = PROBLEM.compare([mref(inputs.data)], reference, shape, "random")
    assert verdict.ok, verdict.reason
    assert verdict.rel_rms_err is not None and verdict.rel_rms_err < 1e-5


def test_a_token_that_must_be_nan_must_be_nan_throughout() -> None:
    inputs = spoiled_inputs(PLAIN, "hidden nan")
    reference = PROBLEM.reference(inputs, PLAIN, "random")
    right = reference.values[:5].float()
    assert PROBLEM.compare([right], reference, PLAIN, "random").exact
    for value in (0.0, math.inf):
        output = right.clone()
        output[2, 77] = value
        verdict = PROBLEM.compare([output], reference, PLAIN, "random")
        assert (verdict.ok, verdict.exact) == (False, False)
        assert verdict.reason == (
            "token 2: expected NaN in every column, its operands are not finite"
        )


def test_the_other_tokens_are_judged_as_ever() -> None:
    inputs = spoiled_inputs(PLAIN, "gating nan")
    reference = PROBLEM.reference(inputs, PLAIN, "random")
    right = reference.values[:5].float()
    for token, value in ((3, math.nan), (1, 1e3)):
        output = right.clone()
        output[token, 5] = value
        verdict = PROBLEM.compare([output], reference, PLAIN, "random")
        assert not verdict.ok
        assert f"token {token} column 5" in verdict.reason


def test_near_ties_beside_spoiled_tokens() -> None:
    inputs = PROBLEM.make_inputs(PLAIN, "random", 7, "cpu")
    gating = inputs.data.gating
    gating[:] = torch.tensor([0.0, 3.0, 1.0, 1.0 + 2.0**-23, -1.0, 0.0])
    gating[0, 4] = math.inf
    gating[1, 1] = math.nan
    gating[2, 1:] = -math.inf
    reference = PROBLEM.reference(inputs, PLAIN, "random")
    assert reference.tokens == [3, 4]
    assert reference.spoiled.tolist() == [True, True, False, False, False]


@pytest.mark.parametrize("shape", [PLAIN, CAPPED], ids=lambda shape: shape.name)
def test_all_ways_in_one_call(mref, shape: MoeShape) -> None:
    inputs, spoiled = with_spoiled_tokens(shape, 3, "cpu")
    reference = PROBLEM.reference(inputs, shape, "random")
    assert torch.equal(reference.spoiled, spoiled)
    assert not bool(spoiled[::3].any())
    verdict = PROBLEM.compare([mref(inputs.data)], reference, shape, "random")
    assert verdict.ok, verdict.reason


def test_the_largest_finite_hidden_value_spoils_nothing(mref) -> None:
    inputs = PROBLEM.make_inputs(PLAIN, "random", 7, "cpu")
    inputs.data.hidden[1, 3] = torch.finfo(torch.bfloat16).max
    reference = PROBLEM.reference(inputs, PLAIN, "random")
    assert not bool(reference.spoiled.any())
    assert PROBLEM.compare([mref(inputs.data)], reference, PLAIN, "random").ok
