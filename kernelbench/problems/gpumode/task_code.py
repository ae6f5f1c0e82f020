"""A task's own functions, called as the server calls them; what they raise is the task's fault.

A task's files import each other as ``task``, ``utils`` and ``reference``, wherever they lie, and so
do submissions. What judges a submission is a set of its own: a submission that imports
``reference`` or ``utils`` and replaces a function in it replaces it in its own set only.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from kernelbench.base.errors import FaultyReferenceError, ProblemError
from kernelbench.kinds.callables import LoadError, load_callable
from kernelbench.problems import pytree
from kernelbench.problems.gpumode.judge import Guard, understood
from kernelbench.problems.gpumode.on_cpu import redirected
from kernelbench.problems.gpumode.task_file import Task, TaskShape
from kernelbench.problems.pytree import is_strided
from kernelbench.project.arena import bits, plain

#: Seeds that every generator takes, numpy's too.
_SEEDS = 2**31 - 1
_LONGEST = 300
#: What torch says where a CPU lacks an operation or a type, in lower case; where a GPU does.
_LACKING = ("cuda", "not implemented for", "float4")
_LACKING_ON_GPU = ("status_not_supported", "no kernel image", "compute capability", "sm_1")
_REFERENCE = "reference"


class _Loader(SourceFileLoader):
    """Loads a file without leaving a ``__pycache__`` in somebody's folder."""

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode beside the task."""


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
    """Say that this process runs the task of ``folder``; RuntimeError if it runs another one."""
    if _task_here and _task_here[0] != folder:
        raise RuntimeError(f"this process runs the task {_task_here[0]}, not {folder}")
    _task_here[:] = [folder]


class TaskCode:
    """The task's modules in this process: a set that judges, and one for each submission.

    Args:
        device: ``cpu``, where ``cuda`` then means the CPU, or ``cuda:N``.

    Raises:
        ProblemError: If ``reference.py`` raises while it is imported.
    """

    def __init__(self, task: Task, device: str) -> None:
        claim_process(task.folder)
        self._task = task
        self._device = device
        self._judge = ModuleSet(task)
        self._guard: Guard | None = None
        with self._calling("importing reference.py"):
            self._module: ModuleType = self._judge.load(_REFERENCE)
        # From here on: what importing the task has replaced is the task's business.
        self._guard = Guard()

    @property
    def replaced(self) -> str:
        """What a submission was found to have replaced, e.g. ``torch.allclose``; or empty."""
        return self._guard.replaced if self._guard else ""

    @property
    def has_reference(self) -> bool:
        """Whether there is a ``ref_kernel``."""
        return callable(getattr(self._module, "ref_kernel", None))

    def generate(self, shape: TaskShape, seed: int, fresh: bool) -> Any:
        """What ``generate_input`` makes, every generator of random numbers being seeded.

        Args:
            fresh: Whether the task's own seed is replaced, too.

        Raises:
            ProblemError: If it raises.
        """
        arguments = shape.arguments()
        drawn = seed % _SEEDS
        if fresh and type(arguments.get("seed")) is int:
            arguments["seed"] = (arguments["seed"] + drawn) % _SEEDS
        random.seed(drawn)
        np.random.seed(drawn)
        torch.manual_seed(drawn)
        with self._calling(f"generate_input({shape.describe()})"), _DefinedMode():
            data = self._module.generate_input(**arguments)
        return pytree.spread(data)

    def refer(self, data: Any) -> Any:
        """What ``ref_kernel`` gives, which may change ``data``; or FaultyReferenceError."""
        with self._calling("ref_kernel", FaultyReferenceError):
            return self._module.ref_kernel(data)

    def verdict(self, data: Any, output: Any) -> tuple[bool, str]:
        """What ``check_implementation`` says of a result, on copied data; or ProblemError."""
        with self._calling("check_implementation"):
            returned = self._module.check_implementation(pytree.cloned(data), output)
        try:
            return understood(returned)
        except TypeError as error:
            raise ProblemError(f"{self._task.module(_REFERENCE)}: {error}") from None

    def contradiction(self, data: Any) -> str:
        """Why the task's reference is wrong by its own check; empty if it is right or not there."""
        if not self.has_reference:
            return ""
        right, message = self.verdict(data, pytree.cloned(self.refer(pytree.cloned(data))))
        return "" if right else message or "no message"

    def load(self, path: Path) -> Callable[[Any], Any]:
        """A submission's ``custom_kernel``; ``ref_kernel`` of the task's own ``reference.py``.

        Raises:
            LoadError: If there is none.
        """
        own = ModuleSet(self._task)
        with redirected(self._device):
            if path.resolve() == self._task.module(_REFERENCE):
                kernel = getattr(own.load(_REFERENCE), "ref_kernel", None)
                if kernel is None:
                    raise LoadError("reference.py defines no ref_kernel")
            else:
                with own.active():
                    kernel = load_callable(path)
        own.install()
        found: Callable[[Any], Any] = kernel
        return found

    @contextlib.contextmanager
    def _calling(self, what: str, kind: type[ProblemError] = ProblemError) -> Iterator[None]:
        """Run code of the task in its modules and device; what it raises is a ``kind``."""
        if self._guard is not None:
            self._guard.undo()
        try:
            with torch.enable_grad(), self._judge.active(), redirected(self._device):
                yield
        except torch.OutOfMemoryError:
            raise
        except (Exception, SystemExit) as error:
            raise kind(self._blamed(what, error)) from error

    def _blamed(self, what: str, error: BaseException) -> str:
        """One line: what raised what, at the innermost line of the task's own files."""
        files = {str(path) for _, path in self._task.modules}
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
        where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
        text = " ".join(str(error).split())
        hint = self._hint(text.lower(), isinstance(error, NotImplementedError))
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return f"{where}{what} raised {type(error).__name__}: {text}{hint}"

    def _hint(self, text: str, lacking: bool) -> str:
        """What the task may need that this device is not, by what was raised."""
        if self._device == "cpu":
            lacking = lacking or any(word in text for word in _LACKING)
            return "; the task may need a GPU" if lacking else ""
        if not (lacking or any(word in text for word in _LACKING_ON_GPU)):
            return ""
        arch = "sm_{}{}".format(*torch.cuda.get_device_capability(self._device))
        return f"; the task may need another GPU than this {arch}"


_UNWRITTEN = frozenset(
    (torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted,
     torch.Tensor.new_empty, torch.Tensor.new_empty_strided)
)  # fmt: skip


class _DefinedMode(TorchFunctionMode):
    """Fills what torch allocates without values: of any type, with elements whose bits are 1."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _UNWRITTEN and is_strided(made) and made.device.type != "meta":
            bits(plain(made)).fill_(1)
        return made
