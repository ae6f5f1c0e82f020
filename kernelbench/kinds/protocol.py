"""What a problem offers to compiled steps, beside the interface of every problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem


class CompiledProblem(Problem, Protocol):
    """A problem that compiled steps solve, too."""

    #: Small shapes that ``kernelbench check`` runs if none is named; steps leave out what they
    #: cannot take.
    check_shapes: tuple[str, ...]
    #: Whether a right step gives the same bits on every schedule of its threads.
    repeatable: bool

    def situations(self, shape: Any, step: Step, sms: int) -> dict[str, bool]:
        """What a shape on so many SMs can make a step do, and whether it does: for ``check``.

        A problem may leave this out, and then nothing is said of situations. A name says what
        happens in words of the problem; every shape gives the same names.
        """

    def fewer_rows(self, shape: Any) -> Any | None:
        """A shape whose tensors fit where this one's lie, for a call at the same addresses.

        One extent is smaller, so that what a host path keeps of sizes has to change. None if there
        is no such shape; a problem may leave this out.
        """

    def less_depth(self, shape: Any) -> Any | None:
        """As :meth:`fewer_rows`: a shape that needs fewer CTAs or less memory between phases."""

    def prepare(self, step: Step) -> None:
        """Build what :meth:`bind` needs beside the step's library where calls are timed.

        Raises:
            EnvironmentProblem: If something to build it with is missing.
        """

    def bind(self, entry: LoadedStep, step: Step, device: str) -> Kernel:
        """A compiled step's callable on the problem's data.

        It calls ``entry.call`` with the problem's call structure. On the emulator it first says
        which memory the kernel may touch (``entry.emulation.register``) and afterwards clears that.
        """


@dataclass(frozen=True)
class HostPath:
    """What :meth:`CompiledProblem.bind` does, as code that an exported step can hold a copy of."""

    #: The Python file that defines ``function`` at its top level. What that uses of kernelbench's
    #: modules is copied too, so that those are the standard library and torch.
    file: Path
    #: ``function(entry, device, *arguments)`` returns the step's callable. ``entry`` has ``call``,
    #: ``check``, ``address_of`` and ``stream_on`` of
    #: :class:`~kernelbench.kinds.loaded_step.LoadedStep`.
    function: str
    arguments: tuple[str, ...] = ()  #: Strings.
    data: str = ""  #: Name of the NamedTuple that the callable takes, if plain tuples are no good.
    #: Name and source of a Python module that takes part, made with pybind11; it comes after
    #: ``arguments``.
    extension: tuple[str, Path] | None = None


class ExportableProblem(CompiledProblem, Protocol):
    """A problem whose compiled steps can be exported."""

    #: By arch, the leaderboard of GPU MODE that takes such steps, and its GPU.
    leaderboards: Mapping[str, tuple[str, str]]

    def host_path(self, step: Step) -> HostPath:
        """How an exported step is called."""
