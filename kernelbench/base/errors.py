"""Typed errors and the one table of exit codes.

Every error that a user can cause or meet is a :class:`KernelbenchError`: one line that says what is
wrong, where, and what to do. The command line prints that line and leaves with the error's exit
code; a traceback therefore always means a defect in kernelbench itself.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path


class ExitCode(IntEnum):
    """Exit codes, the same for every command."""

    PASS = 0
    REGRESSION = 1
    USAGE = 2
    INCORRECT = 3
    AMBIGUOUS = 4
    ENVIRONMENT = 5
    DEFECT = 6

    @property
    def meaning(self) -> str:
        """What the code tells a script."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.PASS: "pass",
    ExitCode.REGRESSION: "regression (gate, ab --fail-on slower)",
    ExitCode.USAGE: "usage: unknown step or shape, malformed file, faulty problem, planned step",
    ExitCode.INCORRECT: "incorrect, hung or faulted",
    ExitCode.AMBIGUOUS: "ambiguous: --fail-on ambiguous; a loss beyond the margin, not certain",
    ExitCode.ENVIRONMENT: "environment: no device, compiler, usable baseline or disk; all skipped",
    ExitCode.DEFECT: "a defect in kernelbench itself; the message names the file of its traceback",
}


#: Known names that a message lists; a list of a hundred hides what is wrong.
_SHOWN_NAMES = 12


class KernelbenchError(Exception):
    """A failure with a one-line message for the user and an exit code for scripts.

    Args:
        message: What is wrong and where, in one line.
        hint: What to do about it, in one line; printed after the message.

    Attributes:
        partial: What was measured before it, such as the record of a run; None if nothing was.
    """

    exit_code = ExitCode.ENVIRONMENT
    partial: object | None = None

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a measurement.

    Attributes:
        partial: What was measured before it, such as the record of a run; None if nothing was.
    """

    def __init__(self, partial: object | None = None) -> None:
        super().__init__()
        self.partial = partial


def ended_early(error: BaseException, partial: object | None) -> BaseException:
    """``error`` with what was measured before it: Ctrl-C becomes :class:`Interrupted`."""
    if isinstance(error, KernelbenchError):
        error.partial = partial
        return error
    return Interrupted(partial) if isinstance(error, KeyboardInterrupt) else error


class UsageError(KernelbenchError):
    """The command line, or a file that the user wrote, asks for something that does not exist."""

    exit_code = ExitCode.USAGE


class UnknownNameError(UsageError):
    """An unknown step, shape or other name; the hint proposes the nearest known one."""

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = "") -> None:
        known = list(known)
        likeness = {other: difflib.SequenceMatcher(None, other, name).ratio() for other in known}
        nearest = max(likeness, key=likeness.__getitem__, default="")  # the first of equals
        if nearest and likeness[nearest] >= 0.4:
            hint = f"did you mean {nearest!r}?"
        else:
            more = f" and {len(known) - _SHOWN_NAMES} more" if len(known) > _SHOWN_NAMES else ""
            shown = ", ".join(known[:_SHOWN_NAMES])
            hint = f"known: {shown}{more}" if known else f"no {kind} is known"
        super().__init__(f"unknown {kind} {name!r}{where}", hint)


class ProblemError(UsageError):
    """A problem's own code raised, or gave what its interface does not allow; not the step's."""

    hook: str = ""  #: The part of the problem that did; empty if that is not known.


class FaultyReferenceError(ProblemError):
    """A problem's reference raised, or gave what nothing can be judged by; not the step's."""


class PlannedStepError(UsageError):
    """A step whose kernel is not there yet."""


class EnvironmentProblem(KernelbenchError):
    """This machine lacks something that the command needs: a device, a compiler, disk space."""

    exit_code = ExitCode.ENVIRONMENT


#: How to have torch, for what cannot go on without it.
TORCH_HINT = "`pip install torch`; without an NVIDIA GPU PyTorch's CPU build, which is smaller"


def torch_missing(what: str) -> EnvironmentProblem:
    """What takes torch, where that is not installed."""
    return EnvironmentProblem(f"{what} takes torch, which is not installed", TORCH_HINT)


class MachineFault(EnvironmentProblem):
    """The machine gave way: out of memory, a lost device or driver; not the step's."""


class HarnessDefect(KernelbenchError):
    """A defect in kernelbench itself, met while it handled a step; not the step's."""

    exit_code = ExitCode.DEFECT


class RecordError(EnvironmentProblem):
    """A results file, ledger or baseline that cannot be read: absent, broken, foreign or stale."""


class IncorrectError(KernelbenchError):
    """A step computed wrong values, hung or faulted where a right result was required."""

    exit_code = ExitCode.INCORRECT


#: Set to anything, it has tracebacks printed, as ``kernelbench --debug`` does.
DEBUG_VARIABLE = "KERNELBENCH_DEBUG"
_PACKAGE = Path(__file__).resolve().parents[1]


def describe_internal_error(error: BaseException) -> str:
    """An exception in one line, with the innermost line of kernelbench that it passed."""
    import traceback

    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if file.is_relative_to(_PACKAGE):
            where = f" ({file.relative_to(_PACKAGE.parent)}:{frame.lineno})"
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
    return f"a defect in kernelbench: {text[:300]}{where}"


def internal_error(reason: str, trace: str) -> HarnessDefect:
    """The error of a defect; its traceback goes to a file that it names, or to stderr if asked."""
    if os.environ.get(DEBUG_VARIABLE):
        import sys

        print(trace, file=sys.stderr)
        return HarnessDefect(reason, "please report it")
    try:
        import tempfile

        with tempfile.NamedTemporaryFile(
            "w", prefix="kernelbench-defect-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
    except OSError:
        return HarnessDefect(reason, f"please report it ({DEBUG_VARIABLE}=1 shows its traceback)")
    return HarnessDefect(reason, f"please report it with its traceback, {file.name}")
