"""The group GEMM's operands, reference and checker, and v00 on them."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.problems.group_gemm import inputs as group_gemm_inputs
from kernelbench.problems.group_gemm import nvfp4, tolerance
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.problems.group_gemm.shape import GroupGemmShape
from kernelbench.project.problem import Inputs, OutputVerdict
from kernelbench.project.shapes import load_shapes

ROOT = Path(__file__).resolve().parents[2]
CLASSES = ("gpu-mode", "full", "structured")
SMALL = GroupGemmShape("small", (5, 130), (24, 16), (64, 192))
SQUARE = GroupGemmShape("square", (128,), (128,), (256,))
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def load_step(path: Path) -> Callable[[Any], list[torch.Tensor]]:
    spec = importlib.util.spec_from_file_location("step_under_test", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.custom_kernel


v00 = load_step(ROOT / "kernels" / "v00" / "submission.py")


def e4m3(code: int) -> float:
    exponent, mantissa = code >> 3, code & 7
    return mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    return tensor[:, :, 0].view(torch.uint8).numpy()


def independent_values(packed: torch.Tensor, scales: torch.Tensor) -> np.ndarray:
    codes, scale_codes = bytes_of(packed), bytes_of(scales)
    values = np.zeros((codes.shape[0], codes.shape[1] * 2))
    for row in range(codes.shape[0]):
        for column in range(values.shape[1]):
            nibble = int(codes[row, column // 2]) >> (4 * (column % 2)) & 15
            sign = -1 if nibble & 8 else 1
            scale = e4m3(int(scale_codes[row, column // 16]))
            values[row, column] = sign * E2M1[nibble & 7] * scale
    return values


def independent_reference(inputs: Inputs) -> list[np.ndarray]:
    abc, scales, _, _ = inputs.data
    results = []
    for (a, b, _), (sfa, sfb) in zip(abc, scales, strict=True):
        left, right = independent_values(a, sfa), independent_values(b, sfb)
        result = np.zeros((len(left), len(right)))
        for row in range(len(left)):
            for column in range(len(right)):
                result[row, column] = math.fsum(left[row] * right[column])
        results.append(result)
    return results


def judge(
    inputs: Inputs, shape: GroupGemmShape, input_class: str, outputs: list[torch.Tensor]
) -> OutputVerdict:
    reference = PROBLEM.reference(inputs, shape, input_class)
    return PROBLEM.compare(outputs, reference, shape, input_class)


def rounded(inputs: Inputs, shape: GroupGemmShape, input_class: str) -> list[torch.Tensor]:
    """Right outputs, to be spoiled."""
    reference = PROBLEM.reference(inputs, shape, input_class)
    return [ref.rounded.clone().unsqueeze(-1) for ref in reference]


def test_layout_of_the_data() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "gpu-mode", 3, "cpu")
    abc, plain, blocked, sizes = inputs.data
    assert sizes == [(5, 24, 64, 1), (130, 16, 192, 1)]
    for (a, b, c), (sfa, sfb), (ra, rb), (m, n, k, _) in zip(
        abc, plain, blocked, sizes, strict=True
    ):
        for tensor, rows in ((a, m), (b, n)):
            assert tensor.dtype == torch.float4_e2m1fn_x2
            assert tensor.shape == (rows, k // 2, 1)
            assert tensor.stride() == (k // 2, 1, rows * k // 2)
        assert c.dtype == torch.float16
        assert c.shape == (m, n, 1)
        assert c.stride() == (n, 1, m * n)
        for plain_scales, atoms, rows in ((sfa, ra, m), (sfb, rb, n)):
            assert plain_scales.dtype == atoms.dtype == torch.float8_e4m3fn
            assert plain_scales.shape == (rows, k // 16, 1)
            assert plain_scales.device.type == "cpu"
            assert atoms.shape == (32, 4, -(-rows // 128), 4, k // 64, 1)
            memory = atoms.view(torch.uint8).permute(5, 2, 4, 0, 1, 3)
            assert memory.is_contiguous()
            flat, codes = memory.flatten().numpy(), bytes_of(plain_scales)
            for row in range(rows):
                for block in range(k // 16):
                    byte = ((row // 128) * (k // 64) + block // 4) * 512
                    byte += (row % 32) * 16 + ((row % 128) // 32) * 4 + block % 4
                    assert flat[byte] == codes[row, block]
            assert flat.max() <= 0x7E
    # Padding rows are not zero: at least 100 of the 118 padded rows of the first A hold something.
    padding = blocked[0][0].view(torch.uint8).permute(2, 1, 0, 4, 3, 5).reshape(128, -1)[5:]
    assert int((padding != 0).any(dim=1).sum()) > 100
    assert [c.data_ptr() for c in inputs.outputs] == [v.data_ptr() for v in inputs.arena.views]


@pytest.mark.parametrize("input_class", CLASSES)
def test_same_seed_same_bits(input_class: str) -> None:
    def draw(seed: int) -> list[torch.Tensor]:
        inputs = PROBLEM.make_inputs(SMALL, input_class, seed, "cpu")
        return [tensor.view(torch.uint8) for tensor in inputs.operands]

    first, again, other = draw(5), draw(5), draw(6)
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not any(torch.equal(x, y) for x, y in zip(first, other, strict=True))


def test_unknown_class() -> None:
    with pytest.raises(UnknownNameError, match="input class 'ful'"):
        PROBLEM.make_inputs(SMALL, "ful", 0, "cpu")


def test_gpu_mode_values() -> None:
    abc, plain, _, _ = PROBLEM.make_inputs(SQUARE, "gpu-mode", 0, "cpu").data
    for tensor in abc[0][:2]:
        nibbles = np.concatenate([bytes_of(tensor) & 15, bytes_of(tensor) >> 4])
        assert set(np.unique(nibbles)) == {0, 1, 2, 3, 8, 9, 10, 11}
    for tensor in plain[0]:
        assert set(np.unique(tensor[:, :, 0].float().numpy())) == {1.0, 2.0}


def test_full_visits_every_code() -> None:
    scale_codes: tuple[set[int], set[int]] = (set(), set())
    for seed in range(6):
        abc, plain, _, _ = PROBLEM.make_inputs(SQUARE, "full", seed, "cpu").data
        for tensor in abc[0][:2]:
            nibbles = np.concatenate([bytes_of(tensor) & 15, bytes_of(tensor) >> 4])
            counts = np.bincount(nibbles.flatten(), minlength=16)
            assert counts.min() > 0.9 * counts.mean()
        for side in (0, 1):
            codes = set(np.unique(bytes_of(plain[0][side])).tolist())
            assert 0x7F not in codes
            scale_codes[side].update(codes)
    assert scale_codes[0] == scale_codes[1] == set(range(0x7F))


@pytest.mark.parametrize("k", [64, 256, 1536, 7168])
def test_full_budget(k: int) -> None:
    budget = group_gemm_inputs.scale_budget(k)

    def overflow(scale: float) -> float:
        variance = k * sum(x * x * y * y for x in E2M1 for y in E2M1) / 64 * scale**2
        return 2 * math.exp(-(65504**2) / (2 * (variance + 36 * scale * 65504 / 3)))

    assert overflow(budget * 0.999) < 1e-12 or 36 * k * budget * 0.999 <= 65504
    assert overflow(budget * 1.01) > 1e-12  # and no smaller than it has to be
    for seed in range(12):
        a, b = group_gemm_inputs.scale_ceilings(k, seed)
        assert e4m3(a) * e4m3(b) <= budget
        assert e4m3(a) * e4m3(b + 1) > budget or b == 0x7E
    assert group_gemm_inputs.scale_ceilings(k, 0)[0] == 0x7E
    assert group_gemm_inputs.scale_ceilings(k, 1)[1] == 0x7E


@pytest.mark.parametrize("seed", [0, 1])
def test_structured_is_one_hot_and_hits_every_block(seed: int) -> None:
    shape = GroupGemmShape("tall", (72, 130), (80, 128), (1024, 768))
    abc, plain, _, _ = PROBLEM.make_inputs(shape, "structured", seed, "cpu").data
    for group, scales in zip(abc, plain, strict=True):
        codes = bytes_of(group[seed])
        values = np.stack([codes & 7, codes >> 4 & 7], axis=-1).reshape(len(codes), -1)
        assert ((values != 0).sum(axis=1) == 1).all()
        hot = (values != 0).argmax(axis=1)
        assert set(hot // 16) == set(range(values.shape[1] // 16))
        dense = bytes_of(group[1 - seed])
        assert ((dense & 7 != 0) & (dense & 0x70 != 0)).all()
        for side in scales:
            scale = bytes_of(side).astype(int)
            for step in (1, 4):
                assert (scale[:, step:] != scale[:, :-step]).all()
            for step in (1, 32):
                assert (scale[step:] != scale[:-step]).all()


def test_structured_positions_go_on_with_the_seed() -> None:
    shape = GroupGemmShape("short", (8,), (8,), (512,))
    blocks = set()
    for seed in (0, 2, 4, 6):
        codes = bytes_of(PROBLEM.make_inputs(shape, "structured", seed, "cpu").data[0][0][0])
        blocks |= set((codes != 0).argmax(axis=1) // 8)
    assert blocks == set(range(32))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("input_class", CLASSES)
def test_reference_equals_independent_one(input_class: str, seed: int) -> None:
    shape = GroupGemmShape("tiny", (3, 17), (8, 16), (64, 192))
    inputs = PROBLEM.make_inputs(shape, input_class, seed, "cpu")
    reference = PROBLEM.reference(inputs, shape, input_class)
    for ref, expected in zip(reference, independent_reference(inputs), strict=True):
        assert np.array_equal(ref.exact.numpy(), expected)
        assert np.array_equal(ref.rounded.numpy(), expected.astype(np.float16))
    if input_class == "full":
        abc, scales, _, _ = inputs.data
        left = independent_values(abc[1][0], scales[1][0])
        right = independent_values(abc[1][1], scales[1][1])
        sigma = np.sqrt(left**2 @ (right**2).T)
        np.testing.assert_allclose(reference[1].sigma.numpy(), sigma, rtol=2e-3)
        assert (reference[1].sigma.numpy() >= sigma).all()


@pytest.mark.parametrize("input_class", CLASSES)
def test_v00_passes_every_test_shape(input_class: str) -> None:
    table = load_shapes(
        ROOT / "shapes.yaml",
        {"group_gemm": PROBLEM, "fused_moe": PROBLEM_STUB, "moe_layer": PROBLEM_STUB},
    )
    names = [f"t{i}" for i in range(10)] + [f"u{i}" for i in range(6)]
    for seed, name in enumerate(names):
        shape = table[name]
        inputs = PROBLEM.make_inputs(shape, input_class, seed, "cpu")
        inputs.arena.fill(inputs.arena.draw_poison(seed))
        outputs = PROBLEM.outputs_of(v00(inputs.data), inputs)
        verdict = judge(inputs, shape, input_class, outputs)
        assert verdict.ok, f"{name}: {verdict.reason}"
        assert verdict.exact or input_class == "full"


class _AnyShape:
    """Reads the other problem's shapes without judging them."""

    name = "fused_moe"

    def parse_shape(self, name: str, fields: Any) -> str:
        return name


