"""Definition, Workload, Solution and Trace, validated as they are read.

The fields are those of the published schemas (FlashInfer-Trace's and SOL-ExecBench's documentation
and models, read in 2026). SOL-ExecBench adds expression axes, numbers as axes, custom inputs, a
tolerance per workload and several languages per solution. What the schemas do not know is passed
over; what they require and what is used here is checked. ``tools/compare_flashinfer.py`` compares
the verdicts with those of the published package.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, cast, get_args

from kernelbench.problems.flashinfer.axes import (
    AxisError,
    axis_value,
    names_in,
    takes_positional,
    top_functions,
)
from kernelbench.problems.flashinfer.json_fields import JsonFields

#: By the schemas' name: torch's name.
DTYPES = {
    "float64": "float64", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
    "float4_e2m1": "float4_e2m1fn_x2", "float4_e2m1fn_x2": "float4_e2m1fn_x2",
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8",
    "bool": "bool",
}  # fmt: skip
SourceType = Literal["random", "scalar", "safetensors", "custom"]
_ENTRY = "run"


@dataclass(frozen=True)
class TensorSpec:
    """A tensor of a definition; ``shape`` is axis names and numbers, None for a Python scalar."""

    shape: tuple[str, ...] | None
    dtype: str


@dataclass(frozen=True)
class Axis:
    """A dimension: a value, an expression of others, or neither for one that a workload gives."""

    value: int | None = None
    expression: str = ""

    @property
    def variable(self) -> bool:
        """Whether its value comes from a workload."""
        return self.value is None and not self.expression


@dataclass(frozen=True)
class Definition:
    """What a kernel computes."""

    name: str
    op_type: str
    description: str
    axes: dict[str, Axis]
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: str  #: Python source with a function ``run``.
    constraints: tuple[str, ...]
    #: Name of a function in it that makes the inputs; empty where there is none.
    custom_inputs: str

    def resolved(self, given: Mapping[str, int]) -> dict[str, int]:
        """Every axis, with these values for the variable ones; ValueError if one does not fit."""
        values = {name: axis.value for name, axis in self.axes.items() if axis.value is not None}
        for name, value in given.items():
            if name not in self.axes or not self.axes[name].variable:
                variable = [name for name, axis in self.axes.items() if axis.variable]
                raise ValueError(f"{name!r} is no variable axis: expected {', '.join(variable)}")
            values[name] = value
        for name, axis in self.axes.items():
            if axis.variable and name not in values:
                raise ValueError(f"the variable axis {name!r} has no value")
        try:
            for name, axis in self.axes.items():
                if axis.expression:
                    values[name] = int(axis_value(axis.expression, values))
        except AxisError as error:
            raise ValueError(f"axis {name!r}: {error}") from None
        return values


@dataclass(frozen=True)
class InputSource:
    """Where an input's data come from: ``value`` of a scalar; file and key of ``safetensors``."""

    type: SourceType
    value: float | int | bool | None = None
    path: str = ""
    tensor_key: str = ""


@dataclass(frozen=True)
class Tolerance:
    """``|a - b| <= atol + rtol |b|`` for at least ``matched`` of the elements, none beyond ``cap``.

    The defaults are those of FlashInfer-Bench, for workloads that say nothing.
    """

    atol: float = 1e-2
    rtol: float = 1e-2
    matched: float = 1.0
    cap: float | None = None
    negative_infinity: bool = False


