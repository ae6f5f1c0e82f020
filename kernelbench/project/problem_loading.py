"""Importing the problem of a lineage, by the name that its ``lineage.toml`` gives."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from kernelbench.base.bytecode import no_bytecode
from kernelbench.base.errors import KernelbenchError, UnknownNameError, UsageError, torch_missing
from kernelbench.project.error_attribution import guarded, line_in, shown_path
from kernelbench.project.installed import installed_problem
from kernelbench.project.model import Lineage
from kernelbench.project.problem import Problem


@functools.cache
def load_problem(lineage: Lineage) -> Problem:
    """Import the problem of a lineage, once per process; its hooks' mistakes are its own.

    See :mod:`kernelbench.project.error_attribution`.

    Raises:
        UsageError: If it cannot be imported, names nothing, or lacks a part of the interface.
        EnvironmentProblem: If it imports torch, which is not installed.
    """
    file = lineage.path / "lineage.toml"
    said = f"{file}: " if file.is_file() else ""
    try:
        found = _import_problem(lineage.problem, lineage.path, said)
        # One that is a folder's, not a module's, asks whose.
        for_lineage = getattr(found, "for_lineage", None)
        found = for_lineage(lineage) if for_lineage else found
    except KernelbenchError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            raise torch_missing(f"{said}problem {lineage.problem!r}") from error
        line = line_in(error, lineage.path.resolve())
        text = " ".join(str(error).split()) + (f" ({line})" if line else "")
        raise UsageError(
            f"{said}problem {lineage.problem!r} cannot be loaded: {type(error).__name__}: {text}"
        ) from error
    return guarded(found, lineage.problem)


def _import_problem(problem: str, folder: Path, said: str) -> Any:
    """What ``module:NAME``, ``file.py:NAME`` (relative to ``folder``) or an installed one means."""
    where, _, name = problem.rpartition(":")
    if not where:
        return installed_problem(name, said)
    if not where.endswith(".py"):
        with no_bytecode():
            return getattr(importlib.import_module(where), name)
    path = folder / where
    if not path.is_file():
        raise UsageError(f"{said}problem {problem!r}: no such file: {path}")
    module = _module_of(path.resolve(), path.stat().st_mtime_ns)
    if not hasattr(module, name):
        raise UnknownNameError("problem", name, _defined_in(module), f" in {shown_path(path)}")
    return getattr(module, name)


@functools.cache
def _module_of(path: Path, written: int) -> ModuleType:
    """The module of a file as it was written then: one for all lineages that name it."""
    import hashlib

    # By path: two revisions of a lineage share its name. In sys.modules, because
    # dataclasses and pickle look a class's module up there.
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(f"kernelbench_problem_{digest}", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with no_bytecode():
        spec.loader.exec_module(module)
    return module


def _defined_in(module: ModuleType) -> list[str]:
    """The names of a module that are its own, and no function's."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and module.__name__ in (getattr(value, "__module__", ""), type(value).__module__)
        and not isinstance(value, FunctionType)
    ]