PROBLEM_STUB: Any = _AnyShape()


def test_v00_overflow_free_on_a_long_sum() -> None:
    shape = GroupGemmShape("long", (16,), (32,), (7168,))
    for seed in range(3):
        inputs = PROBLEM.make_inputs(shape, "full", seed, "cpu")
        assert judge(inputs, shape, "full", v00(inputs.data)).ok


@pytest.mark.parametrize("input_class", CLASSES)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nonfinite_is_rejected(input_class: str, value: float) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    outputs = rounded(inputs, SMALL, input_class)
    outputs[1][7, 3, 0] = value
    verdict = judge(inputs, SMALL, input_class, outputs)
    assert not verdict.ok
    assert verdict.max_abs_err is None
    assert "group 1 row 7 column 3" in verdict.reason
    assert "1 of 2200 elements wrong" in verdict.reason


@pytest.mark.parametrize("input_class", CLASSES)
def test_zeros_and_all_nan_are_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    for value in (0.0, math.nan):
        outputs = [torch.full_like(c, value) for c in inputs.outputs]
        assert not judge(inputs, SMALL, input_class, outputs).ok


@pytest.mark.parametrize("input_class", ["gpu-mode", "structured"])
def test_one_ulp_is_rejected_where_exact(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 1, "cpu")
    outputs = rounded(inputs, SMALL, input_class)
    right = judge(inputs, SMALL, input_class, outputs)
    assert (right.ok, right.exact, right.reason) == (True, True, "")
    outputs[0].view(torch.int16)[2, 5, 0] += 1
    verdict = judge(inputs, SMALL, input_class, outputs)
    assert not verdict.ok
    assert not verdict.exact
    assert "group 0 row 2 column 5" in verdict.reason
    assert "1 of 2200" in verdict.reason


