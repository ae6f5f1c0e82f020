"""One-step fused mixture of experts with blockwise FP8, end to end: routing included.

Per token: ``logits = softcap * tanh(gating / softcap)`` (softcap 0: the gating itself), softmax
over all experts in float32, the ``topk`` largest (ties to the lower expert index), optionally
renormalized to sum to one; the hidden row quantized to FP8
(:mod:`kernelbench.problems.fused_moe.fp8`); then

    output[t, n] = Σ_e weight[t, e] Σ_b sA[t, b] sB[e, n / 128, b] Σ_{k in b} q[t, k] w[e, n, k]

over the selected experts e and the blocks b of 128 along K. Operands are in
:mod:`kernelbench.problems.fused_moe.inputs`, reference and tolerances in
:mod:`kernelbench.problems.fused_moe.tolerance`.

**Values that are not finite.** A token's output is NaN in every column if its hidden row holds a
NaN or an infinity, or if the largest of its logits is not finite: one is NaN or +∞, or all are -∞.
No other token's output is affected, and each token still goes to ``topk`` different experts. A
logit of -∞ among others gives its expert the weight 0. Logits are meant after the softcap, which
makes infinities finite. Weights and their scales must be finite.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.kinds.protocol import HostPath
from kernelbench.problems.fused_moe.shape import INTERMEDIATES, ROUTINGS, MoeShape
from kernelbench.project.model import Step
from kernelbench.project.problem import Inputs, Kernel, OutputVerdict, Work
from kernelbench.project.shapes import ShapeFieldError, check_fields, positive_int

if TYPE_CHECKING:
    import torch

_CROWD = 64
_BLOCK = 128


def halved(shape: Any, extent: str) -> Any | None:
    """``shape`` with half of an extent, rounded up to a whole block; None if it has one block."""
    blocks = getattr(shape, extent) // _BLOCK
    if blocks == 1:
        return None
    less = {extent: (blocks + 1) // 2 * _BLOCK}
    return dataclasses.replace(shape, name=f"{shape.name}, less depth", **less)


class RoutedProblem:
    """What the problems of experts have in common: one output, and tokens that can be fewer.

    Args:
        intermediate: Precision in which a step may hold an expert's results: ``float32``, or
            ``bfloat16`` with the wider tolerance that its rounding costs.
    """

    name: str
    input_classes: tuple[str, ...]
    #: Atomic adds come in any order: the last bits of a sum may differ between calls.
    repeatable: bool = False
    #: GPU MODE has none.
    leaderboards: Mapping[str, tuple[str, str]] = MappingProxyType({})
    #: By a limit's name: the size that it bounds, and what a step then takes.
    _limits: ClassVar[Mapping[str, tuple[str, str]]]

    def __init__(self, intermediate: str = "float32") -> None:
        if intermediate not in INTERMEDIATES:
            raise UnknownNameError("intermediate precision", intermediate, INTERMEDIATES)
        self.intermediate = intermediate

    def for_steps(self, steps: Sequence[Step]) -> Self:
        """The problem with the tolerance of the coarsest ``intermediate`` in the steps' configs.

        Raises:
            UnknownNameError: If a step declares another precision than :data:`INTERMEDIATES`.
        """
        declared = (step.config.get("intermediate", self.intermediate) for step in steps)
        found = [type(self)(str(each)) for each in declared]
        return max(found, key=lambda problem: INTERMEDIATES.index(problem.intermediate))

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The output, float32, a row a token, as a tensor or a list of one; else ValueError."""
        from kernelbench.problems.returned import check_tensors, stored_items

        values = stored_items(result)
        return check_tensors([result] if values is None else values, inputs.outputs)

    def prepare(self, step: Step) -> None:
        """Nothing: calls go through ctypes."""

    def fewer_rows(self, shape: Any) -> Any | None:
        """Half the tokens."""
        if shape.m == 1:
            return None
        return dataclasses.replace(shape, name=f"{shape.name}, fewer rows", m=shape.m // 2)

    def broken_limit(self, shape: Any, limits: Mapping[str, Any]) -> str:
        """The limits are a step's largest sizes; UsageError for one that is not known here."""
        broken = ""
        for limit, value in limits.items():
            if limit not in self._limits:
                raise UsageError(
                    f"unknown limit {limit!r} in a step of {self.name}",
                    f"known: {', '.join(self._limits)}",
                )
            size, text = self._limits[limit]
            if getattr(shape, size) > value:
                broken = f"{text.format(value)} (limits.{limit})"
        return broken

    def _known(self, input_class: str) -> None:
        if input_class not in self.input_classes:
            raise UnknownNameError("input class", input_class, self.input_classes)

    def _sizes(
        self, fields: Mapping[str, Any], names: Sequence[str], options: Sequence[str]
    ) -> tuple[int, int, int, int, int]:
        """The values of ``names``: m, two multiples of 128, e, and topk, which e bounds."""
        check_fields(fields, required=names, optional=options)
        m, n, k, e, topk = (positive_int(field, fields[field]) for field in names)
        for field, extent in ((names[1], n), (names[2], k)):
            if extent % _BLOCK:
                raise ShapeFieldError(
                    field, f"{field} must be a multiple of {_BLOCK}, found {extent}"
                )
        if topk > e:
            raise ShapeFieldError("topk", f"topk must be at most e={e}, found {topk}")
        return m, n, k, e, topk

    def _routing(self, fields: Mapping[str, Any]) -> str:
        routing = fields.get("routing", "uniform")
        if routing not in ROUTINGS:
            raise ShapeFieldError(
                "routing", f"routing must be one of {', '.join(ROUTINGS)}, found {routing!r}"
            )
        return str(routing)

    def _experts_in_use(self, shape: Any, counted: int | None) -> tuple[float, str]:
        """How many experts are read, counted or as expected, and a note that says which."""
        if counted is not None:
            return float(counted), f"{counted} of {shape.e} experts in use"
        active = shape.e * (1.0 - (1.0 - shape.topk / shape.e) ** shape.m)
        note = f"{active:.1f} of {shape.e} experts in use, expected under uniform routing"
        return active, note


class FusedMoe(RoutedProblem):
    """The problem, see :class:`~kernelbench.project.problem.Problem`.

    ``data``: :class:`MoeData`.
    """

    name = "fused_moe"
    input_classes: tuple[str, ...] = ("random", "skewed", "structured")
    benchmark_shapes: tuple[str, ...] = ("qwen35",)
    check_shapes: tuple[str, ...] = (
        "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s9", "s10", "s8", "s11",
        "s12", "s13", "s14",
    )  # fmt: skip
    _limits = MappingProxyType({"max_tokens": ("m", "takes at most {} tokens")})

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> MoeShape:
        """A shape from ``m n k e topk`` and, optionally, ``renormalize softcap routing``.

        Raises:
            ShapeFieldError: If n or k is no multiple of 128, topk exceeds e, or a type is wrong.
        """
        sizes = ("m", "n", "k", "e", "topk")
        values = self._sizes(fields, sizes, ("renormalize", "softcap", "routing"))
        renormalize = fields.get("renormalize", True)
        if renormalize not in (0, 1):
            raise ShapeFieldError(
                "renormalize", f"renormalize must be true or false, found {renormalize!r}"
            )
        softcap = fields.get("softcap", 0.0)
        if isinstance(softcap, bool) or not isinstance(softcap, int | float) or not softcap >= 0:
            raise ShapeFieldError(
                "softcap", f"softcap must be a number, 0 for none, found {softcap!r}"
            )
        options = bool(renormalize), float(softcap), self._routing(fields)
        return MoeShape(name, *values, *options)

    def less_depth(self, shape: MoeShape) -> MoeShape | None:
        """About half of k."""
        return halved(shape, "k")

    def other_options(self, shape: MoeShape) -> Sequence[MoeShape]:
        """Renormalized or not, and with a bound of the logits or without."""
        name, softcap = f"{shape.name}, other options", 0.0 if shape.softcap else 2.0
        return (
            dataclasses.replace(shape, name=name, renormalize=not shape.renormalize),
            dataclasses.replace(shape, name=name, softcap=softcap),
        )

    def make_inputs(self, shape: MoeShape, input_class: str, seed: int, device: str) -> Inputs:
        """Draw operands on ``device``, see :mod:`kernelbench.problems.fused_moe.inputs`.

        Raises:
            UnknownNameError: If the input class is none of ``input_classes``.
        """
        from kernelbench.problems.fused_moe.inputs import draw_moe

        self._known(input_class)
        return draw_moe(shape, input_class, seed, device)

    def reference(self, inputs: Inputs, shape: MoeShape, input_class: str) -> Any:
        """float64 results for every selection of experts that rounding leaves open.

        See :func:`kernelbench.problems.fused_moe.tolerance.evaluate`.
        """
        from kernelbench.problems.fused_moe.tolerance import evaluate

        self._known(input_class)
        return evaluate(inputs.data, structured=input_class == "structured")

    def compare(
        self, outputs: Sequence[torch.Tensor], reference: Any, shape: MoeShape, input_class: str
    ) -> OutputVerdict:
        """Derived bounds, see :func:`kernelbench.problems.fused_moe.tolerance.judge_moe`."""
        from kernelbench.problems.fused_moe.tolerance import judge_moe

        return judge_moe(outputs[0], reference, self.intermediate)

    def right_outputs(self, reference: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The reference's values for the first selection of every token, rounded once."""
        (output,) = inputs.outputs
        return [reference.values[: len(output)].to(output.dtype).view(output.shape)]

    def work(self, shape: MoeShape, inputs: Inputs | None = None) -> Work:
        """2·m·topk·n·k FLOPs; hidden, gating, output, and the weights of the experts in use.

        The article's lower bound counts the activations only. But each expert that any token
        selects must be read whole: at m = 128 nearly all 256 of them, 268 MB, which is the bound.
        With ``inputs`` the experts are counted in the routing drawn; without, as expected when
        every expert is equally likely.
        """
        counted = None
        if inputs is not None:
            from kernelbench.problems.fused_moe.tolerance import count_active

            counted = count_active(inputs.data)
        active, note = self._experts_in_use(shape, counted)
        per_expert = shape.n * shape.k + 4 * (shape.n // _BLOCK) * (shape.k // _BLOCK)
        read = active * per_expert + 2 * shape.m * shape.k + 4 * shape.m * shape.e
        flops = 2.0 * shape.m * shape.topk * shape.n * shape.k
        return Work(flops, read, 4.0 * shape.m * shape.n, "fp8", (note,))

    def situations(self, shape: MoeShape, step: Step, sms: int) -> dict[str, bool]:
        """Whether each situation is reached, by the shape's sizes and the kind of its routing."""
        routes = shape.m * shape.topk
        blocks = shape.k // _BLOCK
        average = routes / shape.e
        crowded = (shape.m if shape.routing == "one" else average) > _CROWD
        stages = int(step.config.get("stages", 1))
        empty = (shape.routing != "uniform" or routes < shape.e) and shape.e > shape.topk
        return {
            "an expert with more than 64 tokens": crowded,
            "an expert with more than 64 tokens and an odd number of blocks of K": crowded
            and blocks % 2 == 1,
            "experts without tokens": empty,
            "one block of K and experts without tokens": blocks == 1 and empty,
            "a pipeline that comes round": blocks > stages,
            "experts without tokens and a pipeline that comes round": blocks > stages and empty,
            "17 to 40 tokens an expert on average": 17 <= average <= 40,
            "41 to 72 tokens an expert on average": 41 <= average <= 72,
            "more than 72 tokens an expert on average": average > 72,
            "several tiles of N": shape.n > _BLOCK,
            "one token": shape.m == 1,
            "more tokens than SMs": shape.m > sms,
            "fewer tokens than SMs": shape.m < sms,
            "weights that are not renormalized": not shape.renormalize,
            "a softcap": shape.softcap > 0,
        }

    def bind(self, entry: LoadedStep, step: Step, device: str) -> Kernel:
        """See :mod:`kernelbench.problems.fused_moe.abi`."""
        from kernelbench.problems.fused_moe.abi import bind_moe

        return bind_moe(entry, device)

    def host_path(self, step: Step) -> HostPath:
        """The host path that :meth:`bind` uses."""
        from kernelbench.problems.fused_moe import abi

        return HostPath(Path(abi.__file__), "bind_moe", data="MoeData")


PROBLEM = FusedMoe()
