"""A definition with its workloads as a problem.

``data`` is ``(inputs, outputs)``: two dictionaries by the definition's names, in its order; outputs
are there to be written by steps in destination-passing style, others return theirs. Inputs are what
a workload says: drawn from the seed (``random``), given (``scalar``), read (``safetensors``), or
made by the definition's own function (``custom``). What the definition's ``run`` changes of its
inputs is put back before every call.

A result is right if each element is within the tolerance of its workload
(:class:`kernelbench.problems.flashinfer.models.Tolerance`) of what the definition's ``run`` gives:
the rule of the dataset's own evaluation, not a bound derived from the arithmetic.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernelbench.base.bytecode import no_bytecode
from kernelbench.base.errors import FaultyReferenceError, ProblemError, UsageError
from kernelbench.problems.flashinfer.json_fields import read_lines, read_object
from kernelbench.problems.flashinfer.models import (
    DTYPES,
    Definition,
    InputSource,
    TensorSpec,
    Tolerance,
    Workload,
    read_definition,
    read_workload,
)
from kernelbench.project.model import Lineage
from kernelbench.project.problem import Inputs, OutputVerdict, Work
from kernelbench.project.shapes import ShapeFieldError

if TYPE_CHECKING:
    import torch

#: The files of a lineage that ``kernelbench import`` wrote.
DEFINITION_FILE, WORKLOADS_FILE, ORIGIN_FILE = "definition.json", "workloads.jsonl", "origin.json"
REFERENCE_FILE = "reference.py"
_CLASS = "workload"
_BENCHMARKS = 8


@dataclass(frozen=True)
class WorkloadShape:
    """The axes of a workload; ``uuid`` is empty for axes given on the command line."""

    name: str
    axes: tuple[tuple[str, int], ...]
    uuid: str = ""

    def describe(self) -> str:
        """The variable axes, e.g. ``batch_size=32``."""
        return " ".join(f"{axis}={value}" for axis, value in self.axes)


class DefinitionProblem:
    """The problem of one definition, see :class:`kernelbench.project.problem.Problem`.

    Args:
        folder: With the files that ``kernelbench import`` wrote.

    Raises:
        UsageError: If one of them is missing or malformed.
    """

    input_classes: tuple[str, ...] = (_CLASS,)
    check_shapes: tuple[str, ...] = ()
    repeatable: bool = True
    shares_references: bool = False
    #: A scalar of type ``random`` is drawn, too.
    forms_vary: bool = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.definition: Definition = read_definition(read_object(folder / DEFINITION_FILE))
        lines = read_lines(folder / WORKLOADS_FILE)
        workloads = [read_workload(line, self.definition) for line in lines]
        self.workloads: dict[str, Workload] = {each.uuid: each for each in workloads}
        self._root = Path(read_object(folder / ORIGIN_FILE).string("dataset"))
        self.name = self.definition.name
        names = list(shape_names(self.name, len(workloads)))
        step = max(1, -(-len(names) // _BENCHMARKS))
        self.benchmark_shapes: tuple[str, ...] = tuple(names[::step])
        self._changed: frozenset[str] | None = None

    @classmethod
    def for_lineage(cls, lineage: Lineage) -> DefinitionProblem:
        """The problem of the definition in the lineage's folder."""
        return cls(lineage.path)

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> WorkloadShape:
        """The variable axes, and ``workload``, the uuid of one; or ShapeFieldError."""
        axes = {key: value for key, value in fields.items() if key != "workload"}
        for axis, value in axes.items():
            if type(value) is not int or value < 0:
                raise ShapeFieldError(axis, f"{axis} must be a whole number, found {value!r}")
        uuid = str(fields.get("workload", ""))
        if uuid and uuid not in self.workloads:
            raise ShapeFieldError("workload", f"{self.name} has no workload {uuid!r}")
        self.definition.resolved(axes)
        return WorkloadShape(name, tuple(axes.items()), uuid)

    # -- the definition's own code --------------------------------------------------------------

    @functools.cached_property
    def _module(self) -> ModuleType:
        path = self._folder / REFERENCE_FILE
        with self._calling("importing it"):
            spec = importlib.util.spec_from_file_location(f"kernelbench_{self.name}", path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            with no_bytecode():
                spec.loader.exec_module(module)
        return module

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """Run the definition's code; what it raises is a FaultyReferenceError, with its line."""
        import torch

        path = self._folder / REFERENCE_FILE
        try:
            yield
        except (UsageError, torch.OutOfMemoryError):
            raise
        except (Exception, SystemExit) as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(path)]
            where = f"{path}:{lines[-1]}" if lines else str(path)
            text = " ".join(str(error).split())[:300]
            message = f"{where}: {what} raised {type(error).__name__}: {text}"
            raise FaultyReferenceError(message) from error

    def _run(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """What the definition's ``run`` gives, in the order of its outputs."""
        with self._calling("run"):
            result = self._module.run(*inputs.values())
            return self._in_order(result, _device(inputs))

    def _in_order(self, result: Any, device: Any) -> list[torch.Tensor]:
        """The outputs of a returned dict, tuple, tensor or number; else ValueError."""
        import torch

        names = list(self.definition.outputs)
        if isinstance(result, Mapping):
            missing = [name for name in names if name not in result]
            if missing:
                raise ValueError(f"returned a dictionary without {missing[0]!r}")
            values = [result[name] for name in names]
        else:
            values = list(result) if isinstance(result, tuple | list) else [result]
        if len(values) != len(names):
            raise ValueError(f"returned {len(values)} outputs: expected {len(names)}")
        found = []
        for value, spec in zip(values, self.definition.outputs.values(), strict=True):
            if isinstance(value, int | float):
                value = torch.tensor(value, dtype=_torch_dtype(spec), device=device)
            found.append(value)
        return found

    # -- Problem --------------------------------------------------------------------------------

    def make_inputs(self, shape: WorkloadShape, input_class: str, seed: int, device: str) -> Inputs:
        """The workload's inputs on ``device``, and unwritten outputs.

        Raises:
            ProblemError: If they cannot be read, or have another shape or type than stated.
        """
        import torch

        from kernelbench.problems.stateful_outputs import StatefulOutputs

        axes = self.definition.resolved(dict(shape.axes))
        inputs = self._drawn(shape, axes, seed, device)
        changed = self._changed_inputs(inputs)
        like = [
            torch.empty(_tensor_extents(spec, axes), dtype=_torch_dtype(spec), device=device)
            for spec in self.definition.outputs.values()
        ]
        tensors = {name: t for name, t in inputs.items() if isinstance(t, torch.Tensor)}
        state = [(tensors[name], tensors[name].clone()) for name in tensors if name in changed]
        arena = StatefulOutputs(like, state, device)
        outputs = dict(zip(self.definition.outputs, arena.views, strict=True))
        operands = [t for name, t in tensors.items() if name not in changed]
        numbers = tuple((name, v) for name, v in inputs.items() if name not in tensors)
        return Inputs(
            (inputs, outputs),
            [*operands, *(pristine for _, pristine in state)],
            arena.views,
            arena,
            numbers,
        )

    def _drawn(
        self, shape: WorkloadShape, axes: Mapping[str, int], seed: int, device: str
    ) -> dict[str, Any]:
        import torch

        workload = self.workloads.get(shape.uuid)
        generator = torch.Generator(device=device).manual_seed(seed & (2**63 - 1))
        if self.definition.custom_inputs and (
            workload is None or any(s.type == "custom" for s in workload.inputs.values())
        ):
            return self._custom(axes, seed, device)
        found: dict[str, Any] = {}
        for name, spec in self.definition.inputs.items():
            source = workload.inputs[name] if workload else InputSource("random")
            if source.type == "scalar":
                found[name] = source.value
            elif source.type == "safetensors":
                found[name] = self._read(name, spec, source, axes).to(device)
            elif spec.shape is None:
                found[name] = _random_tensor((), spec, generator, device).item()
            else:
                found[name] = _random_tensor(_tensor_extents(spec, axes), spec, generator, device)
        return found

    def _custom(self, axes: Mapping[str, int], seed: int, device: str) -> dict[str, Any]:
        import torch

        torch.manual_seed(seed & (2**63 - 1))
        name = self.definition.custom_inputs
        with self._calling(name):
            made = getattr(self._module, name)(dict(axes), torch.device(device))
            found = {key: made[key] for key in self.definition.inputs}
        for key, spec in self.definition.inputs.items():
            value = found[key]
            wanted = None if spec.shape is None else _tensor_extents(spec, axes)
            got = tuple(value.shape) if isinstance(value, torch.Tensor) else None
            if got != wanted:
                raise ProblemError(
                    f"{self._folder / REFERENCE_FILE}: {name} made {key!r} of shape {got}, "
                    f"the definition says {wanted}"
                )
        return found

    def _read(
        self, name: str, spec: TensorSpec, source: InputSource, axes: Mapping[str, int]
    ) -> torch.Tensor:
        from kernelbench.problems.flashinfer.safetensors_file import read_tensor

        path = self._root / source.path
        try:
            tensor = read_tensor(path, source.tensor_key)
        except UsageError as error:
            raise ProblemError(error.message, error.hint) from None
        wanted = _tensor_extents(spec, axes)
        if tuple(tensor.shape) != wanted or tensor.dtype != _torch_dtype(spec):
            got = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            raise ProblemError(
                f"{path}: tensor {source.tensor_key!r} is {got}: input {name!r} of "
                f"{self.name} is {spec.dtype}{list(wanted)}"
            )
        return tensor

    def _changed_inputs(self, inputs: Mapping[str, Any]) -> frozenset[str]:
        """The inputs that the definition's ``run`` writes into; found once."""
        from kernelbench.problems.stateful_outputs import same_bits

        if self._changed is None:
            tried = _copied_inputs(inputs)
            self._run(tried)
            self._changed = frozenset(
                name
                for name, value in inputs.items()
                if hasattr(value, "dtype") and not same_bits(value, tried[name])
            )
        return self._changed

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The outputs that a step returned, each of the stated shape and type; else ValueError."""
        from kernelbench.problems.returned import check_tensors
        from kernelbench.problems.stateful_outputs import StatefulOutputs

        device = inputs.outputs[0].device
        found = check_tensors(self._in_order(result, device), inputs.outputs)
        own = {view.data_ptr() for view in inputs.outputs}
        if isinstance(inputs.arena, StatefulOutputs):
            inputs.arena.returned = any(tensor.data_ptr() in own for tensor in found)
        return found

    def reference(self, inputs: Inputs, shape: WorkloadShape, input_class: str) -> Any:
        """What the definition's ``run`` gives on a copy of the inputs.

        Raises:
            FaultyReferenceError: If it raises, or gives other outputs than the definition says.
        """
        from kernelbench.problems.returned import check_tensors

        found = self._run(_copied_inputs(inputs.data[0]))
        try:
            return [tensor.clone() for tensor in check_tensors(found, inputs.outputs)]
        except ValueError as error:
            path = self._folder / REFERENCE_FILE
            raise FaultyReferenceError(f"{path}: run: {error}") from None

    def compare(
        self,
        outputs: Sequence[torch.Tensor],
        reference: Any,
        shape: WorkloadShape,
        input_class: str,
    ) -> OutputVerdict:
        """Within the workload's tolerance, element by element."""
        from kernelbench.problems.flashinfer.tolerance import judge_outputs

        workload = self.workloads.get(shape.uuid)
        tolerance = workload.tolerance if workload else Tolerance()
        return judge_outputs(list(self.definition.outputs), outputs, reference, tolerance)

    def broken_limit(self, shape: WorkloadShape, limits: Mapping[str, Any]) -> str:
        """Solutions have no limits."""
        return ""

    def work(self, shape: WorkloadShape, inputs: Inputs | None = None) -> Work:
        """Nothing is known of a definition's work: there is no speed of light."""
        return Work(0.0, 0.0, 0.0, "")


#: What a lineage names as its problem to say: the definition in my own folder.
DEFINITION = DefinitionProblem


def shape_names(definition: str, count: int) -> Iterator[str]:
    """The names of a definition's workloads as shapes, in order."""
    yield from (f"{definition}.{index}" for index in range(count))


def origin_text(dataset: Path) -> str:
    """What :data:`ORIGIN_FILE` says: where the safetensors files of the workloads are."""
    return json.dumps({"dataset": str(dataset)}, indent=1) + "\n"


def _copied_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: v.clone() if hasattr(v, "clone") else v for name, v in inputs.items()}