def test_negative_zero_is_zero() -> None:
    shape = GroupGemmShape("zero", (1,), (8,), (64,))
    inputs = PROBLEM.make_inputs(shape, "gpu-mode", 0, "cpu")
    inputs.data[0][0][0].view(torch.uint8).zero_()
    minus = torch.full((1, 8, 1), -0.0, dtype=torch.float16)
    assert judge(inputs, shape, "gpu-mode", [minus]).exact


def test_full_rejects_one_element_beyond_its_bound() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "full", 2, "cpu")
    reference = PROBLEM.reference(inputs, SMALL, "full")
    ref = reference[1]
    bound = 192 * 2.0**-23 * 8 * float(ref.sigma[100, 9])
    bound = 2.0**-11 * (abs(float(ref.exact[100, 9])) + bound) + 2.0**-25 + bound
    for factor, passes in ((0.99, True), (1.01, False)):
        outputs = [ref.exact.clone() for ref in reference]
        outputs[1][100, 9] += factor * bound
        verdict = PROBLEM.compare(outputs, reference, SMALL, "full")
        assert verdict.ok is passes
    assert "group 1 row 100 column 9" in verdict.reason


def test_full_rejects_a_small_error_that_a_tile_shares() -> None:
    shape = GroupGemmShape("tiles", (130,), (256,), (2048,))
    inputs = PROBLEM.make_inputs(shape, "full", 2, "cpu")
    reference = PROBLEM.reference(inputs, shape, "full")
    ref = reference[0]
    # Within every element's bound (8 sigma), beyond the tile's (2 sigma and the rounding).
    shift = 2048 * 2.0**-23 * 7 * ref.sigma[:128, 128:]
    outputs = [ref.exact.clone()]
    outputs[0][:128, 128:] += shift
    verdict = PROBLEM.compare(outputs, reference, shape, "full")
    assert not verdict.ok
    assert "tile at row 0 column 128: root mean square error" in verdict.reason


