"""Problems that are one small class: shapes, data, bounds, and what each check can see."""

from __future__ import annotations

import math
import re
import runpy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from kernelbench.base.errors import FaultyReferenceError, ProblemError, UsageError
from kernelbench.lineages.scaffold import files_of, template_names
from kernelbench.measure.correctness import Checker, why_wrong
from kernelbench.problems.tensor.problem import TensorProblem
from kernelbench.problems.tensor.tolerance import Bound, TensorReference, gamma, judge_tensors
from kernelbench.project.arena import GuardedOutputs, MixedArena
from kernelbench.project.error_attribution import guarded
from kernelbench.project.problem import Inputs, OutputVerdict, Problem, Work
from kernelbench.project.shapes import ShapeFieldError
from kernelbench.worker.call_sequence import laid_over, with_outputs_of

INF, NAN = math.inf, math.nan


@dataclass(frozen=True)
class Dims:
    rows: int
    columns: tuple[int, ...]
    eps: float = 1e-6
    causal: bool = False
    kind: Literal["a", "b"] = "a"
    offset: int = field(default=0, metadata={"minimum": 0})

    def __post_init__(self) -> None:
        if self.rows % 2:
            raise ValueError(f"rows must be even, found {self.rows}")


class Norms(TensorProblem):
    """Two outputs of two dtypes that a step is given: norms of rows, and where they are large."""

    Shape = Dims
    depth = 20

    def make_inputs(self, shape: Dims, input_class: str, seed: int, device: str) -> Any:
        draw = torch.Generator(device).manual_seed(seed)
        return {"x": torch.randn(shape.rows, shape.columns[0], generator=draw), "eps": shape.eps}

    def outputs(self, shape: Dims) -> Any:
        return {"norm": ((shape.rows,), torch.float16), "large": ((shape.rows,), torch.bool)}

    def reference(self, inputs: Any) -> Any:
        norm = inputs["x"].double().square().sum(1).sqrt()
        return {"large": norm.half() > 2, "norm": norm}


def of(kind: type[TensorProblem]) -> Problem:
    return guarded(kind, kind.__name__)


def check(step: Any, problem: Problem, **fields: Any) -> Any:
    shape = problem.parse_shape("s", {"rows": 8, "columns": 16, **fields})
    return Checker(step, problem, shape, "cpu", 1, lambda *_: None, 10).check("normal")


def norms(data: Any) -> None:
    torch.linalg.vector_norm(data["x"], dim=1, out=None)
    norm = data["x"].square().sum(1).sqrt()
    data["norm"].copy_(norm)
    data["large"].copy_(data["norm"] > 2)


class TestShapes:
    def test_fields_by_their_types(self) -> None:
        shape = of(Norms).parse_shape("s", {"rows": 2, "columns": [3, 4], "eps": 1, "kind": "b"})
        assert shape.dims == Dims(2, (3, 4), 1.0, False, "b")
        assert shape.describe() == "rows=2 columns=3,4 eps=1.0 causal=False kind=b offset=0"
        assert of(Norms).parse_shape("s", {"rows": 2, "columns": 3}).dims.columns == (3,)
        assert hash(shape) == hash(of(Norms).parse_shape("s", {"rows": 4, "columns": 3}))

    @pytest.mark.parametrize(
        ("fields", "name", "said"),
        [
            ({"rows": 2}, "columns", "missing field 'columns'"),
            ({"rows": 2, "columns": 3, "k": 1}, "k", "unknown field 'k'"),
            ({"rows": 0, "columns": 3}, "rows", "rows must be 1 or more, found 0"),
            ({"rows": 2.0, "columns": 3}, "rows", "rows must be an integer, found 2.0"),
            ({"rows": True, "columns": 3}, "rows", "rows must be an integer, found True"),
            ({"rows": 2, "columns": []}, "columns", "columns is empty"),
            ({"rows": 2, "columns": [3, "x"]}, "columns", "must be an integer, found 'x'"),
            ({"rows": 2, "columns": 3, "eps": "x"}, "eps", "eps must be a number"),
            ({"rows": 2, "columns": 3, "eps": INF}, "eps", "eps must be finite"),
            ({"rows": 2, "columns": 3, "causal": 1}, "causal", "must be true or false"),
            ({"rows": 2, "columns": 3, "kind": "c"}, "kind", "expected one of a, b"),
            ({"rows": 2, "columns": 3, "offset": -1}, "offset", "must be 0 or more"),
        ],
    )
    def test_a_wrong_field_is_named(self, fields: Any, name: str, said: str) -> None:
        with pytest.raises(ShapeFieldError, match=said) as caught:
            of(Norms).parse_shape("s", fields)
        assert caught.value.field == name

    def test_its_own_rule_is_the_shapes_mistake(self) -> None:
        with pytest.raises(ValueError, match="rows must be even") as caught:
            of(Norms).parse_shape("s", {"rows": 3, "columns": 4})
        assert not isinstance(caught.value, ProblemError)

    @pytest.mark.parametrize(
        ("limits", "said"),
        [
            ({"max_columns": 100}, ""),
            ({"max_columns": 10}, "takes columns up to 10"),
            ({"min_rows": 9}, "takes rows of at least 9"),
            ({"columns_multiple": 5}, "needs columns to be a multiple of 5"),
        ],
    )
    def test_limits_bound_fields(self, limits: Any, said: str) -> None:
        problem = of(Norms)
        found = problem.broken_limit(problem.parse_shape("s", {"rows": 8, "columns": 16}), limits)
        assert found.startswith(said)
        assert bool(found) == bool(said)

    @pytest.mark.parametrize("limits", [{"max_k": 1}, {"max_rows": "x"}, {"rows_multiple": 0}])
    def test_an_unknown_limit_is_refused(self, limits: Any) -> None:
        problem = of(Norms)
        with pytest.raises(UsageError, match="max_rows, min_rows, rows_multiple"):
            problem.broken_limit(problem.parse_shape("s", {"rows": 8, "columns": 16}), limits)

    def test_a_name_from_the_class(self) -> None:
        class GroupedGEMMOfRows(TensorProblem):
            pass

        assert GroupedGEMMOfRows.name == "grouped_gemm_of_rows"
        assert Norms.name == "norms"


