"""A whole MoE layer behind its router, in blockwise FP8, as serving engines hand it over.

For token t and each of its experts e, with q(.) the quantization of
:func:`kernelbench.problems.fused_moe.fp8.quantize` (per block of 128 values the scale
``max(amax / 448, 1e-6)``, the values divided by it; both are IEEE divisions of float32):

    gate, up = the halves of w13[e] q(hidden[t])
    h = silu(gate) * up
    output[t] = Σ_e expert_weights[t, e] * (w2[e] q(h))

Matrices are e4m3 with a float32 scale for each block of 128 x 128. A route whose id is no expert's
counts for nothing; a token may name an expert twice. Operands are in
:mod:`kernelbench.problems.moe_layer.inputs`, reference and tolerances in
:mod:`kernelbench.problems.moe_layer.reference`.

**Values that are not finite.** A token that has an expert gets NaN in every column if its hidden
row holds a NaN or an infinity, or one of its experts' weights is NaN. No other token's output is
affected. Weights must not be infinite, matrices and their scales be finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.kinds.protocol import HostPath
from kernelbench.problems.fused_moe.problem import RoutedProblem, halved
from kernelbench.problems.moe_layer.shape import LayerShape
from kernelbench.project.model import Step
from kernelbench.project.problem import Inputs, Kernel, OutputVerdict, Work

if TYPE_CHECKING:
    import torch

_BLOCK = 128


class MoeLayer(RoutedProblem):
    """The problem, see :class:`~kernelbench.project.problem.Problem`.

    ``data``: :class:`~kernelbench.problems.moe_layer.shape.LayerData`.
    """

    name = "moe_layer"
    input_classes: tuple[str, ...] = ("random", "skewed", "edges")
    benchmark_shapes: tuple[str, ...] = ("layer",)
    #: Those that take longest begin, so that no core waits for the last of them.
    check_shapes: tuple[str, ...] = (
        "l0", "l-large", "l80", "l-few", "l2", "l1", "l4", "l3", "l6", "l5", "l8", "l7",
        "l-token", "l9",
    )  # fmt: skip
    _limits = MappingProxyType({
        "max_tokens": ("m", "takes m up to {}"), "max_hidden": ("h", "takes h up to {}"),
        "max_intermediate": ("i", "takes i up to {}"),
    })  # fmt: skip

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> LayerShape:
        """A shape from ``m h i e topk`` and, optionally, ``routing``.

        Raises:
            ShapeFieldError: If h or i is no multiple of 128, topk exceeds e, or a type is wrong.
        """
        sizes = ("m", "h", "i", "e", "topk")
        values = self._sizes(fields, sizes, ("routing",))
        return LayerShape(name, *values, self._routing(fields))

    def less_depth(self, shape: LayerShape) -> LayerShape | None:
        """About half of the intermediate size, or of the hidden one."""
        smaller: LayerShape | None = halved(shape, "i") or halved(shape, "h")
        return smaller

    def make_inputs(self, shape: LayerShape, input_class: str, seed: int, device: str) -> Inputs:
        """Draw operands on ``device``, see :mod:`kernelbench.problems.moe_layer.inputs`.

        Raises:
            UnknownNameError: If the input class is none of ``input_classes``.
        """
        from kernelbench.problems.moe_layer.inputs import draw_layer

        self._known(input_class)
        return draw_layer(shape, input_class, seed, device)

    def reference(self, inputs: Inputs, shape: LayerShape, input_class: str) -> Any:
        """float64 results, see :func:`kernelbench.problems.moe_layer.reference.evaluate_layer`."""
        from kernelbench.problems.moe_layer.reference import evaluate_layer

        return evaluate_layer(inputs.data)

    def compare(
        self, outputs: Sequence[torch.Tensor], reference: Any, shape: LayerShape, input_class: str
    ) -> OutputVerdict:
        """Derived bounds, see :func:`kernelbench.problems.moe_layer.reference.judge_layer`."""
        from kernelbench.problems.moe_layer.reference import judge_layer

        return judge_layer(outputs[0], reference, self.intermediate)

    def right_outputs(self, reference: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The reference's values, rounded once."""
        spoiled = reference.spoiled.unsqueeze(1)
        return [reference.values.masked_fill(spoiled, float("nan")).float()]

    def work(self, shape: LayerShape, inputs: Inputs | None = None) -> Work:
        """6·m·topk·h·i FLOPs; tokens, routes, output, and the matrices of the experts in use.

        With ``inputs`` the experts are counted in the routing drawn; without, as expected when
        every expert is equally likely.
        """
        counted = None
        if inputs is not None:
            from kernelbench.problems.moe_layer.reference import valid_routes

            counted = len(inputs.data.ids[valid_routes(inputs.data)].unique())
        active, note = self._experts_in_use(shape, counted)
        blocks = 3 * (shape.i // _BLOCK) * (shape.h // _BLOCK)
        read = active * blocks * (_BLOCK**2 + 4) + shape.m * (2 * shape.h + 8 * shape.topk)
        flops = 6.0 * shape.m * shape.topk * shape.h * shape.i
        return Work(flops, read, 4.0 * shape.m * shape.h, "fp8", (note,))

    def situations(self, shape: LayerShape, step: Step, sms: int) -> dict[str, bool]:
        """What a shape makes a step do; ``check`` names what is left."""
        routes = shape.m * shape.topk
        mean = routes / shape.e
        empty = (shape.routing != "uniform" or routes < shape.e) and shape.e > shape.topk
        return {
            "an expert with more than 8 tokens": shape.routing == "one" and shape.m > 8,
            "an expert with more than 64 tokens": shape.routing == "one" and shape.m > 64,
            "experts without tokens": empty,
            "more than 8 tokens an expert on average": mean > 8,
            "an odd number of blocks of hidden": shape.h // _BLOCK % 2 == 1,
            "several slices of 128 intermediate columns": shape.i > _BLOCK,
            "more slices than an item has": shape.i > 4 * _BLOCK,
            "one token": shape.m == 1,
            "more tokens than SMs": shape.m > sms,
        }

    def bind(self, entry: LoadedStep, step: Step, device: str) -> Kernel:
        """See :mod:`kernelbench.problems.moe_layer.abi`."""
        from kernelbench.problems.moe_layer.abi import bind_layer

        return bind_layer(entry, device)

    def host_path(self, step: Step) -> HostPath:
        """The host path that :meth:`bind` uses."""
        from kernelbench.problems.moe_layer import abi

        return HostPath(Path(abi.__file__), "bind_layer", data="LayerData")


PROBLEM = MoeLayer()
