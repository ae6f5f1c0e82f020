"""A problem whose mistakes are its own: every hook is called through here.

What a hook raises, and what it gives that its interface does not allow, becomes a
:class:`~kernelbench.base.errors.ProblemError` in one line, ``FILE:LINE: HOOK of problem NAME: …``
(:class:`~kernelbench.base.errors.FaultyReferenceError` for the reference), or a
:class:`~kernelbench.base.errors.MachineFault` where the machine gave way. The step is never blamed.
No torch here.
"""

from __future__ import annotations

import contextlib
import inspect
import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from kernelbench.base.errors import (
    FaultyReferenceError,
    KernelbenchError,
    MachineFault,
    ProblemError,
)
from kernelbench.project.problem import Inputs, OutputVerdict, Problem, Work

if TYPE_CHECKING:
    import torch


HOOKS = (
    "parse_shape", "make_inputs", "outputs_of", "reference", "compare", "broken_limit", "work",
)  # fmt: skip
_NAMES = ("name", "input_classes", "benchmark_shapes")
#: Hooks that only some problems have.
_OPTIONAL = (
    "for_steps", "prepare", "bind", "host_path", "right_outputs", "situations", "fewer_rows",
    "less_depth", "other_options",
)  # fmt: skip
#: What a reference is made of.
_REFERENCE_HOOKS = ("reference", "magnitudes")
_LONGEST = 300
#: What was guarded, with its guarded form, by identity; kept, so that no other takes that.
_guarded: dict[int, tuple[Any, Problem]] = {}

#: How torch, CUDA and Python say that the machine gave way, whatever the code.
_NO_MEMORY = re.compile(r"out of memory|can(no|')t allocate memory", re.IGNORECASE)
_LOST_DEVICE = re.compile(
    r"uncorrectable|ECC error|no CUDA-capable device|device\(s\) is/are busy or unavailable"
    r"|fallen off the bus|driver shutting down|driver version is insufficient"
    r"|system not yet initialized",
    re.IGNORECASE,
)


def is_machine_fault(error: BaseException) -> bool:
    """Whether an exception says that the machine gave way: memory, device or driver."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if is_lost_device(error):
        return True
    return isinstance(error, RuntimeError | OSError) and bool(_NO_MEMORY.search(str(error)))


def is_lost_device(error: BaseException) -> bool:
    """Whether an exception says that the device or its driver is gone, or was never there."""
    return isinstance(error, RuntimeError) and bool(_LOST_DEVICE.search(str(error)))


def blame_author(author: Any, name: str, hook: str, text: str, line: str = "") -> NoReturn:
    """Raise what says that a hook is at fault.

    Args:
        author: The object whose class has the hook.
        name: The problem's name.
        line: ``FILE:LINE`` of the mistake; where the hook is defined if empty.

    Raises:
        ProblemError: Always; a FaultyReferenceError for a hook of the reference.
    """
    kind = FaultyReferenceError if hook in _REFERENCE_HOOKS else ProblemError
    where = line or _definition(author, hook)
    prefix = f"{where}: " if where else ""
    error = kind(f"{prefix}{hook} of problem {name}: {' '.join(text.split())}")
    error.hook = hook
    raise error


@contextlib.contextmanager
def blaming(
    author: Any, name: str, hook: str, *passing: type[Exception], what: str = ""
) -> Iterator[None]:
    """Turn what a hook raises into an error that names it.

    Args:
        passing: Exceptions that its interface allows; so are those of kernelbench.
        what: On which shape and class of inputs it was called, if that is known.

    Raises:
        ProblemError, FaultyReferenceError, MachineFault: See the module.
    """
    try:
        yield
    except (KernelbenchError, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        if isinstance(error, passing):
            raise
        text = " ".join(str(error).split())
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
        if len(text) > _LONGEST:
            text = text[: _LONGEST - 3] + "..."
        on = f" ({what})" if what else ""
        if is_machine_fault(error):
            raise MachineFault(f"{hook} of problem {name}: {text}{on}") from error
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            line = f"{shown_path(Path(error.filename))}:{error.lineno}"
        else:
            line = line_in(error, home_of(author))
        try:
            blame_author(author, name, hook, text + on, line)
        except ProblemError as blamed:
            raise blamed from error


def shown_path(file: Path) -> str:
    """A file as a message shows it: from the current folder if it is below, else its last parts."""
    with contextlib.suppress(ValueError, OSError):
        return str(file.resolve().relative_to(Path.cwd()))
    return "/".join(file.parts[-2:])


def line_in(error: BaseException, folder: Path | None) -> str:
    """``FILE:LINE`` of the innermost frame of an exception in a folder; empty if there is none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if folder and file.is_absolute() and _is_below(file.resolve(), folder):
            found = f"{shown_path(file)}:{line}"
    return found