class TestGivenOutputs:
    def test_written_in_place_or_returned(self) -> None:
        assert check(norms, of(Norms)).status == "pass"

        def returned(data: Any) -> Any:
            norms(data)
            return {"large": data["large"].clone(), "norm": data["norm"].clone()}

        assert check(returned, of(Norms)).status == "pass"

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (
                lambda data: data["norm"][3].fill_(NAN),
                "norm: 1 of 8 elements are wrong; [3] is nan",
            ),
            (lambda data: data["large"].logical_not_(), "large: 8 of 8 elements are wrong"),
            (lambda data: data["x"].zero_(), "overwrote its inputs"),
        ],
    )
    def test_what_is_wrong_is_seen(self, change: Any, said: str) -> None:
        def step(data: Any) -> None:
            norms(data)
            change(data)

        found = check(step, of(Norms))
        assert (found.status, said in found.reason) == ("wrong", True), found.reason

    def test_what_is_not_written_is_seen(self) -> None:
        def step(data: Any) -> None:
            kept = data["norm"][4:].clone()
            norms(data)
            data["norm"][4:] = kept

        found = check(step, of(Norms), rows=2000)
        assert found.status == "wrong"
        assert "were never written" in found.reason

    def test_what_an_earlier_call_gave_is_named(self) -> None:
        kept: dict[int, Any] = {}

        def step(data: Any) -> None:
            norms(data)
            made = data["norm"].clone(), data["large"].clone()
            earlier = kept.setdefault(data["x"].data_ptr(), made)
            data["norm"].copy_(earlier[0])
            data["large"].copy_(earlier[1])

        found = check(step, of(Norms))
        assert found.status == "wrong"
        assert found.reason.startswith("call on new values: it gives the earlier result; ")

    def test_what_is_poison_by_chance_is_not_counted(self) -> None:
        """Of 100,000 elements of 8 bits some 390 equal their poison."""
        outputs = GuardedOutputs([(100_000,)], torch.uint8, "cpu")
        inputs = Inputs({}, [], [*outputs.views], outputs)
        poison = outputs.draw_poison(1)
        outputs.fill(poison)
        verdict = OutputVerdict(False, False, 1.0, "wrong")
        outputs.views[0].random_(generator=torch.Generator().manual_seed(2))
        assert why_wrong(verdict, inputs, poison) == "wrong"
        outputs.flat[: outputs.spans[0][0] + 20_000] = poison[: outputs.spans[0][0] + 20_000]
        count = re.fullmatch(
            r"about (\d+)00 of 100000 output elements were never written; wrong",
            why_wrong(verdict, inputs, poison),
        )
        assert count and 198 <= int(count[1]) <= 202

    def test_an_arena_of_several_dtypes(self) -> None:
        specs = ((3, 5), torch.bool), ((), torch.float64), ((7,), torch.int16)
        like = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in specs]
        arena = MixedArena(like, "cpu")
        poison = arena.draw_poison(1)
        arena.fill(poison)
        assert [(view.shape, view.dtype) for view in arena.views] == [
            ((3, 5), torch.bool), ((), torch.float64), ((7,), torch.int16),
        ]  # fmt: skip
        assert [int(mask.sum()) for mask in arena.unwritten(poison)] == [15, 1, 7]
        arena.views[2][2] += 1
        assert [int(mask.sum()) for mask in arena.unwritten(poison)] == [15, 1, 6]
        assert arena.guards_intact(poison)


