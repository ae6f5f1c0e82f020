"""A task's own functions, called as the server calls them; what they raise is the task's fault."""

from __future__ import annotations

import contextlib
import random
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from kernelbench.base.errors import FaultyReferenceError, ProblemError
from kernelbench.executors.callables import LoadError, load_callable
from kernelbench.problems.gpumode import trees
from kernelbench.problems.gpumode.defined import defined
from kernelbench.problems.gpumode.judge import Guard, understood
from kernelbench.problems.gpumode.modules import ModuleSet, claim_process
from kernelbench.problems.gpumode.on_cpu import redirected
from kernelbench.problems.gpumode.task_file import Task, TaskShape

#: Seeds that every generator takes, numpy's too.
_SEEDS = 2**31 - 1
_LONGEST = 300
#: What torch says where a CPU lacks an operation or a type, in lower case; where a GPU does.
_LACKING = ("cuda", "not implemented for", "float4")
_LACKING_ON_GPU = ("status_not_supported", "no kernel image", "compute capability", "sm_1")
_REFERENCE = "reference"


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
        with self._calling(f"generate_input({shape.describe()})"), defined():
            data = self._module.generate_input(**arguments)
        return trees.spread(data)

    def refer(self, data: Any) -> Any:
        """What ``ref_kernel`` gives; it may change ``data``.

        Raises:
            FaultyReferenceError: If it raises.
        """
        with self._calling("ref_kernel", FaultyReferenceError):
            return self._module.ref_kernel(data)

    def verdict(self, data: Any, output: Any) -> tuple[bool, str]:
        """What ``check_implementation`` says of a result, on a copy of ``data``.

        Raises:
            ProblemError: If it raises, or says nothing that can be understood.
        """
        with self._calling("check_implementation"):
            returned = self._module.check_implementation(trees.cloned(data), output)
        try:
            return understood(returned)
        except TypeError as error:
            raise ProblemError(f"{self._task.module(_REFERENCE)}: {error}") from None

    def contradiction(self, data: Any) -> str:
        """Why the task's reference is wrong by its own check; empty if it is right or not there."""
        if not self.has_reference:
            return ""
        right, message = self.verdict(data, trees.cloned(self.refer(trees.cloned(data))))
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
        """Run code of the task: with gradients, its own modules, its device, an untouched torch.

        Raises:
            ProblemError: For whatever it raises, with file and line; a subclass if ``kind`` says.
        """
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
