"""The checker itself, on a problem small enough to see through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelbench.measure.correctness import Checker, refill
from kernelbench.problems.fused_moe.problem import PROBLEM as MOE
from kernelbench.problems.group_gemm.problem import PROBLEM as GEMM

SHAPE = GEMM.parse_shape("s", {"m": [4, 8], "n": 16, "k": 64})
SMALL_MOE = MOE.parse_shape("s", {"m": 5, "n": 128, "k": 256, "e": 8, "topk": 2})
Step = Callable[[Any], Any]


def right(data: Any) -> Any:
    """Right values, from the problem's own reference."""
    from kernelbench.problems.group_gemm.tolerance import multiply

    outputs = []
    for (_, _, c), ref in zip(data[0], multiply(data, with_sigma=False), strict=True):
        c[:, :, 0] = ref.rounded
        outputs.append(c)
    return outputs


def check(step: Step, input_class: str = "gpu-mode", seed: int = 3, **more: Any) -> Any:
    phases: list[tuple[str, float]] = []
    checker = Checker(
        step,
        GEMM,
        SHAPE,
        "cpu",
        seed,
        lambda name, limit, whose="step": phases.append((name, limit)),
        5.0,
        **more,
    )
    result = checker.check(input_class)
    assert phases, "every phase is announced"
    return result


@pytest.mark.parametrize("input_class", GEMM.input_classes)
@pytest.mark.parametrize("seed", [0, 1, 2**31])
def test_right_passes(input_class: str, seed: int) -> None:
    result = check(right, input_class, seed)
    assert (result.status, result.exact, result.reason) == ("pass", True, "")
    assert result.notes == ()


def spoiled(spoil: Callable[[list[Any]], Any]) -> Step:
    def step(data: Any) -> Any:
        outputs = right(data)
        return spoil(outputs) or outputs

    return step


SPOILS: dict[str, Callable[[list[Any]], Any]] = {
    "zeros": lambda outputs: [c.zero_() for c in outputs],
    "NaN": lambda outputs: [c.fill_(float("nan")) for c in outputs],
    "one NaN": lambda outputs: outputs[1].view(-1)[77:78].fill_(float("nan")) and None,
    "infinity": lambda outputs: outputs[0].view(-1)[5:6].fill_(float("inf")) and None,
    "half the last group": lambda outputs: outputs[1][:4].zero_() is None,
    "twice": lambda outputs: [c.mul_(2) for c in outputs],
    "negated": lambda outputs: [c.neg_() for c in outputs],
    "shifted by a row": lambda outputs: [c.copy_(c.roll(1, 0)) for c in outputs],
    "swapped columns": lambda outputs: [c.copy_(c.flip(1)) for c in outputs],
    "one group for another": lambda outputs: [
        outputs[0],
        outputs[1].copy_(outputs[0].repeat(2, 1, 1)),
    ],
}


@pytest.mark.parametrize("input_class", GEMM.input_classes)
@pytest.mark.parametrize("name", SPOILS)
def test_spoiled_values_are_rejected(name: str, input_class: str) -> None:
    def step(data: Any) -> Any:
        outputs = right(data)
        SPOILS[name](outputs)
        return outputs

    result = check(step, input_class)
    assert result.status == "wrong"
    assert result.reason


