"""What can be seen of a task's Python files without running them.

A task runs in a worker, late; what is missing in it is better said at once, with file and line.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.problems.gpumode.task_file import Task

#: The two functions that every task's ``reference.py`` must have.
HOOKS = ("generate_input", "check_implementation")
#: Arguments of a ``generate_input`` that runs once for each of several GPUs, in lower case.
_OF_RANKS = frozenset(("world_size", "tp_group"))


def require_sound(task: Task) -> None:
    """Refuse a task that cannot run here, as far as its files tell.

    Raises:
        UsageError: If a file is not Python, if ``reference.py`` lacks a function, or if
            ``generate_input`` takes what no test gives.
        EnvironmentProblem: If it imports a module that is not installed, or is for several GPUs.
    """
    trees = {name: (path, _parse(path)) for name, path in task.modules}
    path, tree = trees["reference"]
    bound = set(_bound_names(tree.body))
    for hook in HOOKS:
        if hook not in bound and "*" not in bound:
            raise UsageError(
                f"{path}: defines no {hook}",
                "a task whose eval.py has its own rules, without generate_input and "
                "check_implementation, cannot be run",
            )
    _require_arguments(task, path, tree)
    for name in _reached("reference", trees):
        _require_modules(task, *trees[name])


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno or 1}: not valid Python: {error.msg}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not valid Python: {error}") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None


def _bound_names(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that statements bind, those inside ``if`` and ``try`` too; ``*`` for a star."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
            case ast.If() | ast.Try() | ast.With():
                for part in ("body", "orelse", "finalbody"):
                    yield from _bound_names(getattr(node, part, []))
                for handler in getattr(node, "handlers", []):
                    yield from _bound_names(handler.body)
            case _:
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        yield inner.id


def _require_arguments(task: Task, path: Path, tree: ast.Module) -> None:
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == HOOKS[0]]
    if not found:
        return
    arguments = found[-1].args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    required += [
        arg
        for arg, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    taken = {arg.arg for arg in (*positional, *arguments.kwonlyargs)}
    by_any = {name for shape in task.shapes for name, _ in shape.args}
    of_ranks = [arg.arg for arg in required if arg.arg.lower() in _OF_RANKS - by_any]
    if of_ranks:
        raise EnvironmentProblem(
            f"{path}:{found[-1].lineno}: a task for several GPUs: generate_input takes "
            f"{of_ranks[0]!r}",
            "tasks for one GPU or a CPU can be run",
        )
    for shape in task.shapes:
        given = dict(shape.args)
        for arg in required:
            if arg.arg not in given:
                raise UsageError(
                    f"{path}:{found[-1].lineno}: generate_input takes {arg.arg!r}, which "
                    f"{shape.name} ({shape.describe()}) does not give"
                )
        extra = [name for name in given if name not in taken]
        if extra and arguments.kwarg is None:
            raise UsageError(
                f"{path}:{found[-1].lineno}: generate_input takes no {extra[0]!r}, which "
                f"{shape.name} gives"
            )


def _reached(name: str, trees: dict[str, tuple[Path, ast.Module]]) -> list[str]:
    """The task's own modules that importing ``name`` imports, itself included."""
    found = [name]
    for current in found:
        for _, module in _imports(trees[current][1].body):
            if module in trees and module not in found:
                found.append(module)
    return found


def _imports(body: Sequence[ast.stmt]) -> Iterator[tuple[int, str]]:
    """Modules that importing a file imports for certain: not in functions, ``if`` or ``try``."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def _require_modules(task: Task, path: Path, tree: ast.Module) -> None:
    own = {name for name, _ in task.modules} | {"task", "utils"}
    for line, module in _imports(tree.body):
        if module in own or module in sys.stdlib_module_names or module in sys.modules:
            continue
        if importlib.util.find_spec(module) is None:
            raise EnvironmentProblem(
                f"{path}:{line}: imports {module!r}, which is not installed",
                f"install it where kernelbench is, if there is a {module} for this machine",
            )
