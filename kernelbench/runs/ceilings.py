"""Measuring a GPU's ceilings for the roofline, in a worker."""

from __future__ import annotations

from pathlib import Path

from kernelbench.base.callbacks import OnProgress
from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.machine import devices
from kernelbench.measure import speed_of_light
from kernelbench.measure.speed_of_light import Ceilings
from kernelbench.worker.jobs import CeilingsJob
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import CeilingsMeasured


def measure_ceilings(device: str | None, folder: Path, on_progress: OnProgress) -> str:
    """Measure the ceilings of a GPU of this machine and keep them in a results folder.

    Args:
        device: Its CUDA ordinal; None for the first.
        on_progress: Told what is measured, and where it is kept.

    Returns:
        The ordinal.

    Raises:
        UsageError: If ``device`` is no ordinal.
        EnvironmentProblem: If there is no such GPU, or the worker fails.
    """
    if device is not None and not device.isdecimal():
        raise UsageError(
            f"--measure measures a GPU of this machine, not {device!r}", "give its CUDA ordinal"
        )
    index = int(device or 0)
    found = devices.gpus()
    if index >= len(found):
        problem = devices.gpu_problem() or f"this process sees {len(found)}"
        raise EnvironmentProblem(
            f"nothing to measure: no GPU {index}: {problem}",
            "without --measure the datasheet's ceilings are shown",
        )
    on_progress(f"measuring the ceilings of GPU {index}, {found[index].name}: some ten seconds")
    ceilings: Ceilings | None = None
    with Launcher() as launcher:
        for message in launcher.run(CeilingsJob(index)):
            if isinstance(message, CeilingsMeasured):
                ceilings = message.ceilings
        ending = launcher.ending
    if ceilings is None:
        reason = ending.reason if ending and ending.reason else "the worker gave no figures"
        raise EnvironmentProblem(f"the ceilings could not be measured: {reason}")
    on_progress(f"kept in {speed_of_light.save_measured(ceilings, folder)}")
    return str(index)