def judge(out: list[float], values: list[float], bound: Bound, dtype: Any = torch.float16) -> bool:
    reference = torch.tensor(values, dtype=torch.float64)
    whole = TensorReference([reference], [dtype], [reference.abs()])
    return judge_tensors([torch.tensor(out, dtype=dtype)], whole, bound, ()).ok


class TestBounds:
    def test_the_derived_bound_is_the_one_that_is_stated(self) -> None:
        n, u, v = 10, 2.0**-24, 2.0**-11
        bound = Bound(factor=gamma(n, u) + gamma(n, 2.0**-53))
        values, magnitudes = torch.tensor([3.0]).double(), torch.tensor([50.0]).double()
        error = (n * u / (1 - n * u) + n * 2.0**-53 / (1 - n * 2.0**-53)) * 50
        expected = error + v * (3 + error) + 2.0**-24 / 2
        assert float(bound.of(values, magnitudes, torch.float16)) == pytest.approx(expected, 1e-14)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_sums_in_any_order_stay_within_it(self, dtype: torch.dtype) -> None:
        draw = torch.Generator().manual_seed(1)
        terms = torch.randn(64, 500, generator=draw)
        running = torch.zeros(64)
        for column in terms[:, torch.randperm(500, generator=draw)].T:
            running = running + column
        values, magnitudes = terms.double().sum(1), terms.double().abs().sum(1)
        whole = TensorReference([values], [dtype], [magnitudes])
        bound = Bound(factor=gamma(500, 2.0**-24) + gamma(500, 2.0**-53))
        assert judge_tensors([running.to(dtype)], whole, bound, ()).ok
        # Half of the terms in the output's own format is another sum.
        if dtype is torch.bfloat16:
            half = terms[:, :250].to(dtype).sum(1)
            assert not judge_tensors([half], whole, bound, ()).ok

    @pytest.mark.parametrize(
        ("out", "value", "right"),
        [
            (NAN, 1.0, False), (NAN, INF, False), (INF, INF, True), (-INF, INF, False),
            (65504.0, INF, False), (INF, 1.0, False), (INF, 65504.0, False), (INF, 65519.995, True),
            (INF, 7e4, True), (-INF, 7e4, False), (65504.0, 65510.0, True), (0.0, 1e-12, True),
            (0.0, 1e-6, False),
        ],
    )  # fmt: skip
    def test_what_is_not_finite(self, out: float, value: float, right: bool) -> None:
        assert judge([out], [value], Bound(factor=1e-7)) is right

    def test_a_stated_bound(self) -> None:
        assert judge([1.01], [1.0], Bound(0.02, 0.0), torch.float32)
        assert not judge([1.03], [1.0], Bound(0.02, 0.0), torch.float32)
        assert judge([0.05], [0.0], Bound(0.0, 0.1), torch.float32)
        assert not judge([NAN], [1.0], Bound(10.0, 10.0), torch.float32)

    def test_integers_are_equal_or_wrong(self) -> None:
        values = torch.tensor([2**40, 5])
        whole = TensorReference([values], [torch.int64], [values.double()])
        assert judge_tensors([values.clone()], whole, Bound(1.0, 1.0), ()).ok
        assert not judge_tensors([values + 1], whole, Bound(1.0, 1.0), ()).ok

    def test_a_scalar(self) -> None:
        values = torch.tensor(2.0).double()
        whole = TensorReference([values], [torch.float32], [values])
        found = judge_tensors([torch.tensor(3.0)], whole, Bound(0.1, 0.0), ())
        assert found.reason == "output: 1 of 1 elements are wrong; [] is 3, expected 2 (± 0.2)"

    def test_depth_beyond_what_a_format_bounds_is_refused(self) -> None:
        class Sums(Norms):
            depth = 128
            accumulate = "bfloat16"

        found = check(norms, of(Sums))
        assert found.status == "problem"
        assert "128 roundings in bfloat16 bound nothing" in found.reason

    def test_a_reference_in_float32_is_allowed_its_own_error(self) -> None:
        class Single(Norms):
            def reference(self, inputs: Any) -> Any:
                return {name: t.float() if t.is_floating_point() else t
                        for name, t in super().reference(inputs).items()}  # fmt: skip

        problem: Any = of(Single)
        shape = problem.parse_shape("s", {"rows": 2, "columns": 3})
        drawn = problem.make_inputs(shape, "normal", 1, "cpu")
        reference = problem.reference(drawn, shape, "normal")
        assert problem.bound(reference, shape, "normal").factor == 2 * gamma(20, 2.0**-24)


