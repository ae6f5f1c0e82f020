"""What every measuring function takes, with its defaults: the command line has no others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, get_args

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.base.files import NO_ROOM, existing_part
from kernelbench.base.seeds import new_seed
from kernelbench.machine.devices import gpus
from kernelbench.machine.environment import cpu_name
from kernelbench.records.metrics import METRICS, Metric
from kernelbench.records.run_record import CallForm, L2Mode, device_slug
from kernelbench.worker.jobs import Timing

#: One name, file or folder, or several.
Names = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

#: Untimed calls of each arm before the timed ones.
WARMUPS = 50


#: Each repetition is planned beforehand and its sample kept: with more, planning alone would take
#: gigabytes, whatever the budget.
MAX_REPS = 1_000_000


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a number that is too small, or none.

    Raises:
        UsageError: With the argument's name.
    """
    if not value >= least:
        raise UsageError(f"{name} is {value}: expected {least:g} or more")


def one_of(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a word that is not one of those known.

    Raises:
        UsageError: With the argument's name.
    """
    if value not in known:
        raise UsageError(f"{name} is {value!r}: expected one of {', '.join(known)}")


class MeasuringOptions(TypedDict, total=False):
    """The fields of :class:`Measuring` as keyword arguments; None stands for the default."""

    reps: int
    l2: L2Mode
    device: int
    seed: int | None
    timeout_s: float | None
    budget_s: float


@dataclass(frozen=True)
class Measuring:
    """How something is measured; UsageError if one of the values is out of its range."""

    reps: int = 500  #: Timed repetitions per arm.
    l2: L2Mode = "cold"  #: ``cold``: flushed before each repetition; ``warm``: back to back.
    device: int = 0  #: CUDA ordinal of the GPU.
    #: Of inputs, poison and order; drawn anew if not given.
    seed: int = field(default_factory=new_seed)
    timeout_s: float = 120.0  #: Seconds after which a call of a step counts as hung.
    budget_s: float = 10.0  #: Seconds of timed work per shape (and session) on a CPU.

    def __post_init__(self) -> None:
        at_least("reps", self.reps, 1)
        if self.reps > MAX_REPS:
            raise UsageError(f"reps is {self.reps}: expected {MAX_REPS} or less")
        at_least("device", self.device, 0)
        at_least("seed", self.seed, 0)
        at_least("timeout_s", self.timeout_s, 0.1)
        at_least("budget_s", self.budget_s, 0.1)
        one_of("l2", self.l2, get_args(L2Mode))

    @classmethod
    def of(cls, options: MeasuringOptions) -> Measuring:
        """With these fields, the others being the defaults."""
        return cls(**{name: value for name, value in options.items() if value is not None})  # type: ignore[arg-type]

    def timing(self, *metrics: Metric, call: CallForm = "single", batch: int = 1) -> Timing:
        """The protocol for these metrics, with usual warm-ups; UsageError for an unknown one."""
        for metric in metrics:
            one_of("metrics", metric, [*METRICS])
        return Timing(self.reps, WARMUPS, self.l2, call, metrics, self.budget_s, batch)


#: The defaults; its seed is nobody's.
MEASURING = Measuring(seed=0)


def names_of(given: Names | None) -> tuple[str, ...]:
    """What was named: nothing for None, one name for a string or a path."""
    if given is None:
        return ()
    if isinstance(given, (str, os.PathLike)):
        return (os.fspath(given),)
    return tuple(os.fspath(one) for one in given)


def step_names(given: Names) -> tuple[str, ...]:
    """The steps that were named; UsageError if none is."""
    names = names_of(given)
    if not names:
        raise UsageError("no step is named", "`kernelbench list` shows them")
    return names


def call_text(function: str, *names: str) -> str:
    """What a record says made it, without the folders of the user's machine."""
    shown = [repr(Path(name).name if Path(name).is_absolute() else name) for name in names]
    return f"kernelbench.{function}({', '.join(shown)})"


def require_results(folder: Path, hint: str = "choose another with --results") -> None:
    """EnvironmentProblem for a results folder that could not be written, before hours of work."""
    devices = [gpu.name for gpu in gpus()] or [cpu_name()]
    require_writable_results(folder, devices, hint)


def require_writable_results(
    folder: Path, devices: Sequence[str] = (), hint: str = "choose another with --results"
) -> None:
    """Refuse a results folder in which records could not be made.

    A file is made for a moment in what exists of the way to ``folder`` and to the runs of each
    device: permissions alone do not tell, since root has them all, in /proc and on a full disk too.

    Args:
        devices: Names of the devices that are to be measured.

    Raises:
        EnvironmentProblem: Naming the part that is not a writable folder.
    """
    places = [folder, *(folder / device_slug(device) / "runs" for device in devices)]
    for place in dict.fromkeys(existing_part(place) for place in places):
        if why := _refusal(place):
            raise EnvironmentProblem(f"cannot write results to {folder}: {place} {why}", hint)


def _refusal(folder: Path) -> str:
    """Why no file can be made in a folder; empty if one can."""
    if not os.access(folder, os.W_OK | os.X_OK):
        return "is not a writable folder"
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as stream:
            stream.write(b"x")
    except OSError as error:
        if error.errno in NO_ROOM:
            return f"has no room left ({os.strerror(error.errno)})"
        return "is not a writable folder"
    return ""
