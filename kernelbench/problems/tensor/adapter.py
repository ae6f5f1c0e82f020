"""The whole interface of a problem, from an author's small class.

A mistake in one of the author's hooks is a :class:`~kernelbench.base.errors.ProblemError` that
names the hook and its line (:mod:`kernelbench.project.error_attribution`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from kernelbench.problems.tensor.shape import (
    TensorShape,
    as_dataclass,
    broken_dims_limit,
    parse_dims,
)
from kernelbench.project.error_attribution import blame_author, blaming
from kernelbench.project.problem import Inputs, OutputVerdict, Work

if TYPE_CHECKING:
    import torch

    from kernelbench.problems.tensor.tolerance import Bound, TensorReference

#: Formats that ceilings know, by torch's name of a dtype.
_PRECISIONS = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "float4_e2m1fn_x2": "fp4",
}  # fmt: skip


@dataclass
class TensorInputs(Inputs):
    """Inputs of a tensor problem."""

    given: Any = None  #: What the author's ``make_inputs`` gave.
    names: tuple[str, ...] = ()  #: Of the outputs to be written.


class TensorAdapter:
    """See :class:`kernelbench.project.problem.Problem`.

    Raises:
        ProblemError: If a part is missing, or its ``Shape`` is no class of fields.
    """

    def __init__(self, author: Any) -> None:
        #: The author's :class:`~kernelbench.problems.tensor.problem.TensorProblem`, whose mistakes
        #: are named.
        self.author = author
        self.name = author.name
        self.input_classes = author.input_classes
        self.benchmark_shapes = author.benchmark_shapes
        self.check_shapes = author.check_shapes
        self.repeatable = author.repeatable
        if author.Shape is None:
            self._blame("Shape", "missing: a class with the fields of a shape, such as 'rows: int'")
        with blaming(author, author.name, "Shape"):
            self._kind = as_dataclass(author.Shape)
        for hook in author.lacking():
            self._blame(hook, "missing: a TensorProblem has to have one")
        if author.tolerance is None and author.depth is None:
            self._blame(
                "tolerance",
                "missing: give depth, the most roundings on a path to an output (k for a sum of k "
                "products), or tolerance = (rtol, atol)",
            )
        #: Bytes of the inputs and the outputs by shape, where work has been asked for.
        self._bytes: dict[TensorShape, tuple[float, float, str]] = {}

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> TensorShape:
        """From the fields of the author's dataclass."""
        return TensorShape(name, parse_dims(self._kind, fields))

    def make_inputs(self, shape: TensorShape, input_class: str, seed: int, device: str) -> Inputs:
        """The author's data, then the outputs to be written, in an arena."""
        import torch

        from kernelbench.problems.tensor import data
        from kernelbench.project.arena import MixedArena

        what = f"shape {shape.name}, inputs {input_class}"
        with blaming(self.author, self.name, "make_inputs", what=what):
            mine = self.author.make_inputs(shape.dims, input_class, seed, device)
        try:
            operands = data.tensors_of(mine)
        except TypeError as error:
            self._blame("make_inputs", f"{error} ({what})")
        with blaming(self.author, self.name, "outputs", what=what):
            specs = {
                str(name): torch.empty(tuple(extents), dtype=dtype, device="meta")
                for name, (extents, dtype) in self.author.outputs(shape.dims).items()
            }
            arena = MixedArena([*specs.values()], device)
            views = dict(zip(specs, arena.views, strict=True))
            whole = data.with_outputs(mine, views)
        inputs = TensorInputs(
            whole, operands, arena.views, arena, data.plain_of(mine), mine, tuple(specs)
        )
        read = float(sum(tensor.numel() * tensor.element_size() for tensor in operands))
        written = float(sum(view.numel() * view.element_size() for view in arena.views))
        self._bytes[shape] = (read, written, _precision(operands))
        return inputs

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """What a step returned, or the outputs that it was given, if it returned nothing."""
        from kernelbench.problems.returned import check_tensors
        from kernelbench.problems.tensor import data

        assert isinstance(inputs, TensorInputs)
        found = data.fresh_outputs(result, inputs, inputs.names)
        return check_tensors(found, inputs.outputs) if inputs.outputs else found

    def reference(self, inputs: Inputs, shape: TensorShape, input_class: str) -> TensorReference:
        """The author's reference and magnitudes of copies of the inputs, in float64."""
        import torch

        from kernelbench.problems.tensor.tolerance import TensorReference

        assert isinstance(inputs, TensorInputs)
        what = f"shape {shape.name}, inputs {input_class}"
        values = self._numbers("reference", inputs, what)
        own = self._numbers("magnitudes", inputs, what)
        dtypes = [view.dtype for view in inputs.outputs] or self._dtypes(values, inputs)
        if len(dtypes) != len(values):
            self._blame("reference", f"gave {len(values)} tensors for {len(dtypes)} outputs")
        for index, (value, dtype) in enumerate(zip(values, dtypes, strict=True)):
            said = f"output {index} ({what})"
            if value.is_floating_point() != dtype.is_floating_point:
                self._blame("reference", f"gave {value.dtype} for {dtype}, {said}")
            if value.is_floating_point() and value.dtype not in (torch.float64, torch.float32):
                self._blame("reference", f"gave {value.dtype}, {said}: expected float64 or float32")
            if inputs.outputs and value.shape != inputs.outputs[index].shape:
                expected = list(inputs.outputs[index].shape)
                self._blame("reference", f"gave {list(value.shape)} for {expected}, {said}")
            if value.is_floating_point() and bool(value.isnan().any()):
                self._blame("reference", f"gave NaN, which nothing can be judged by, {said}")
        if own and [m.shape for m in own] != [value.shape for value in values]:
            self._blame("magnitudes", f"gave other shapes than reference ({what})")
        if not inputs.outputs:
            pairs = zip(values, dtypes, strict=True)
            written = float(sum(value.numel() * dtype.itemsize for value, dtype in pairs))
            read, _, precision = self._bytes[shape]
            self._bytes[shape] = (read, written, precision)
        single = any(value.dtype is torch.float32 for value in values)
        values = [value.double() if value.is_floating_point() else value for value in values]
        magnitudes = [m.double().abs() for m in own or values]
        return TensorReference(values, dtypes, magnitudes, single)

    def compare(
        self,
        outputs: Sequence[torch.Tensor],
        reference: TensorReference,
        shape: TensorShape,
        input_class: str,
    ) -> OutputVerdict:
        """Within the bound of :mod:`kernelbench.problems.tensor.tolerance`."""
        from kernelbench.problems.tensor.tolerance import judge_tensors

        with blaming(self.author, self.name, "outputs"):
            names = tuple(self.author.outputs(shape.dims))
        return judge_tensors(outputs, reference, self.bound(reference, shape, input_class), names)

    def right_outputs(self, reference: TensorReference, inputs: Inputs) -> list[torch.Tensor]:
        """The reference, rounded once to the outputs' dtypes."""
        pairs = zip(reference.values, reference.dtypes, strict=True)
        return [value.to(dtype) for value, dtype in pairs]

    def bound(self, reference: TensorReference, shape: TensorShape, input_class: str) -> Bound:
        """The bound of a shape and class of inputs: as the author states it, or derived.

        Raises:
            ProblemError: If it is none.
        """
        from kernelbench.problems.tensor.tolerance import UNIT_ROUNDOFFS, Bound, gamma

        stated = self._asked("tolerance", shape.dims, input_class)
        if isinstance(stated, Mapping):
            stated = stated.get(input_class)
        if stated is not None:
            if not _is_pair(stated):
                self._blame("tolerance", f"expected (rtol, atol), found {stated!r}")
            return Bound(float(stated[0]), float(stated[1]))
        depth = self._asked("depth", shape.dims)
        if type(depth) is not int or depth < 0:
            self._blame("depth", f"expected a number of roundings, found {depth!r}")
        unit = UNIT_ROUNDOFFS.get(self.author.accumulate)
        if unit is None:
            known = ", ".join(UNIT_ROUNDOFFS)
            self._blame("accumulate", f"{self.author.accumulate!r}: expected one of {known}")
        own = UNIT_ROUNDOFFS["float32" if reference.single else "float64"]
        factor = gamma(depth, unit) + gamma(depth, own)
        if not factor < 1:
            self._blame(
                "depth",
                f"{depth} roundings in {self.author.accumulate} bound nothing (shape {shape.name}):"
                " accumulate in a wider format, or give tolerance = (rtol, atol)",
            )
        return Bound(factor=factor)

    def broken_limit(self, shape: TensorShape, limits: Mapping[str, Any]) -> str:
        """``max_FIELD``, ``min_FIELD`` and ``FIELD_multiple`` of the shape's fields."""
        return broken_dims_limit(self.name, shape.dims, limits)

    def work(self, shape: TensorShape, inputs: Inputs | None = None) -> Work:
        """Bytes of inputs and outputs, each once, and FLOPs if the author says how many."""
        stated = self._asked("work", shape.dims)
        if isinstance(stated, Work):
            return stated
        if stated is not None and (isinstance(stated, bool) or not isinstance(stated, int | float)):
            self._blame("work", f"expected Work or a number of FLOPs, found {stated!r}")
        if shape not in self._bytes or not self._bytes[shape][1]:
            # Nobody has drawn this shape yet: its bytes are those of one draw.
            drawn = self.make_inputs(shape, self.input_classes[0], 0, "cpu")
            if not drawn.outputs:
                self.reference(drawn, shape, self.input_classes[0])
        read, written, precision = self._bytes[shape]
        return Work(float(stated or 0), read, written, precision)

    def _asked(self, hook: str, *arguments: Any) -> Any:
        """A hook's value: itself, or what it gives for these arguments."""
        found = getattr(self.author, hook)
        if not callable(found):
            return found
        with blaming(self.author, self.name, hook):
            return found(*arguments)

    def _numbers(self, hook: str, inputs: TensorInputs, what: str) -> list[torch.Tensor]:
        """The tensors that a hook of the reference gives for copies of the inputs."""
        import torch

        from kernelbench.problems import pytree

        with blaming(self.author, self.name, hook, what=what):
            found = getattr(self.author, hook)(pytree.cloned(inputs.given))
            if isinstance(found, Mapping):
                found = [found[name] for name in inputs.names or found]
        if found is None and hook == "magnitudes":
            return []
        values = list(found) if isinstance(found, tuple | list) else [found]
        for value in values:
            if not isinstance(value, torch.Tensor):
                self._blame(hook, f"gave {type(value).__name__}: expected a tensor ({what})")
        return values

    def _dtypes(self, values: Sequence[torch.Tensor], inputs: TensorInputs) -> list[torch.dtype]:
        """The dtypes of outputs that a step makes: as the author says, or as of the inputs."""
        import torch

        said = self.author.output_dtype
        floating = [t.dtype for t in inputs.operands if t.is_floating_point()]
        usual = floating[0] if floating else torch.float32
        if isinstance(said, tuple | list):
            found = list(said)
        else:
            found = [said or (usual if v.is_floating_point() else v.dtype) for v in values]
        for dtype in found:
            if not isinstance(dtype, torch.dtype):
                self._blame("output_dtype", f"expected a torch.dtype, found {dtype!r}")
        return found

    def _blame(self, hook: str, text: str) -> NoReturn:
        blame_author(self.author, self.name, hook, text)


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and all(isinstance(one, int | float) and 0 <= one < float("inf") for one in value)
    )


def _precision(operands: Sequence[torch.Tensor]) -> str:
    """The format of the first floating-point input, as ceilings call it."""
    for tensor in operands:
        if tensor.is_floating_point():
            return _PRECISIONS.get(str(tensor.dtype).removeprefix("torch."), "fp32")
    return "fp32"