def _device(inputs: Mapping[str, Any]) -> Any:
    return next((value.device for value in inputs.values() if hasattr(value, "device")), "cpu")


def _torch_dtype(spec: TensorSpec) -> Any:
    import torch

    return getattr(torch, DTYPES[spec.dtype])


def _tensor_extents(spec: TensorSpec, axes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of the tensor itself: two FP4 values are one element of it."""
    extents = [axes[name] if name in axes else int(name) for name in spec.shape or ()]
    if DTYPES[spec.dtype] == "float4_e2m1fn_x2" and extents:
        extents[-1] //= 2
    return tuple(extents)


def _random_tensor(
    extents: Sequence[int], spec: TensorSpec, generator: torch.Generator, device: str
) -> torch.Tensor:
    """Normal values for floating-point types, uniform ones for others.

    Eight-bit floats are clamped to ±2, integers lie within ±1024 (``int8``: all), as in the
    datasets' own evaluations.
    """
    import torch

    dtype = _torch_dtype(spec)
    size = tuple(extents)
    if dtype is torch.float4_e2m1fn_x2:
        drawn = torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=generator)
        return drawn.view(dtype)
    if dtype.is_floating_point:
        values = torch.randn(size, device=device, generator=generator)
        return (values.clamp(-2, 2) if dtype.itemsize == 1 else values).to(dtype)
    special = {torch.bool: (0, 2), torch.uint8: (0, 256), torch.int8: (-128, 128)}
    low, high = special.get(dtype, (-1024, 1024))
    return torch.randint(low, high, size, device=device, generator=generator).to(dtype)
