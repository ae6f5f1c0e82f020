"""``kernelbench bringup``, without its rendering: the first contact with a GPU, stage by stage.

What has been found is written after every stage, and when a stage fails or is interrupted; a stage
that fails does not keep the next ones from running.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, KernelbenchError
from kernelbench.base.observer import OnProgress
from kernelbench.base.version import __version__
from kernelbench.bringup import native_stages, step_stages
from kernelbench.bringup.bringup_record import (
    BRINGUP_SCHEMA,
    BringupLine,
    BringupRecord,
    Stage,
    figure,
    save_bringup,
)
from kernelbench.bringup.step_stages import StepStage
from kernelbench.inspection import doctor
from kernelbench.machine import devices
from kernelbench.machine.arch import STEP_ARCHES
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.context import Context
from kernelbench.records import run_record

OnStage = Callable[[Stage], None]

TITLES = {
    "environment": "The machine",
    "functions": "Functions of the ptx layer, native against emulated",
    "points": "Open points",
    "small": "Steps on small shapes",
    "timed": "Steps on benchmark shapes, timed",
}
#: CUDA ordinal of the GPU: the one that the parity cases use, too.
DEVICE = 0


@dataclass(frozen=True)
class BringupOptions:
    """What the command line chooses.

    Attributes:
        limit_s: Longest that one process of parity cases, or one phase of a step, may take.
        wait_s: Longest wait, before anything is timed, for other processes to leave the GPU.
        report: The JSON file; the Markdown goes beside it.
        planted: Whether probes run with faults planted, too.
    """

    seed: int
    quick: bool
    limit_s: float
    wait_s: float
    report: Path
    command: str
    planted: bool = False


def native_gpu() -> tuple[GpuInfo, str]:
    """The GPU and the backend that is native on it.

    Raises:
        EnvironmentProblem: If there is no GPU, or none that the ptx layer has a backend for.
    """
    found = devices.gpus()
    if not found:
        raise EnvironmentProblem(
            f"bringup needs a GPU: {devices.gpu_problem()}", "`kernelbench doctor` shows more"
        )
    gpu = found[DEVICE]
    for name, arch in STEP_ARCHES.items():
        if gpu.capability == arch.capability:
            return gpu, name.replace("_", "")
    known = ", ".join(STEP_ARCHES)
    raise EnvironmentProblem(
        f"bringup needs a GPU of {known}; this is {gpu.name} ({gpu.arch})",
        "choose another with CUDA_VISIBLE_DEVICES",
    )


class Bringup:
    """Runs the stages.

    Attributes:
        record: All that was found so far; on disk after every stage.
    """

    def __init__(
        self, context: Context, options: BringupOptions, on_progress: OnProgress, on_stage: OnStage
    ) -> None:
        self._options = options
        self._context = context
        self._progress = on_progress
        self._on_stage = on_stage
        self._gpu, self._backend = native_gpu()
        self._steps = StepStage(
            context, DEVICE, seed=options.seed, limit_s=options.limit_s, progress=on_progress
        )
        self._right: set[str] = set()
        stages = tuple(
            Stage(name, title, "not run", "not reached") for name, title in TITLES.items()
        )
        self.record = BringupRecord(
            schema=BRINGUP_SCHEMA, created=run_record.now_iso(), command=options.command,
            version=__version__, device=self._gpu.name, arch=self._gpu.arch, seed=options.seed,
            quick=options.quick, complete=False, stages=stages,
        )  # fmt: skip

    def run(self) -> None:
        """Run every stage; the report is written whatever happens.

        Raises:
            KeyboardInterrupt: After the report of what was done.
            EnvironmentProblem: If the report cannot be written.
        """
        save_bringup(self._options.report, self.record)
        bodies = (self._environment, self._functions, self._points, self._small, self._timed)
        for index, (name, body) in enumerate(zip(TITLES, bodies, strict=True)):
            self._stage(index, name, body)
        self.record = replace(self.record, complete=True)
        save_bringup(self._options.report, self.record)

    def _stage(self, index: int, name: str, body: Callable[[], Iterator[BringupLine]]) -> None:
        self._progress(TITLES[name])
        began = time.monotonic()
        lines: list[BringupLine] = []
        stage = Stage(name, TITLES[name], "stopped")
        try:
            for line in body():
                lines.append(line)
            stage = replace(stage, state="done")
        except KernelbenchError as error:
            stage = replace(stage, state="failed", reason=str(error))
        except Exception as error:
            # A defect here; the stages behind it are worth more than its traceback.
            at = traceback.extract_tb(error.__traceback__)[-1]
            reason = f"defect at {Path(at.filename).name}:{at.lineno}: {error!r}"
            stage = replace(stage, state="failed", reason=reason)
        finally:
            seconds = round(time.monotonic() - began, 1)
            stage = replace(stage, seconds=seconds, lines=tuple(lines))
            before, after = self.record.stages[:index], self.record.stages[index + 1 :]
            self.record = replace(
                self.record, stages=(*before, stage, *after), results=tuple(self._steps.results),
                environment=self._steps.environment,
            )  # fmt: skip
            save_bringup(self._options.report, self.record)
            self._on_stage(stage)

    def _environment(self) -> Iterator[BringupLine]:
        for row in doctor.examine().rows:
            detail = f"{row.detail}; {row.action}" if row.action else row.detail
            yield BringupLine(row.name, row.state, detail)

    def _functions(self) -> Iterator[BringupLine]:
        options = self._options
        native_stages.build_all(self._backend, self._progress)
        seeds = [options.seed + i for i in range(1 if options.quick else 2)]
        yield from native_stages.functions(self._backend, seeds, options.limit_s, self._progress)

    def _points(self) -> Iterator[BringupLine]:
        options = self._options
        return native_stages.points(
            *(self._backend, options.seed, options.limit_s, self._progress), planted=options.planted
        )

    def _small(self) -> Iterator[BringupLine]:
        steps = step_stages.native_steps(self._context, DEVICE, self._options.quick)
        for found in self._steps.small(steps, self._options.quick):
            if found.line.outcome == "PASS":
                self._right.add(found.step.name)
            yield found.line

    def _timed(self) -> Iterator[BringupLine]:
        steps = step_stages.native_steps(self._context, DEVICE, self._options.quick)
        for step in steps:
            if step.name not in self._right:
                yield BringupLine(step.name, "NOT RUN", "not right on small shapes")
        right = [step for step in steps if step.name in self._right]
        if right:
            yield self._steps.wait_for_others(self._options.wait_s)
        for found in self._steps.timed(right, self._options.quick):
            figures = tuple(
                figure(found.step, row, shared=found.line.shared)
                for row in found.rows
                if row.metrics and row.status == "pass"
            )
            self.record = replace(self.record, figures=self.record.figures + figures)
            yield found.line
