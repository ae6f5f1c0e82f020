"""A task's files as modules, under their own names and in sets that do not touch one another.

A task's files import each other as ``task``, ``utils`` and ``reference``, wherever they lie, and so
do submissions. What judges a submission is a set of its own: a submission that imports
``reference`` or ``utils`` and replaces a function in it replaces it in its own set only.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelbench.problems.gpumode.task_file import Task


class _Loader(SourceFileLoader):
    """Loads a file without leaving a ``__pycache__`` in somebody's folder."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Nothing is written."""


class _Finder(MetaPathFinder):
    """Finds the files of one task by their names, before anything that is installed."""

    def __init__(self, task: Task) -> None:
        self._files = dict(task.modules)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The task's file of that name."""
        file = self._files.get(name)
        if file is None:
            return None
        return spec_from_file_location(name, file, loader=_Loader(name, str(file)))


class ModuleSet:
    """One instance of a task's modules."""

    def __init__(self, task: Task) -> None:
        self._finder = _Finder(task)
        self._names = [name for name, _ in task.modules]
        self._modules: dict[str, ModuleType] = {}

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """While it is, the task's names mean this set's modules; what is new stays in the set."""
        before = {name: sys.modules.pop(name, None) for name in self._names}
        sys.modules.update(self._modules)
        sys.meta_path.insert(0, self._finder)
        try:
            yield
        finally:
            sys.meta_path.remove(self._finder)
            for name, old in before.items():
                new = sys.modules.pop(name, None)
                if new is not None:
                    self._modules[name] = new
                if old is not None:
                    sys.modules[name] = old

    def install(self) -> None:
        """Make the task's names mean this set's modules from now on, outside of :meth:`active`."""
        for name in self._names:
            sys.modules.pop(name, None)
        sys.modules.update(self._modules)
        sys.meta_path[:] = [f for f in sys.meta_path if not isinstance(f, _Finder)]
        sys.meta_path.insert(0, self._finder)

    def load(self, name: str) -> ModuleType:
        """Import one of the task's modules into the set.

        Raises:
            Exception: Whatever the file raises while it is imported.
        """
        with self.active():
            return importlib.import_module(name)


_task_here: list[Path] = []


def claim_process(folder: Path) -> None:
    """Say that this process runs the task of ``folder``; it can run no other one.

    Raises:
        RuntimeError: If it runs another one: their modules have the same names.
    """
    if _task_here and _task_here[0] != folder:
        raise RuntimeError(f"this process runs the task {_task_here[0]}, not {folder}")
    _task_here[:] = [folder]
