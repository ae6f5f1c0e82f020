"""The fused MoE's operands, reference and checker, and mref on them."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelbench.base.errors import UnknownNameError
from kernelbench.problems.fused_moe import fp8
from kernelbench.problems.fused_moe.problem import PROBLEM, FusedMoe
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.project.problem import Comparison, Inputs

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("random", "skewed", "structured")
TINY = MoeShape("tiny", 6, 128, 256, 7, 3)
SMALL = MoeShape("small", 24, 256, 512, 16, 4)
CAPPED = MoeShape("capped", 9, 128, 256, 8, 2, renormalize=False, softcap=3.0)


def load_step(path: Path) -> Callable[[Any], torch.Tensor]:
    spec = importlib.util.spec_from_file_location("step_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.custom_kernel


mref = load_step(ROOT / "moe" / "mref" / "submission.py")


def e4m3(code: int) -> float:
    exponent, mantissa = (code >> 3) & 15, code & 7
    size = mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return -size if code & 0x80 else size


def e4m3_nearest(value: float) -> float:
    """Ties to the even code; there are none in the operands (see test_no_hinges)."""
    table = [e4m3(code) for code in range(127)]
    size = min(table, key=lambda v: (abs(v - abs(value)), table.index(v) % 2))
    return math.copysign(size, value)


def independent_reference(data: MoeData) -> np.ndarray:
    """By the definition, token by token, in Python floats."""
    hidden = data.hidden.float().numpy()
    codes = data.weights.view(torch.uint8).numpy()
    table = np.array([e4m3(code) for code in range(256)])
    scales = data.weight_scales.double().numpy()
    result = np.zeros(tuple(data.output.shape))
    for token, logits in enumerate(data.gating.double().tolist()):
        if data.softcap:
            logits = [data.softcap * math.tanh(g / data.softcap) for g in logits]
        total = math.fsum(math.exp(g) for g in logits)
        weights = {e: math.exp(g) / total for e, g in enumerate(logits)}
        ranked = sorted(weights, key=lambda e: (-logits[e], e))[: data.topk]
        share = math.fsum(weights[e] for e in ranked) if data.renormalize else 1.0
        quantized = np.zeros(hidden.shape[1])
        for start in range(0, hidden.shape[1], 128):
            x = hidden[token, start : start + 128]
            scale = max(np.float32(np.abs(x).max()) / np.float32(448), np.float32(1e-6))
            values = [e4m3_nearest(float(np.float32(v) / scale)) * float(scale) for v in x]
            quantized[start : start + 128] = values
        for e in ranked:
            for n in range(result.shape[1]):
                scaled = table[codes[e, n]] * np.repeat(scales[e, n // 128], 128)
                result[token, n] += weights[e] / share * math.fsum(quantized * scaled)
    return result


def judge(inputs: Inputs, shape: MoeShape, input_class: str, output: torch.Tensor) -> Comparison:
    reference = PROBLEM.reference(inputs, shape, input_class)
    return PROBLEM.compare([output], reference, shape, input_class)


def run_with(inputs: Inputs, **changes: Any) -> torch.Tensor:
    """mref on changed operands."""
    data = inputs.data._replace(output=torch.empty_like(inputs.data.output), **changes)
    return mref(data)


def test_layout_of_the_data() -> None:
    data = PROBLEM.make_inputs(CAPPED, "random", 0, "cpu").data
    forms = [(t.dtype, tuple(t.shape)) for t in data[:5]]
    assert forms == [
        (torch.bfloat16, (9, 256)),
        (torch.float32, (9, 8)),
        (torch.float8_e4m3fn, (8, 128, 256)),
        (torch.float32, (8, 1, 2)),
        (torch.float32, (9, 128)),
    ]
    assert all(t.is_contiguous() for t in data[:5])
    assert data[5:] == (2, False, 3.0)


@pytest.mark.parametrize("input_class", CLASSES)
def test_same_seed_same_bits(input_class: str) -> None:
    def draw(seed: int) -> list[torch.Tensor]:
        inputs = PROBLEM.make_inputs(SMALL, input_class, seed, "cpu")
        return [tensor.view(torch.uint8) for tensor in inputs.operands]

    first, again, other = draw(5), draw(5), draw(6)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))


@pytest.mark.parametrize("input_class", CLASSES)
def test_operands_are_finite_and_without_hinges(input_class: str) -> None:
    data = PROBLEM.make_inputs(SMALL, input_class, 1, "cpu").data
    assert bool(torch.isfinite(data.weights.float()).all())
    assert not bool(fp8.hinges(data.hidden).any())
    if input_class == "random":
        codes = np.unique(data.weights.view(torch.uint8).numpy())
        assert set(codes) == set(range(256)) - {0x7F, 0xFF}


def test_skewed_routing_leaves_experts_empty() -> None:
    shape = MoeShape("skew", 64, 128, 128, 64, 4)
    inputs = PROBLEM.make_inputs(shape, "skewed", 0, "cpu")
    ids = inputs.data.gating.topk(4).indices
    counts = torch.bincount(ids.flatten(), minlength=64).sort(descending=True).values
    assert int((counts == 0).sum()) >= 40
    assert int(counts[:8].sum()) > 0.9 * 64 * 4
    assert "experts in use" in PROBLEM.work(shape, inputs).notes[0]


@pytest.mark.parametrize("seed", [0, 1])
def test_structured_products_are_all_seen(seed: int) -> None:
    shape = MoeShape("structured", 32, 256, 1024, 16, 4)
    inputs = PROBLEM.make_inputs(shape, "structured", seed, "cpu")
    data = inputs.data
    blocks = data.hidden.float().view(32, 8, 128)
    assert bool(((blocks != 0).sum(-1) == 1).all())
    scales = data.weight_scales
    for dim in range(3):
        assert bool(
            (
                scales.narrow(dim, 1, scales.shape[dim] - 1)
                != scales.narrow(dim, 0, scales.shape[dim] - 1)
            ).all()
        )
    assert len(set(blocks.abs().argmax(-1).flatten().tolist())) > 64
    _, token_scales = fp8.quantize(data.hidden)
    assert bool((token_scales[5] == 1e-6).all())
    # Tokens 1, 5, 9, ...: the last expert selected ties with one that is not.
    ranked = data.gating.sort(dim=-1, descending=True).values
    tied = ranked[:, 3] == ranked[:, 4]
    assert tied.tolist() == [token % 4 == 1 for token in range(32)]


@pytest.mark.parametrize("shape", [TINY, CAPPED], ids=lambda s: s.name)
@pytest.mark.parametrize("input_class", CLASSES)
def test_reference_equals_independent_one(shape: MoeShape, input_class: str) -> None:
    inputs = PROBLEM.make_inputs(shape, input_class, 2, "cpu")
    reference = PROBLEM.reference(inputs, shape, input_class)
    assert reference.tokens == []
    expected = independent_reference(inputs.data)
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(reference.values.numpy() - expected) <= 1e-13 * scale).all()


@pytest.mark.parametrize(
    "shape",
    [
        TINY,
        SMALL,
        CAPPED,
        MoeShape("one-token", 1, 128, 128, 2, 1),
        MoeShape("all-experts", 5, 128, 128, 4, 4),
        MoeShape("one-routing", 17, 128, 256, 12, 3, routing="one"),
        MoeShape("skewed-routing", 17, 128, 256, 32, 3, routing="skewed"),
        MoeShape("capped-renormalized", 8, 128, 384, 16, 8, softcap=30.0),
    ],
    ids=lambda s: s.name,
)
@pytest.mark.parametrize("input_class", CLASSES)
def test_mref_passes(shape: MoeShape, input_class: str) -> None:
    for seed in range(4):
        inputs = PROBLEM.make_inputs(shape, input_class, seed, "cpu")
        inputs.arena.fill(inputs.arena.draw_poison(seed))
        outputs = PROBLEM.outputs_of(mref(inputs.data), inputs)
        verdict = judge(inputs, shape, input_class, outputs[0])
        assert verdict.ok, verdict.reason


@pytest.mark.parametrize("input_class", CLASSES)
def test_bad_values_are_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    reference = PROBLEM.reference(inputs, SMALL, input_class)
    right = reference.values[:24].float()
    verdict = PROBLEM.compare([right], reference, SMALL, input_class)
    assert verdict.ok
    assert verdict.exact
    for value in (math.nan, math.inf):
        spoiled = right.clone()
        spoiled[3, 7] = value
        verdict = PROBLEM.compare([spoiled], reference, SMALL, input_class)
        assert not verdict.ok
        assert verdict.max_abs_err is None
        assert "token 3 column 7" in verdict.reason
        assert "1 of 6144 elements wrong" in verdict.reason
    for spoiled in (
        torch.zeros_like(right),
        torch.full_like(right, math.nan),
        right.roll(1, 0),
        right.roll(1, 1),
        right.roll(128, 1),
        right * 1.01,
    ):
        assert not PROBLEM.compare([spoiled], reference, SMALL, input_class).ok


def test_one_element_beyond_its_bound() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "random", 0, "cpu")
    reference = PROBLEM.reference(inputs, SMALL, "random")
    for factor, passes in ((0.99, True), (1.01, False)):
        output = reference.values.clone()
        output[11, 200] += factor * 8e-3 * reference.spread[11, 200]
        assert PROBLEM.compare([output], reference, SMALL, "random").ok is passes


def test_an_error_that_a_row_or_all_share() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "random", 0, "cpu")
    reference = PROBLEM.reference(inputs, SMALL, "random")
    row = reference.values.clone()
    row[11] += 2.5e-3 * reference.spread[11]
    reason = PROBLEM.compare([row], reference, SMALL, "random").reason
    assert reason.startswith("token 11: root mean square error")
    every = reference.values + 1.2e-3 * reference.spread
    reason = PROBLEM.compare([every], reference, SMALL, "random").reason
    assert "over the output" in reason
    wider = FusedMoe("bfloat16")
    assert wider.compare([every], reference, SMALL, "random").ok
    assert not wider.compare([reference.values * 1.1], reference, SMALL, "random").ok


def test_bfloat16_intermediate() -> None:
    with pytest.raises(UnknownNameError):
        FusedMoe("float16")
    inputs = PROBLEM.make_inputs(SMALL, "random", 1, "cpu")
    codes, scales = mref.__globals__["_quantize"](inputs.data.hidden)
    data = inputs.data
    ids, weights = mref.__globals__["_route"](data.gating, 4, True, 0.0)
    routed = mref.__globals__["_multiply"](codes, scales, data.weights, data.weight_scales, ids)
    output = (routed.bfloat16().float() * weights.unsqueeze(-1)).sum(1)
    reference = PROBLEM.reference(inputs, SMALL, "random")
    assert not PROBLEM.compare([output], reference, SMALL, "random").ok
    assert FusedMoe("bfloat16").compare([output], reference, SMALL, "random").ok


@pytest.mark.parametrize("input_class", CLASSES)
def test_wrong_scales_are_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    scales = inputs.data.weight_scales
    for spoiled in (scales.roll(1, 0), scales.roll(1, 1), scales.roll(1, 2), scales * 1.02):
        assert not judge(inputs, SMALL, input_class, run_with(inputs, weight_scales=spoiled)).ok


@pytest.mark.parametrize("input_class", CLASSES)
def test_wrong_weights_or_tokens_are_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    weights = inputs.data.weights.view(torch.uint8)
    for spoiled in (
        weights.roll(1, 0),
        weights.roll(1, 1),
        weights.roll(1, 2),
        weights.roll(128, 2),
    ):
        spoiled = spoiled.view(torch.float8_e4m3fn)
        assert not judge(inputs, SMALL, input_class, run_with(inputs, weights=spoiled)).ok
    for name in ("hidden", "gating"):
        spoiled = getattr(inputs.data, name).roll(1, 0)
        assert not judge(inputs, SMALL, input_class, run_with(inputs, **{name: spoiled})).ok


@pytest.mark.parametrize("input_class", CLASSES)
def test_wrong_routing_is_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    gating = inputs.data.gating
    wrong_expert, dropped = gating.clone(), gating.clone()
    order = gating[9].sort(descending=True, stable=True).indices
    wrong_expert[9, order[3]], wrong_expert[9, order[4]] = (
        gating[9, order[4]] - 1,
        gating[9, order[3]],
    )
    for spoiled in (wrong_expert, gating.roll(1, 1), -gating):
        assert not judge(inputs, SMALL, input_class, run_with(inputs, gating=spoiled)).ok
    swapped = gating.clone()
    swapped[2, order_of(gating[2])[[0, 3]]] = gating[2, order_of(gating[2])[[3, 0]]]
    assert not judge(inputs, SMALL, input_class, run_with(inputs, gating=swapped)).ok
    dropped[9, order[3]] = -100
    assert not judge(inputs, SMALL, input_class, run_with(inputs, gating=dropped)).ok
    for changes in ({"topk": 3}, {"renormalize": False}, {"softcap": 2.0}):
        assert not judge(inputs, SMALL, input_class, run_with(inputs, **changes)).ok


def order_of(logits: torch.Tensor) -> torch.Tensor:
    return logits.sort(descending=True, stable=True).indices


@pytest.mark.parametrize("input_class", CLASSES)
def test_one_dropped_pair_is_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    data = inputs.data
    functions = mref.__globals__
    ids, weights = functions["_route"](data.gating, 4, True, 0.0)
    codes, scales = functions["_quantize"](data.hidden)
    routed = functions["_multiply"](codes, scales, data.weights, data.weight_scales, ids)
    weighted = routed * weights.unsqueeze(-1)
    assert judge(inputs, SMALL, input_class, weighted.sum(1)).ok
    weighted[13, 3] = 0
    assert not judge(inputs, SMALL, input_class, weighted.sum(1)).ok


def test_equal_logits_go_to_the_lower_index() -> None:
    inputs = PROBLEM.make_inputs(TINY, "random", 0, "cpu")
    inputs.data.gating[:] = torch.tensor([0.0, 1.0, 2.0, 1.0, 1.0, 0.0, 1.0])
    reference = PROBLEM.reference(inputs, TINY, "random")
    assert reference.tokens_near == 0
    lower = inputs.data.gating.clone()
    lower[:, [4, 6]] = -50.0
    # The same three experts, weighted as in the tie, whatever the others are.
    assert PROBLEM.compare([run_with(inputs)], reference, TINY, "random").ok
    assert PROBLEM.compare([run_with(inputs, gating=lower)], reference, TINY, "random").ok
    higher = inputs.data.gating.clone()
    higher[:, [3, 4]] = -50.0
    assert not PROBLEM.compare([run_with(inputs, gating=higher)], reference, TINY, "random").ok


def test_near_ties_may_go_either_way() -> None:
    inputs = PROBLEM.make_inputs(TINY, "random", 0, "cpu")
    row = torch.tensor([0.0, 3.0, 1.0, 2.0, 0.0, 1.0, 0.0])
    inputs.data.gating[:] = row
    near = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    inputs.data.gating[4, 5] = near  # by one ulp the larger: yet either may be the third
    reference = PROBLEM.reference(inputs, TINY, "random")
    assert reference.tokens == [4]
    for favoured in (2, 5):
        gating = inputs.data.gating.clone()
        gating[4, 7 - favoured] = -50.0
        gating[4, favoured] = 1.0
        output = run_with(inputs, gating=gating)
        # Weights lack the mass of the expert left out only before they are renormalized.
        assert PROBLEM.compare([output], reference, TINY, "random").ok
    gating = inputs.data.gating.clone()
    gating[4, 2] = gating[4, 5] = -50.0
    gating[4, 6] = 1.0
    verdict = PROBLEM.compare([run_with(inputs, gating=gating)], reference, TINY, "random")
    assert not verdict.ok
    assert "1 tokens with near ties judged apart" in verdict.reason
    inputs.data.gating[4, 5] = 1.001  # far enough to be told apart
    assert PROBLEM.reference(inputs, TINY, "random").tokens == []


def test_near_tie_next_to_equal_logits() -> None:
    inputs = PROBLEM.make_inputs(TINY, "random", 0, "cpu")
    inputs.data.gating[:] = torch.tensor([1.0, 3.0, 1.0, 2.0, 0.0, 1.0 + 2.0**-23, 0.0])
    reference = PROBLEM.reference(inputs, TINY, "random")
    # Experts 1 and 3, with 5 (first row) or 0; never 2, whose equal 0 has the lower index.
    assert reference.tokens == list(range(6))


def test_scale_floor_is_demanded() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "structured", 0, "cpu")
    functions = mref.__globals__
    data = inputs.data
    ids, weights = functions["_route"](data.gating, 4, True, 0.0)
    blocks = data.hidden.float().view(24, -1, 128)
    scales = blocks.abs().amax(-1, keepdim=True) / torch.tensor(448.0)
    codes = (blocks / scales).to(torch.float8_e4m3fn).float()
    routed = functions["_multiply"](codes, scales, data.weights, data.weight_scales, ids)
    output = (routed * weights.unsqueeze(-1)).sum(1)
    verdict = judge(inputs, SMALL, "structured", output)
    assert not verdict.ok
    assert "768 of 6144 elements wrong" in verdict.reason  # the tokens 5, 13 and 21


def test_returned_values() -> None:
    inputs = PROBLEM.make_inputs(TINY, "random", 0, "cpu")
    output = mref(inputs.data)
    assert output is inputs.data.output
    assert PROBLEM.outputs_of(output, inputs)[0] is output
    assert PROBLEM.outputs_of([output], inputs)[0] is output
    with pytest.raises(ValueError, match=r"output 0 is float64\[6, 128\] on cpu: expected float32"):
        PROBLEM.outputs_of(output.double(), inputs)
    with pytest.raises(ValueError, match="output 0 is NoneType"):
        PROBLEM.outputs_of(None, inputs)


def test_work_counts_the_experts_in_use() -> None:
    shape = MoeShape("w", 4, 128, 256, 8, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 0, "cpu")
    inputs.data.gating[:] = torch.arange(8.0)  # experts 6 and 7 only
    work = PROBLEM.work(shape, inputs)
    assert work.flops == 2 * 4 * 2 * 128 * 256
    assert work.bytes_read == 2 * (128 * 256 + 2 * 4) + 4 * 256 * 2 + 4 * 8 * 4
    assert work.bytes_written == 4 * 128 * 4
    qwen = MoeShape("qwen35", 128, 512, 2048, 256, 8)
    assert 260e6 < PROBLEM.work(qwen).bytes_read < 270e6
    single = MoeShape("m1", 1, 512, 2048, 256, 8)
    weights = 8 * (512 * 2048 + 4 * 16 * 4)
    assert PROBLEM.work(single).bytes_read == pytest.approx(weights + 2048 * 2 + 256 * 4)


def test_unknown_class() -> None:
    with pytest.raises(UnknownNameError, match="input class 'full'"):
        PROBLEM.make_inputs(TINY, "full", 0, "cpu")


def hopper_dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Dots of ``[rows, 128 * b]`` as Hopper's FP8 tensor core sums them, promoted every 128.

    Steps of 32: addends are truncated to 13 fractional bits of the largest one's power of two,
    their sum to 13 bits of its own.
    """

    def truncate(values: np.ndarray, exponent: np.ndarray) -> np.ndarray:
        return np.ldexp(np.trunc(np.ldexp(values, 13 - exponent)), exponent - 13)

    products = (left * right).reshape(len(left), -1, 4, 32)
    total = np.zeros(len(left))
    for block in range(products.shape[1]):
        sums = np.zeros((len(left), 1))
        for step in range(4):
            addends = np.concatenate((sums, products[:, block, step]), axis=1)
            largest = np.abs(addends).max(axis=1, keepdims=True)
            sums = truncate(addends, np.frexp(largest)[1] - 1).sum(axis=1, keepdims=True)
            sums = truncate(sums, np.frexp(sums)[1] - 1)
        total += sums[:, 0]
    return total


def test_tolerance_covers_hopper_accumulation_and_little_more() -> None:
    """The derived 8.1e-4 of sigma against the modelled hardware, on the operands of the class."""
    data = PROBLEM.make_inputs(MoeShape("h", 40, 128, 1024, 1, 1), "random", 0, "cpu").data
    tokens = fp8.quantize(data.hidden)[0].double().numpy()
    weights = data.weights[0].double().numpy()
    left, right = np.repeat(tokens, 128, axis=0), np.tile(weights, (40, 1))
    error = hopper_dot(left, right) - (left * right).sum(axis=1)
    sigma = np.sqrt(np.square(left * right).sum(axis=1))
    relative = np.sqrt(np.square(error).mean() / np.square(sigma).mean())
    assert 0.2 * 8.1e-4 < relative < 8.1e-4
    assert (np.abs(error) < 8e-3 * sigma).all()