class TestWork:
    def test_bytes_by_default(self) -> None:
        problem = of(Norms)
        shape = problem.parse_shape("s", {"rows": 8, "columns": 16})
        assert problem.work(shape) == Work(0.0, 8 * 16 * 4, 8 * 3, "fp32")

    def test_flops_or_all_of_it(self) -> None:
        class Flops(Norms):
            def work(self, shape: Dims) -> Any:
                return 2 * shape.rows

        class Whole(Norms):
            def work(self, shape: Dims) -> Any:
                return Work(1.0, 2.0, 3.0, "fp8")

        for kind, expected in ((Flops, Work(16.0, 512, 24, "fp32")), (Whole, Work(1, 2, 3, "fp8"))):
            problem = of(kind)
            assert problem.work(problem.parse_shape("s", {"rows": 8, "columns": 16})) == expected

    def test_the_outputs_that_a_step_makes_count(self) -> None:
        class Fresh(TensorProblem):
            Shape = Dims
            depth = 1

            def make_inputs(self, shape: Dims, input_class: str, seed: int, device: str) -> Any:
                return torch.ones(shape.rows, dtype=torch.bfloat16)

            def reference(self, x: torch.Tensor) -> Any:
                return x.double(), x > 0

        problem = of(Fresh)
        shape = problem.parse_shape("s", {"rows": 8, "columns": 1})
        assert problem.work(shape) == Work(0.0, 16.0, 8 * 3.0, "bf16")


class TestInputs:
    @pytest.mark.parametrize(
        ("made", "said"),
        [
            (lambda: 3, "expected a tensor"),
            (lambda: (torch.ones(1).expand(4), 1), r"data\[0\] is expanded"),
            (lambda: {"a": torch.ones(2).to_sparse()}, r"data\['a'\] is a Tensor of layout"),
            (lambda: torch.ones(2, requires_grad=True), "requires a gradient"),
            (lambda: {"norm": torch.ones(2)}, "'norm' is an input, too"),
        ],
    )
    def test_what_no_step_can_be_given(self, made: Any, said: str) -> None:
        class Odd(Norms):
            def make_inputs(self, *_: Any) -> Any:
                return made()

        problem = of(Odd)
        shape = problem.parse_shape("s", {"rows": 2, "columns": 3})
        with torch.enable_grad(), pytest.raises(ProblemError, match=said):
            problem.make_inputs(shape, "normal", 1, "cpu")

    def test_the_reference_gets_copies(self) -> None:
        class Careless(Norms):
            def reference(self, inputs: Any) -> Any:
                found = super().reference(inputs)
                inputs["x"].zero_()
                return found

        assert check(norms, of(Careless)).status == "pass"

    def test_a_reference_of_another_shape_is_refused(self) -> None:
        class Other(Norms):
            def reference(self, inputs: Any) -> Any:
                return torch.ones(3).double(), torch.ones(3) > 0

        problem = of(Other)
        shape = problem.parse_shape("s", {"rows": 2, "columns": 3})
        drawn = problem.make_inputs(shape, "normal", 1, "cpu")
        with pytest.raises(FaultyReferenceError, match=r"gave \[3\] for \[2\], output 0"):
            problem.reference(drawn, shape, "normal")


@pytest.mark.parametrize("template", template_names())
def test_outputs_are_taken_from_inputs_that_a_sequence_of_calls_puts_together(
    template: str,
) -> None:
    found = runpy.run_path(str(files_of(template)[Path("kernels/problem.py")])).values()
    (kind,) = (each for each in found if getattr(each, "__base__", None) is TensorProblem)
    problem = of(kind)
    fields = {"m": 8, "n": 8, "k": 8} if template == "gemm" else {"rows": 8, "columns": 16}
    shape = problem.parse_shape("s", fields)
    whole, drawn = (problem.make_inputs(shape, "normal", seed, "cpu") for seed in (1, 2))
    for made in (with_outputs_of(drawn, whole), laid_over(drawn, whole)):
        assert made is not None
        right = problem.right_outputs(problem.reference(drawn, shape, "normal"), drawn)
        outputs = problem.outputs_of(None if made.outputs else right[0], made)
        assert [one.shape for one in outputs] == [one.shape for one in right]
        assert made.plain == drawn.plain