def _is_below(file: Path, folder: Path) -> bool:
    """Whether a file is of a folder's own code, not of a package installed below it."""
    return file.is_relative_to(folder) and "site-packages" not in file.relative_to(folder).parts


def home_of(author: Any) -> Path | None:
    """The folder of the file that an object's class is in; None where there is no file."""
    kind = author if isinstance(author, type) else type(author)
    try:
        return Path(inspect.getfile(kind)).resolve().parent
    except (TypeError, OSError):
        return None


def _definition(author: Any, hook: str) -> str:
    """``FILE:LINE`` of a hook, or of the class that lacks it."""
    kind = author if isinstance(author, type) else type(author)
    home = home_of(kind)
    code = getattr(inspect.unwrap(getattr(kind, hook, None) or (lambda: None)), "__code__", None)
    if code is not None and home is not None and Path(code.co_filename).resolve().parent == home:
        return f"{shown_path(Path(code.co_filename))}:{code.co_firstlineno}"
    try:
        return f"{shown_path(Path(inspect.getfile(kind)))}:{inspect.getsourcelines(kind)[1]}"
    except (TypeError, OSError):
        return ""


class GuardedProblem:
    """A problem with every hook called through :func:`blaming`, and what it gives looked at.

    Everything else of the problem is its own: ``guarded.x`` is ``problem.x``.

    Args:
        problem: An object with the interface of :class:`~kernelbench.project.problem.Problem`.
        fallback: What to call it in a message while it has no name.

    Raises:
        ProblemError: If it lacks a part of the interface.
    """

    def __init__(self, problem: Any, fallback: str) -> None:
        self._problem = problem
        #: Whose mistakes they are: an adapter names the object that it adapts.
        self._author = getattr(problem, "author", problem)
        self.name = str(getattr(problem, "name", fallback))
        for part in (*_NAMES, *HOOKS):
            if not hasattr(problem, part):
                self._blame(part, "missing; see the interface of a problem in the documentation")
            if part in HOOKS and not callable(getattr(problem, part)):
                self._blame(part, f"expected a method, found {type(getattr(problem, part))}")
        if not isinstance(problem.name, str) or not problem.name:
            self._blame("name", f"expected a name, found {problem.name!r}")
        self.input_classes = self._names("input_classes", least=1)
        self.benchmark_shapes = self._names("benchmark_shapes", least=0)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        found = getattr(self._problem, attribute)
        return self._optional(attribute, found) if attribute in _OPTIONAL else found

    def settings(self) -> dict[str, Any]:
        """What distinguishes this problem from another of its class."""
        return dict(getattr(self._author, "__dict__", {}))

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> Any:
        """See :meth:`kernelbench.project.problem.Problem.parse_shape`; a ValueError passes."""
        with self._guard("parse_shape", ValueError, what=f"shape {name}"):
            shape = self._problem.parse_shape(name, fields)
        if not isinstance(getattr(shape, "name", None), str) or not hasattr(shape, "describe"):
            self._blame("parse_shape", f"gave {_kind(shape)}, which lacks name or describe()")
        return shape

    def make_inputs(self, shape: Any, input_class: str, seed: int, device: str) -> Inputs:
        """See :meth:`kernelbench.project.problem.Problem.make_inputs`."""
        with self._guard("make_inputs", what=_case(shape, input_class)):
            inputs = self._problem.make_inputs(shape, input_class, seed, device)
        if not isinstance(inputs, Inputs):
            self._blame("make_inputs", f"gave {_kind(inputs)}: expected Inputs")
        return inputs

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """See :meth:`kernelbench.project.problem.Problem.outputs_of`; a ValueError passes."""
        with self._guard("outputs_of", ValueError, what=f"the step returned {_kind(result)}"):
            outputs = self._problem.outputs_of(result, inputs)
        import torch

        if not isinstance(outputs, list | tuple):
            self._blame("outputs_of", f"gave {_kind(outputs)}: expected a list of tensors")
        for output in outputs:
            if not isinstance(output, torch.Tensor):
                self._blame("outputs_of", f"gave {_kind(output)} among the outputs, not a tensor")
        return outputs if isinstance(outputs, list) else [*outputs]

    def reference(self, inputs: Inputs, shape: Any, input_class: str) -> Any:
        """See :meth:`kernelbench.project.problem.Problem.reference`."""
        with self._guard("reference", what=_case(shape, input_class)):
            return self._problem.reference(inputs, shape, input_class)

    def compare(
        self, outputs: Sequence[torch.Tensor], reference: Any, shape: Any, input_class: str
    ) -> OutputVerdict:
        """See :meth:`kernelbench.project.problem.Problem.compare`."""
        with self._guard("compare", what=_case(shape, input_class)):
            verdict = self._problem.compare(outputs, reference, shape, input_class)
        if not isinstance(verdict, OutputVerdict):
            self._blame("compare", f"gave {_kind(verdict)}: expected an OutputVerdict")
        for field, kinds in (
            ("ok", bool), ("exact", bool | None), ("max_abs_err", float | int | None),
            ("reason", str), ("rel_rms_err", float | int | None),
        ):  # fmt: skip
            value = getattr(verdict, field)
            if not isinstance(value, kinds):
                self._blame("compare", f"OutputVerdict.{field} is {_kind(value)}, not {kinds}")
        return verdict

    def broken_limit(self, shape: Any, limits: Mapping[str, Any]) -> str:
        """See :meth:`kernelbench.project.problem.Problem.broken_limit`."""
        with self._guard("broken_limit", what=f"shape {shape.name}"):
            reason = self._problem.broken_limit(shape, limits)
        if not isinstance(reason, str):
            self._blame("broken_limit", f"gave {_kind(reason)}: expected a text, empty for none")
        return reason

    def work(self, shape: Any, inputs: Inputs | None = None) -> Work:
        """See :meth:`kernelbench.project.problem.Problem.work`."""
        with self._guard("work", what=f"shape {shape.name}"):
            work = self._problem.work(shape, inputs)
        if not isinstance(work, Work):
            self._blame("work", f"gave {_kind(work)}: expected Work")
        return work

    def _optional(self, hook: str, found: Any) -> Any:
        if not callable(found):
            return found

        def call(*arguments: Any) -> Any:
            with self._guard(hook, NotImplementedError):
                value = found(*arguments)
            return GuardedProblem(value, self.name) if hook == "for_steps" else value

        return call

    def _guard(
        self, hook: str, *passing: type[Exception], what: str = ""
    ) -> contextlib.AbstractContextManager[None]:
        return blaming(self._author, self.name, hook, *passing, what=what)

    def _blame(self, hook: str, text: str) -> NoReturn:
        blame_author(self._author, self.name, hook, text)

    def _names(self, attribute: str, least: int) -> tuple[str, ...]:
        value = getattr(self._problem, attribute)
        names = isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)
        if not names or len(value) < least:
            self._blame(attribute, f"expected a tuple of names, found {value!r}")
        return tuple(value)


def guarded(found: Any, fallback: str) -> Problem:
    """The problem that an entry point names: an object, a class, or what ``as_problem`` gives.

    The same for the same object: two lineages that name one problem have one.

    Args:
        fallback: What to call it in a message while it has no name.

    Raises:
        ProblemError: If making it raises, or it lacks a part of the interface.
    """
    if id(found) not in _guarded:
        problem = found
        with blaming(found, fallback, "__init__"):
            if isinstance(found, type):
                problem = found()
        adapt: Callable[[], Any] | None = getattr(problem, "as_problem", None)
        whole = GuardedProblem(problem if adapt is None else adapt(), fallback)
        _guarded[id(found)] = found, cast("Problem", whole)
    return _guarded[id(found)][1]


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _case(shape: Any, input_class: str) -> str:
    return f"shape {getattr(shape, 'name', shape)}, inputs {input_class}"