@dataclass(frozen=True)
class Workload:
    """One set of axes with the sources of its inputs."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, InputSource]
    tolerance: Tolerance


@dataclass(frozen=True)
class Solution:
    """A kernel for a definition."""

    name: str
    definition: str
    author: str
    description: str
    languages: tuple[str, ...]  #: In lower case, at least one.
    hardware: tuple[str, ...]
    entry_file: str
    entry_function: str
    dependencies: tuple[str, ...]
    destinations: bool | None  #: Whether it is given its outputs; None where the file does not say.
    sources: dict[str, str]  #: Text by relative path.


@dataclass(frozen=True)
class TraceFigure:
    """What a trace reports of a solution that passed; microseconds."""

    definition: str
    solution: str
    uuid: str
    hardware: str
    us: float


def read_definition(fields: JsonFields) -> Definition:
    """A definition from its JSON; UsageError with file and pointer of what is missing or wrong."""
    axes = {name: _axis(each) for name, each in fields.objects("axes")}
    for name, axis in axes.items():
        for other in names_in(axis.expression) if axis.expression else ():
            if other not in axes or axes[other].expression:
                raise fields.object("axes").fail(name, f"no const or var axis {other!r}")
    inputs = {name: _tensor(each, axes) for name, each in fields.objects("inputs")}
    outputs = {name: _tensor(each, axes) for name, each in fields.objects("outputs")}
    if not outputs:
        raise fields.fail("outputs", "expected at least one")
    for name in outputs:
        if name in inputs:
            raise fields.fail("outputs", f"{name!r} is an input, too")
    reference = fields.string("reference")
    defined = _functions(fields, reference)
    if _ENTRY not in defined:
        raise fields.fail("reference", "defines no function 'run'")
    if not takes_positional(defined[_ENTRY], len(inputs)):
        raise fields.fail("reference", f"run cannot be called with the {len(inputs)} inputs")
    custom = fields.string("custom_inputs_entrypoint", "")
    if custom and custom not in defined:
        raise fields.fail("custom_inputs_entrypoint", f"the reference defines no {custom!r}")
    return Definition(
        name=fields.string("name"), op_type=fields.string("op_type", ""),
        description=fields.text("description"), axes=axes, inputs=inputs, outputs=outputs,
        reference=reference, constraints=_constraints(fields), custom_inputs=custom,
    )  # fmt: skip


def read_workload(fields: JsonFields, definition: Definition) -> Workload:
    """A workload from its JSON, or a trace's; UsageError with file and pointer of what is wrong."""
    if "workload" in fields.values:
        if fields.string("definition") != definition.name:
            raise fields.fail("definition", f"expected {definition.name!r}, whose file this is")
        for name in ("solution", "evaluation"):
            if fields.has(name):
                raise fields.fail(name, "expected null: this is a workload, not a result")
        fields = fields.object("workload")
    given = fields.object("axes")
    axes = {name: given.integer(name) for name in given.values}
    try:
        definition.resolved(axes)
    except ValueError as error:
        raise fields.fail("axes", str(error)) from None
    inputs = {name: _source(each) for name, each in fields.objects("inputs")}
    for name in definition.inputs:
        if name not in inputs:
            raise fields.fail("inputs", f"nothing for the input {name!r} of {definition.name}")
    for name, source in inputs.items():
        if name not in definition.inputs:
            raise fields.fail("inputs", f"{definition.name} has no input {name!r}")
        if source.type == "scalar" and definition.inputs[name].shape is not None:
            raise fields.object("inputs").fail(name, "a scalar, but the definition has a tensor")
    custom = [source.type == "custom" for source in inputs.values()]
    if any(custom) and not (all(custom) and definition.custom_inputs):
        raise fields.fail(
            "inputs", "custom inputs: all must be, and custom_inputs_entrypoint must make them"
        )
    return Workload(fields.string("uuid"), axes, inputs, _tolerance(fields))


def read_solution(fields: JsonFields) -> Solution:
    """A solution from its JSON; UsageError with file and pointer of what is missing or wrong."""
    spec = fields.object("spec")
    file, separator, function = spec.string("entry_point").partition("::")
    if not (separator and file and function) or "::" in function:
        raise spec.fail(
            "entry_point", f"expected FILE::FUNCTION, found {spec.string('entry_point')!r}"
        )
    sources: dict[str, str] = {}
    for each in fields.listed("sources"):
        path = PurePosixPath(each.string("path"))
        if path.is_absolute() or ".." in path.parts or str(path) in (".", ""):
            raise each.fail("path", f"expected a relative path without '..', found {str(path)!r}")
        if str(path) in sources:
            raise each.fail("path", f"{str(path)!r} is there twice")
        sources[str(path)] = each.string("content")
    file = str(PurePosixPath(file))
    if file not in sources:
        raise spec.fail("entry_point", f"no source {file!r}")
    return Solution(
        name=fields.string("name"),
        definition=fields.string("definition"),
        author=fields.string("author"),
        description=fields.text("description"),
        languages=_languages(spec),
        hardware=_not_empty(spec, "target_hardware"),
        entry_file=file,
        entry_function=function,
        dependencies=spec.strings("dependencies"),
        destinations=spec.boolean("destination_passing_style"),
        sources=sources,
    )