def spoil_scales(inputs: Inputs, side: int, change: Callable[[Any], Any]) -> Any:
    """The same data with one side's scales misplaced, in both of the layouts that hold them."""
    abc, plain, _, sizes = inputs.data
    spoiled, reordered = [], []
    for pair in plain:
        scales = list(pair)
        scales[side] = change(scales[side].view(torch.uint8)).view(torch.float8_e4m3fn)
        spoiled.append(tuple(scales))
        reordered.append(tuple(reorder(of) for of in scales))
    return abc, spoiled, reordered, sizes


def reorder(scales: torch.Tensor) -> torch.Tensor:
    """``[128, k / 16, 1]`` -> the blocked view; these tests use whole atoms of 128 rows only."""
    rows = scales[:, :, 0].view(torch.uint8)
    return nvfp4.block_scales(rows, torch.zeros_like(rows)).view(torch.float8_e4m3fn)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("input_class", CLASSES)
@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.roll(1, 0),
        lambda s: s.roll(1, 1),
        lambda s: s.roll(4, 1),
        lambda s: s.roll(32, 0),
        lambda s: s.view(128, 4, 4, 1).transpose(1, 2).reshape(s.shape),
        lambda s: s.view(4, 32, 16, 1).transpose(0, 1).reshape(s.shape),
    ],
    ids=["row", "block", "atom", "quarter", "blocks-transposed", "rows-transposed"],
)
@pytest.mark.parametrize("side", [0, 1])
def test_misplaced_scales_are_rejected(
    input_class: str, change: Callable[[Any], Any], side: int, seed: int
) -> None:
    inputs = PROBLEM.make_inputs(SQUARE, input_class, seed, "cpu")
    outputs = v00(spoil_scales(inputs, side, change))
    assert not judge(inputs, SQUARE, input_class, outputs).ok


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("input_class", CLASSES)
def test_swapped_operands_are_rejected(input_class: str, seed: int) -> None:
    inputs = PROBLEM.make_inputs(SQUARE, input_class, seed, "cpu")
    abc, plain, blocked, sizes = inputs.data
    swapped = (abc, *([(sfb, sfa) for sfa, sfb in of] for of in (plain, blocked)), sizes)
    assert not judge(inputs, SQUARE, input_class, v00(swapped)).ok
    transposed = [c.transpose(0, 1).contiguous() for c in v00(inputs.data)]
    assert not judge(inputs, SQUARE, input_class, transposed).ok
    nibbles = [
        (((a.view(torch.uint8) >> 4) | (a.view(torch.uint8) << 4)).view(a.dtype), b, c)
        for a, b, c in abc
    ]
    assert not judge(inputs, SQUARE, input_class, v00((nibbles, plain, blocked, sizes))).ok


