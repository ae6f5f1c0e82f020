"""The registry of executors: which there are, which runs a step here, and on what.

Four ship, best first: ``gpu``, ``gpu-soft``, ``emulator``, ``torch``. Other packages add theirs by
an entry point of the group ``kernelbench.executors`` that names an object with the attributes of
:class:`kernelbench.executors.executor.Executor`; they come after those that ship.

Nothing here imports torch: listing steps asks these questions too.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.executor import Executor, Target
from kernelbench.executors.gpu import GPU, SOFT_GPU
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.machine.devices import require_torch
from kernelbench.project.installed import entry_points_of
from kernelbench.project.model import Step
from kernelbench.project.registry import require_runnable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "EMULATOR", "GPU", "GROUP", "SOFT_GPU", "TORCH", "Executor", "Target", "device_timed",
    "executors", "executors_for", "find_executor", "never_timed", "resolve",
    "runnable",
]  # fmt: skip

#: The entry points' group.
GROUP = "kernelbench.executors"

_ATTRIBUTES = tuple(name for name in vars(Executor) if not name.startswith("_"))

#: An executor's name, whether it can run a step here, and why (not), in one line.
Availability = tuple[str, bool, str]


@functools.cache
def executors() -> tuple[Executor, ...]:
    """Every executor, in the order of ``auto``; EnvironmentProblem for a broken one."""
    found: list[Executor] = [GPU, SOFT_GPU, EMULATOR, TORCH]
    for point in entry_points_of(GROUP):
        found.append(_installed(point, found))
    return tuple(found)


def _installed(point: EntryPoint, others: Iterable[Executor]) -> Executor:
    package = point.dist.name if point.dist else "?"
    where = f"executor {point.name!r} of the installed package {package!r} ({point.value})"
    advice = f"update or uninstall {package}"
    try:
        found = point.load()
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise EnvironmentProblem(f"{where} cannot be loaded: {text}", advice) from error
    for attribute in _ATTRIBUTES:
        if not hasattr(found, attribute):
            raise EnvironmentProblem(f"{where} has no {attribute!r}", advice)
    if any(found.name == other.name for other in others):
        raise EnvironmentProblem(f"{where}: there is another executor {found.name!r}", advice)
    return cast("Executor", found)


def find_executor(name: str) -> Executor | None:
    """The executor of a name; None if there is none here (a record may name another machine's)."""
    return next((executor for executor in executors() if executor.name == name), None)


def device_timed(name: str) -> bool:
    """Whether times of a record's executor are those of a device; no for one that is unknown."""
    executor = find_executor(name)
    return executor is not None and executor.device_timed


def never_timed(name: str) -> bool:
    """Whether a record's executor is one whose times stand for no device."""
    executor = find_executor(name)
    return executor is not None and not executor.timed


def executors_for(step: Step, device: int = 0) -> list[Availability]:
    """Each executor with whether it can run ``step`` here (on GPU ``device``), and why (not)."""
    if step.status == "planned":
        return [(executor.name, False, "planned: no kernel yet") for executor in executors()]
    found: list[Availability] = []
    for executor in executors():
        refusal = executor.refusal(step)
        works, why = (False, refusal) if refusal else executor.availability(step, device)
        found.append((executor.name, works, why))
    return found


def runnable(step: Step) -> tuple[bool, str]:
    """Whether anything here can run ``step``: the best executor and where, or why none can."""
    found = executors_for(step)
    for name, works, reason in found:
        if works:
            return True, f"{name}: {reason}"
    return False, _why_none(step, found)


def _why_none(step: Step, found: Iterable[Availability]) -> str:
    if step.status == "planned":
        return "planned"
    meant = {executor.name for executor in executors() if not executor.refusal(step)}
    return "; ".join(f"{name}: {reason}" for name, _, reason in found if name in meant)


def resolve(
    step: Step, requested: str = "auto", device: int = 0, emulation: Emulation = DEFAULT_EMULATION
) -> Target:
    """The target on which ``step`` runs.

    Args:
        requested: An executor's name, or ``auto`` for the best that this machine has.
        device: CUDA ordinal for the GPU executors.
        emulation: What to emulate, if it runs on the emulator.

    Raises:
        PlannedStepError: If the step has no kernel yet.
        UsageError: If ``requested`` is not an executor, or if its entry file is missing.
        EnvironmentProblem: If this machine cannot run it so; says why and what can.
    """
    known = {executor.name: executor for executor in executors()}
    if requested != "auto" and requested not in known:
        raise UsageError(f"unknown executor {requested!r}", f"choose from auto, {', '.join(known)}")
    require_runnable(step)
    found = executors_for(step, device)
    working = [name for name, works, _ in found if works]
    if requested == "auto":
        if not working:
            require_torch(f"running {step.name}")
            raise EnvironmentProblem(
                f"this machine cannot run {step.name}: {_why_none(step, found)}",
                "`kernelbench doctor` shows what is missing",
            )
        return known[working[0]].target(device, emulation)
    if requested not in working:
        reason = next(why for name, _, why in found if name == requested)
        others = ", ".join(f"--executor {name}" for name in working)
        raise EnvironmentProblem(
            f"executor {requested!r} cannot run {step.name}: {reason}",
            f"what works here: {others}" if others else "`kernelbench doctor` shows more",
        )
    return known[requested].target(device, emulation)