def read_figure(fields: JsonFields) -> TraceFigure | None:
    """The latency that a trace reports; None if it is a workload, or its solution failed."""
    if not fields.has("evaluation") or not fields.has("solution"):
        return None
    evaluation = fields.object("evaluation")
    if evaluation.string("status") != "PASSED" or not evaluation.has("performance"):
        return None
    milliseconds = evaluation.object("performance").number("latency_ms", 0.0)
    hardware = evaluation.object("environment").string("hardware")
    uuid = fields.object("workload").string("uuid")
    definition, solution = fields.string("definition"), fields.string("solution")
    if not milliseconds:
        return None
    return TraceFigure(definition, solution, uuid, hardware, milliseconds * 1e3)


def _axis(fields: JsonFields) -> Axis:
    kind = fields.string("type", _by_field(fields, value="const", expression="expr") or "var")
    if kind == "const":
        return Axis(value=fields.integer("value"))
    if kind == "expr":
        expression = fields.string("expression")
        try:
            names_in(expression)
        except AxisError as error:
            raise fields.fail("expression", str(error)) from None
        return Axis(expression=expression)
    if kind != "var":
        raise fields.fail("type", f"expected const, var or expr, found {kind!r}")
    return Axis()


def _tensor(fields: JsonFields, axes: Mapping[str, Axis]) -> TensorSpec:
    dtype = fields.string("dtype")
    if dtype not in DTYPES:
        raise fields.fail("dtype", f"expected one of {', '.join(DTYPES)}, found {dtype!r}")
    if "shape" not in fields.values:
        raise fields.fail("shape", "missing: expected a list of axes, or null for a scalar")
    if fields.values["shape"] is None:
        return TensorSpec(None, dtype)
    shape = fields.strings("shape")
    for name in shape:
        if name not in axes and not (name.isascii() and name.isdigit()):
            raise fields.fail("shape", f"no axis {name!r}: known are {', '.join(axes)}")
    return TensorSpec(shape, dtype)


def _by_field(fields: JsonFields, **kinds: str) -> str:
    """What an object without a ``type`` is, by a field that only that has; or empty."""
    return next((kind for name, kind in kinds.items() if fields.has(name)), "")


def _source(fields: JsonFields) -> InputSource:
    kind = fields.string("type", _by_field(fields, value="scalar", path="safetensors") or "random")
    if kind not in get_args(SourceType):
        raise fields.fail(
            "type", f"expected one of {', '.join(get_args(SourceType))}, found {kind!r}"
        )
    found = cast(SourceType, kind)
    if found == "scalar":
        value = fields.values.get("value")
        if not isinstance(value, int | float):
            raise fields.fail("value", f"expected a number or a boolean, found {value!r}")
        return InputSource(found, value=value)
    if found == "safetensors":
        return InputSource(
            found, path=fields.string("path"), tensor_key=fields.string("tensor_key")
        )
    return InputSource(found)


def _tolerance(fields: JsonFields) -> Tolerance:
    if not fields.has("tolerance"):
        return Tolerance()
    given, usual = fields.object("tolerance"), Tolerance()
    matched = given.number("required_matched_ratio", usual.matched)
    if matched > 1:
        raise given.fail("required_matched_ratio", f"expected at most 1, found {matched}")
    return Tolerance(
        atol=given.number("max_atol", usual.atol),
        rtol=given.number("max_rtol", usual.rtol),
        matched=matched,
        cap=given.number("max_error_cap") if given.has("max_error_cap") else None,
        negative_infinity=bool(given.boolean("allow_negative_inf")),
    )


def _languages(spec: JsonFields) -> tuple[str, ...]:
    """``language`` as FlashInfer-Trace has it, or ``languages`` as SOL-ExecBench does."""
    if not spec.has("language") and spec.has("languages"):
        return tuple(each.lower() for each in _not_empty(spec, "languages"))
    return (spec.string("language").lower(),)


def _not_empty(fields: JsonFields, name: str) -> tuple[str, ...]:
    found = fields.strings(name)
    if not found:
        raise fields.fail(name, "expected at least one string")
    return found


def _constraints(fields: JsonFields) -> tuple[str, ...]:
    found = fields.strings("constraints")
    for constraint in found:
        try:
            ast.parse(constraint, mode="eval")
        except (SyntaxError, ValueError):
            raise fields.fail("constraints", f"{constraint!r} is no expression") from None
    return found


def _functions(fields: JsonFields, source: str) -> dict[str, ast.FunctionDef]:
    try:
        return top_functions(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        message = getattr(error, "msg", error)
        raise fields.fail("reference", f"line {line}: not valid Python: {message}") from None