@pytest.mark.parametrize("input_class", CLASSES)
def test_stale_output_is_rejected(input_class: str) -> None:
    old = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    new = PROBLEM.make_inputs(SMALL, input_class, 1, "cpu")
    assert not judge(new, SMALL, input_class, v00(old.data)).ok


@pytest.mark.parametrize("input_class", CLASSES)
def test_unwritten_row_is_rejected(input_class: str) -> None:
    inputs = PROBLEM.make_inputs(SMALL, input_class, 0, "cpu")
    inputs.arena.fill(inputs.arena.draw_poison(1))
    poisoned = inputs.outputs[1][129].clone()
    outputs = v00(inputs.data)
    outputs[1][129] = poisoned
    assert not judge(inputs, SMALL, input_class, outputs).ok


def test_results_of_the_wrong_form() -> None:
    inputs = PROBLEM.make_inputs(SMALL, "gpu-mode", 0, "cpu")
    good = v00(inputs.data)
    assert PROBLEM.outputs_of(tuple(good), inputs) == good

    class Lazy(torch.Tensor):
        pass

    cases: list[tuple[Any, str]] = [
        (None, "returned NoneType: expected a list of 2 tensors"),
        (good[0], "returned float16[5, 24, 1] on cpu: expected a list"),
        (good[:1], "returned 1 outputs: expected 2"),
        ([good[0], "x"], "output 1 is str"),
        ([good[0], good[1].float()], "output 1 is float32[130, 16, 1]"),
        ([good[1], good[0]], "output 0 is float16[130, 16, 1]"),
        ([good[0], good[1].to("meta")], "on meta"),
        ([good[0], good[1].as_subclass(Lazy)], "output 1 is a Lazy"),
        ([good[0], good[1].to_sparse()], "layout torch.sparse_coo"),
    ]
    for result, message in cases:
        with pytest.raises(ValueError) as caught:
            PROBLEM.outputs_of(result, inputs)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)


def test_work_of_shape_d() -> None:
    shape = GroupGemmShape("D", (128, 384), (4096, 4096), (1536, 1536))
    work = PROBLEM.work(shape)
    assert work.flops == 2 * 512 * 4096 * 1536
    values = (512 + 2 * 4096) * 1536 / 2
    scales = (512 + 2 * 4096) * 1536 / 16
    assert work.bytes_read == values + scales
    assert work.bytes_written == 512 * 4096 * 2
    padded = PROBLEM.work(GroupGemmShape("one", (1,), (8,), (64,)))
    assert padded.bytes_read == (1 + 8) * 32 + (128 + 128) * 4


def test_v00_can_be_submitted_as_it_is() -> None:
    source = (ROOT / "kernels" / "v00" / "submission.py").read_text(encoding="utf-8")
    lines = source.splitlines()
    assert lines[:2] == ["#!POPCORN leaderboard nvfp4_group_gemm", "#!POPCORN gpu B200"]
    assert "stream" not in source.lower()
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert imports == ["import functools", "import torch"]


