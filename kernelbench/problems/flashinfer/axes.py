"""Expressions of axes: arithmetic on whole numbers and names, and nothing else."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}  # fmt: skip
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos, ast.USub: operator.neg,
}  # fmt: skip
_LARGEST_POWER = 64


def top_functions(source: str) -> dict[str, ast.FunctionDef]:
    """The functions at the top level, by name; SyntaxError or ValueError if it is not Python."""
    body = ast.parse(source).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef)}


def takes_positional(function: ast.FunctionDef, count: int) -> bool:
    """Whether it can be called with so many positional arguments."""
    given = function.args
    most = len(given.posonlyargs) + len(given.args)
    enough = count >= most - len(given.defaults) and None not in given.kw_defaults
    return enough and (count <= most or given.vararg is not None)


def python_parameters(source: str, function: str) -> list[str] | None:
    """The names of a function's positional parameters; None if it cannot be told."""
    try:
        found = top_functions(source).get(function)
    except (SyntaxError, ValueError):
        return None
    if found is None or found.args.vararg is not None:
        return None
    return [arg.arg for arg in (*found.args.posonlyargs, *found.args.args)]


class AxisError(ValueError):
    """An expression that is none, or has no value."""


def names_in(expression: str) -> set[str]:
    """The axes that an expression refers to; AxisError if it is no arithmetic on them."""
    return {node.id for node in ast.walk(_tree(expression)) if isinstance(node, ast.Name)}


def axis_value(expression: str, values: Mapping[str, int]) -> int:
    """The value of an expression; AxisError if that is no whole number."""
    try:
        value = _value(_tree(expression), values)
    except (ArithmeticError, KeyError) as error:
        raise AxisError(f"{expression!r} has no value: {error}") from None
    if value != int(value) or value < 0:
        raise AxisError(f"{expression!r} is {value}: expected a whole number of 0 or more")
    return int(value)


def _tree(expression: str) -> ast.expr:
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError):
        raise AxisError(f"{expression!r} is no expression") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            good = type(node.value) in (int, float)
        elif isinstance(node, ast.BinOp):
            good = type(node.op) in _BINARY
        elif isinstance(node, ast.UnaryOp):
            good = type(node.op) in _UNARY
        else:
            good = isinstance(node, ast.Name | ast.operator | ast.unaryop | ast.expr_context)
        if not good:
            raise AxisError(f"{expression!r}: only + - * / // % ** on axes and numbers")
    return tree


def _value(node: ast.expr, values: Mapping[str, int]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=sign, operand=operand):
            return _UNARY[type(sign)](_value(operand, values))
        case ast.BinOp(left=left, op=operation, right=right):
            one, other = _value(left, values), _value(right, values)
            if isinstance(operation, ast.Pow) and abs(other) > _LARGEST_POWER:
                raise AxisError(f"a power of {other}")
            return _BINARY[type(operation)](one, other)
    raise AxisError(f"{ast.unparse(node)!r}: only arithmetic")
