"""What a reference's or solution's Python says, without running it."""

from __future__ import annotations

import ast


def top_functions(source: str) -> dict[str, ast.FunctionDef]:
    """The functions at the top level, by name.

    Raises:
        SyntaxError: If it is not Python; also as a ValueError, of null bytes.
    """
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