def test_v00_blocked_scales_follow_the_layout() -> None:
    blocked = v00.__globals__["_blocked"]
    codes = torch.randint(0, 127, (130, 8), dtype=torch.uint8)
    flat = blocked(codes.view(torch.float8_e4m3fn)).view(torch.uint8)
    for row in range(130):
        for block in range(8):
            byte = ((row // 128) * 2 + block // 4) * 512
            byte += (row % 32) * 16 + ((row % 128) // 32) * 4 + block % 4
            assert flat[byte] == codes[row, block]
    assert int((flat != 0).sum()) == int((codes != 0).sum())


def test_reference_of_what_float16_cannot_hold() -> None:
    shape = GroupGemmShape("big", (1,), (8,), (64,))
    inputs = PROBLEM.make_inputs(shape, "gpu-mode", 0, "cpu")
    abc, plain, _, _ = inputs.data
    for tensor in (*abc[0][:2], *plain[0]):
        tensor.view(torch.uint8).fill_(0x77 if tensor.dtype == torch.float4_e2m1fn_x2 else 0x7E)
    (found,) = tolerance.multiply(inputs.data, with_sigma=False)
    assert (found.exact == 64 * 36 * 448.0**2).all()
    assert (found.rounded == math.inf).all()


@pytest.mark.parametrize("bound", [None, 0.01], ids=["exact", "bounded"])
@pytest.mark.parametrize(
    ("value", "output", "ok"),
    [
        (65519.9, 65504.0, True),
        (65520.0, math.inf, True),
        (-65520.0, -math.inf, True),
        (-1e9, -math.inf, True),
        (65520.0, -math.inf, False),
        (65519.0, math.inf, False),
        (1e9, 65504.0, False),
        (1e9, math.nan, False),
        (1.0, math.inf, False),
    ],
)
def test_infinities_are_where_the_sum_leaves_float16(
    bound: float | None, value: float, output: float, ok: bool
) -> None:
    """The bound is far below the distance of 65519 from the least value that is infinite."""
    exact = torch.tensor([[value, 1.0]], dtype=torch.float64)
    sigma = None if bound is None else torch.full_like(exact, bound * 2**20)
    reference = tolerance.GroupReference(exact, nvfp4.round_to_half(exact), sigma, 1)
    got = torch.tensor([[output, 1.0]], dtype=torch.float16)
    found = tolerance.judge_group_gemm([got], [reference])
    assert found.ok == ok, found.reason


@pytest.mark.parametrize("input_class", CLASSES)
@pytest.mark.parametrize("m", [(0, 5, 0), (0,)])
def test_groups_without_rows(input_class: str, m: tuple[int, ...]) -> None:
    shape = GroupGemmShape("empty", m, (24,) * len(m), (64,) * len(m))
    inputs = PROBLEM.make_inputs(shape, input_class, 1, "cpu")
    outputs = rounded(inputs, shape, input_class)
    assert [tuple(output.shape) for output in outputs] == [(rows, 24, 1) for rows in m]
    assert judge(inputs, shape, input_class, outputs).ok
    for output in outputs:
        output += 1
    assert judge(inputs, shape, input_class, outputs).ok == (not any(m))


@pytest.mark.parametrize(
    ("limits", "dims", "words"),
    [
        ({"nk": "fixed"}, {"m": 8, "n": [128, 256], "k": 256}, "one N and K"),
        ({"nk": "fixed"}, {"m": 8, "n": 128, "k": [256, 512]}, "one N and K"),
        ({"nk": "fixed"}, {"m": [8, 9], "n": 128, "k": 256}, ""),
        ({"nk": "var"}, {"m": 8, "n": [128, 256], "k": 256}, ""),
        ({"max_groups": 1}, {"m": [8, 9], "n": 128, "k": 256}, "at most 1 groups"),
        ({"least_m": 1}, {"m": [8, 0], "n": 128, "k": 256}, "M of at least 1 in each group"),
        ({"least_m": 1}, {"m": [8, 1], "n": 128, "k": 256}, ""),
        ({"k_multiple": 256}, {"m": 8, "n": 128, "k": 320}, "multiple of 256"),
    ],
)
def test_broken_limit(limits: dict[str, object], dims: dict[str, object], words: str) -> None:
    shape = PROBLEM.parse_shape("x", dims)
    found = PROBLEM.broken_limit(shape, limits)
    assert words in found
    assert bool(found) == bool(words)


def test_unknown_limit_is_refused() -> None:
    shape = PROBLEM.parse_shape("x", {"m": 8, "n": 128, "k": 256})
    with pytest.raises(UsageError, match="unknown limit 'n_max'"):
        PROBLEM.broken_limit(shape, {"n_max": 4})