@pytest.mark.parametrize("seed", range(5))
def test_one_bad_element_anywhere_is_found_and_located(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    group = int(torch.randint(0, 2, (), generator=generator))
    rows = (4, 8)[group]
    row = int(torch.randint(0, rows, (), generator=generator))
    column = int(torch.randint(0, 16, (), generator=generator))

    def step(data: Any) -> Any:
        outputs = right(data)
        outputs[group][row, column] += 1
        return outputs

    result = check(step)
    assert result.status == "wrong"
    assert f"group {group} row {row} column {column}: " in result.reason
    assert "1 of 192 elements wrong" in result.reason
    assert result.max_abs_err == 1.0


def test_an_error_in_the_third_call_only_is_found() -> None:
    """Calls 1 and 2 have the same values; call 3 has new ones."""
    calls = []

    def step(data: Any) -> Any:
        calls.append(1)
        outputs = right(data)
        if len(calls) == 3:
            outputs[0][0, 0] += 1
        return outputs

    assert check(step).status == "wrong"
    assert len(calls) == 3


def test_a_step_whose_bits_vary_within_the_bounds_passes_with_a_note() -> None:
    calls = []

    def step(data: Any) -> Any:
        calls.append(1)
        outputs = right(data)
        if len(calls) == 2:
            bits = outputs[1].view(torch.int16)
            bits[0, 0] += 1
        return outputs

    result = check(step, "full")
    assert result.status == "pass"
    assert result.notes == ("not bitwise repeatable (1 elements)",)


def test_every_operand_is_guarded() -> None:
    inputs = GEMM.make_inputs(SHAPE, "gpu-mode", 1, "cpu")
    for index in range(len(inputs.operands)):

        def step(data: Any, index: int = index) -> Any:
            outputs = right(data)
            seen = []
            for group, (a, b, _) in enumerate(data[0]):
                seen += [a, b, *data[1][group], *data[2][group]]
            operand = seen[index].view(torch.uint8)
            operand[(0,) * operand.ndim] ^= 1
            return outputs

        result = check(step)
        assert result.status == "wrong", index
        assert f"overwrote its inputs (operand {index}: " in result.reason


def test_inputs_differ_between_seeds_and_classes_and_calls() -> None:
    seen: dict[str, list[bytes]] = {}

    def remember(key: str) -> Step:
        def step(data: Any) -> Any:
            raw = data[0][0][0].view(torch.uint8).numpy().tobytes()
            seen.setdefault(key, []).append(raw)
            return right(data)

        return step

    check(remember("a"), seed=1)
    check(remember("a again"), seed=1)
    check(remember("b"), seed=2)
    check(remember("full"), "full", seed=1)
    first, second, third = seen["a"]
    assert first == second != third
    assert seen["a again"] == seen["a"]
    assert not {*seen["b"], *seen["full"]} & set(seen["a"])


def test_the_outputs_hold_other_poison_in_each_call() -> None:
    seen = []

    def step(data: Any) -> Any:
        seen.append(data[0][0][2].clone().view(torch.int16))
        return right(data)

    check(step)
    assert len(seen) == 3
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert float((seen[one] == seen[other]).float().mean()) < 0.1
    assert all(len(poison.unique()) > 50 for poison in seen)


def test_what_a_step_raises_becomes_a_row() -> None:
    def missing(data: Any) -> Any:
        raise NotImplementedError

    def memory(data: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried")

    assert check(missing).status == "skipped"
    assert check(missing).reason == "NotImplementedError"
    result = check(memory)
    assert result.status == "fault"
    assert result.reason == "first call: out of memory (CUDA out of memory. Tried)"


def test_a_result_is_judged_once_the_kernel_returned_other_tensors() -> None:
    """Outputs of the step's own that it changes afterwards do not count."""
    kept: list[Any] = []

    def step(data: Any) -> Any:
        for tensor in kept:
            tensor.fill_(float("nan"))
        fresh = [c.clone() for c in right(data)]
        kept.extend(fresh)
        return fresh

    assert check(step).status == "pass"


def test_refill_keeps_the_addresses() -> None:
    one, two = (GEMM.make_inputs(SHAPE, "full", seed, "cpu") for seed in (1, 2))
    before = [operand.data_ptr() for operand in one.operands]
    refill(one, two)
    assert [operand.data_ptr() for operand in one.operands] == before
    for mine, other in zip(one.operands, two.operands, strict=True):
        assert torch.equal(mine.view(torch.uint8), other.view(torch.uint8))


@pytest.mark.parametrize("spoil", ["zeros", "nan", "element", "topk", "right"])
def test_the_moe(spoil: str) -> None:
    """The reference step of the other problem, right and spoiled."""
    import importlib.util
    from pathlib import Path

    file = Path(__file__).resolve().parents[2] / "moe" / "mref" / "submission.py"
    spec = importlib.util.spec_from_file_location("mref_under_test", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def step(data: Any) -> Any:
        if spoil == "topk":
            data = data._replace(topk=data.topk - 1)
        output = module.custom_kernel(data)
        if spoil == "zeros":
            output.zero_()
        elif spoil == "nan":
            output[2, 3] = float("nan")
        elif spoil == "element":
            output[4, 100] += output.abs().max() / 4
        return output

    checker = Checker(step, MOE, SMALL_MOE, "cpu", 5, lambda *_: None, 5.0)
    status = checker.check(MOE.input_classes[0]).status
    assert status == ("pass" if spoil == "right" else "wrong")
