"""Benchmark shapes: ``shapes.yaml``, and shapes given on the command line.

The file's top-level keys are problem names; below each, one entry per shape::

    group_gemm:
      D: {m: [128, 384], n: 4096, k: 1536}

On the command line a shape is a name from the file or ``m=40,76:n=512:k=768``. What the fields mean
is the problem's business (:meth:`~kernelbench.project.problem.Problem.parse_shape`); this module
only finds them and says where a wrong one stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.base.yaml_file import yaml_nodes
from kernelbench.project.problem import Problem, Shape

_EXAMPLE = "expected a name or fields such as m=40,76:n=512:k=768"


class ShapeFieldError(ValueError):
    """One field of a shape is wrong; ``field`` lets the caller point at its line."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class ShapeTable(dict[str, Shape]):
    """Shapes by name, in file order; names are unique across the problems of a file.

    Where two files are one table, a name may be that of a shape of each: the first file's is found
    by the name alone, the others through their problem.
    """

    def __init__(self) -> None:
        super().__init__()
        #: The problem's name of each shape that is found by its name alone.
        self.problem_of: dict[str, str] = {}
        #: Every shape, by its problem's name and its own.
        self.by_problem: dict[str, dict[str, Shape]] = {}

    def add(self, problem: str, name: str, shape: Shape) -> None:
        """Add a shape; what is there under its name stays."""
        self.by_problem.setdefault(problem, {}).setdefault(name, shape)
        if name not in self:
            self[name] = shape
            self.problem_of[name] = problem

    def of(self, problem: str) -> dict[str, Shape]:
        """One problem's shapes by name, in file order."""
        return dict(self.by_problem.get(problem, {}))


def check_fields(
    fields: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]
) -> None:
    """Refuse unknown and missing fields.

    Raises:
        ShapeFieldError: Naming the first such field and the ones that exist.
    """
    known = [*required, *optional]
    for field in fields:
        if field not in known:
            raise ShapeFieldError(field, f"unknown field {field!r}: expected {', '.join(known)}")
    for field in required:
        if field not in fields:
            raise ShapeFieldError(field, f"missing field {field!r}: expected {', '.join(required)}")


def positive_int(field: str, value: Any) -> int:
    """``value`` as an integer of at least 1; ShapeFieldError for all else, true and 1.0 too."""
    if type(value) is not int or value < 1:
        raise ShapeFieldError(field, f"{field} must be a positive integer, found {value!r}")
    return value


def positive_ints(field: str, value: Any) -> tuple[int, ...]:
    """One integer of at least 1, or a list of them, as a tuple; ShapeFieldError for all else."""
    return tuple(positive_int(field, item) for item in _listed(field, value))


def whole_numbers(field: str, value: Any) -> tuple[int, ...]:
    """One integer of at least 0, or a list of them, as a tuple; ShapeFieldError for all else."""
    for item in (values := _listed(field, value)):
        if type(item) is not int or item < 0:
            raise ShapeFieldError(field, f"{field} must be an integer, 0 or more, found {item!r}")
    return tuple(values)


def _listed(field: str, value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ShapeFieldError(field, f"{field} must not be an empty list")
    return values


def load_shapes(path: Path, problems: Mapping[str, Problem]) -> ShapeTable:
    """Read ``shapes.yaml``.

    Args:
        path: The file.
        problems: The problems that may appear in it, by name.

    Raises:
        UsageError: If the file is absent or malformed: ``FILE:LINE: what was expected``.
    """
    with yaml_nodes(path) as (root, loader):
        table = ShapeTable()
        if root is None:
            raise UsageError(f"{path}:1: the file is empty: expected problem names with shapes")
        seen: dict[str, int] = {}
        for key, node in _pairs(path, root, "problem names, each with its shapes"):
            problem = problems.get(key.value)
            if problem is None:
                raise UnknownNameError("problem", key.value, problems, f" at {path}:{_line(key)}")
            for name_node, entry in _pairs(
                path, node, f"shapes of {key.value}, each 'NAME: {{...}}'"
            ):
                name = name_node.value
                where = f"{path}:{_line(name_node)}"
                if name in seen:
                    raise UsageError(f"{where}: shape {name!r} is already on line {seen[name]}")
                if "=" in name or ":" in name or "," in name or not name.strip():
                    raise UsageError(f"{where}: shape name {name!r} must not hold '=', ':' or ','")
                seen[name] = _line(name_node)
                table.add(key.value, name, _entry(path, name_node, entry, problem, loader))
        return table


def resolve_shape(spec: str, problem: Problem, shapes: ShapeTable) -> Shape:
    """The shape that ``--shape SPEC`` means: a name of ``shapes``, or fields given in place.

    Fields are separated by ``:`` and values of a list by ``,``. The shape built from fields has the
    specification itself as its name.

    Raises:
        UnknownNameError: If ``spec`` is a name that ``shapes`` lacks.
        UsageError: If the named shape belongs to another problem, or a field is wrong.
    """
    if "=" in spec:
        try:
            return problem.parse_shape(spec, _parse_fields(spec))
        except ValueError as error:
            raise UsageError(f"shape {spec!r}: {error}") from None
    mine = shapes.of(problem.name)
    if spec not in mine and spec in shapes:
        raise UsageError(
            f"shape {spec!r} belongs to {shapes.problem_of[spec]}, not to {problem.name}",
            f"shapes of {problem.name}: {', '.join(mine)}",
        )
    if spec not in mine:
        raise UnknownNameError("shape", spec, mine)
    return mine[spec]


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _pairs(path: Path, node: yaml.Node, expected: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
    """The entries of a mapping node, refusing anything else and duplicate keys."""
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{path}:{_line(node)}: expected {expected}, found {_kind(node)}")
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise UsageError(f"{path}:{_line(key)}: expected a plain name, found {_kind(key)}")
        if key.value in seen:
            raise UsageError(
                f"{path}:{_line(key)}: {key.value!r} is already on line {seen[key.value]}"
            )
        seen[key.value] = _line(key)
    return list(node.value)


def _kind(node: yaml.Node) -> str:
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return repr(node.value) if node.value else "nothing"


def _entry(
    path: Path, name: yaml.ScalarNode, node: yaml.Node, problem: Problem, loader: yaml.SafeLoader
) -> Shape:
    pairs = _pairs(path, node, f"the fields of {name.value}, such as {{m: 128, n: 512, k: 768}}")
    fields = {key.value: loader.construct_object(value, deep=True) for key, value in pairs}
    try:
        return problem.parse_shape(name.value, fields)
    except ValueError as error:
        field = getattr(error, "field", None)
        line = next((_line(key) for key, _ in pairs if key.value == field), _line(name))
        raise UsageError(f"{path}:{line}: shape {name.value!r}: {error}") from None


def _parse_fields(spec: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for part in spec.split(":"):
        field, equals, text = part.partition("=")
        field = field.strip()
        if not equals or not field or not text.strip():
            raise ValueError(f"{part!r} is not FIELD=VALUE; {_EXAMPLE}")
        if field in fields:
            raise ValueError(f"field {field!r} is given twice")
        values = [_parse_value(item.strip()) for item in text.split(",")]
        fields[field] = values if len(values) > 1 else values[0]
    return fields


def _parse_value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
