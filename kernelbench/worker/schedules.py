"""The worker's part of ``kernelbench check``: one step under many schedules of the emulator.

There is one message for each schedule, with what it found. A shape ends at its first wrong output
or at a finding that ended a launch.
"""

from __future__ import annotations

import ctypes
import dataclasses
import time
from pathlib import Path
from typing import Any, cast

from kernelbench.base.errors import KernelbenchError, MachineFault, ProblemError
from kernelbench.base.seeds import derive
from kernelbench.emulator import branches, findings
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors import compiled
from kernelbench.executors.callables import describe_exception
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.fault import KernelFault
from kernelbench.executors.loaded_step import LoadedStep
from kernelbench.executors.protocol import CompiledProblem
from kernelbench.measure.correctness import why_wrong
from kernelbench.project.arena import bits
from kernelbench.project.problem import Inputs, Kernel, judging
from kernelbench.project.registry import load_problem
from kernelbench.worker.jobs import CheckJob
from kernelbench.worker.messages import ScheduleRun, ShapeBegins, StepNotLoaded
from kernelbench.worker.reporter import Reporter

_COUNTERS_INTERVAL_S = 2.0


def run_schedules(job: CheckJob, report: Reporter) -> None:
    """Run every shape, class, number of SMs and schedule of a job."""
    problem = cast(CompiledProblem, judging(load_problem(job.lineage), job.step))
    if job.counters:
        branches.collect_into(Path(job.counters))
    report.phase("build and load", compiled.BUILD_LIMIT_S)
    try:
        entry = EMULATOR.open(job.step, check=True)
        kernel = compiled.bind_problem(problem, entry, job.step, job.target.device)
    except (ProblemError, MachineFault):
        raise
    except KernelbenchError as error:
        report(StepNotLoaded(str(error)))
        return
    for shape in job.shapes:
        report(ShapeBegins(shape.name))
        for input_class in job.classes:
            if not _Case(job, problem, entry, kernel, shape, input_class, report).run():
                break
        if job.counters:
            branches.write_counters(entry.library)


class _Counters:
    """Writes the counts now and then: a worker that is killed takes along what it has not."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._written = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._written > _COUNTERS_INTERVAL_S:
            self._written = now
            branches.write_counters(self._library)


class _Case:
    """One shape with one class of inputs."""

    def __init__(
        self,
        job: CheckJob,
        problem: CompiledProblem,
        entry: LoadedStep,
        kernel: Kernel,
        shape: Any,
        input_class: str,
        report: Reporter,
    ) -> None:
        assert entry.emulation is not None
        self._job = job
        self._problem = problem
        self._runtime = entry.emulation
        self._symbols = compiled.symbols_of(job.step)
        self._counters = _Counters(entry.library)
        self._kernel = kernel
        self._shape = shape
        self._class = input_class
        self._report = report

    def run(self) -> bool:
        """Every schedule; False if the shape is to end here."""
        job, shape = self._job, self._shape
        self._report.phase(f"{self._class}: inputs and reference", 600, "reference")
        seed = derive(job.seed, "inputs", shape.name, self._class)
        self._inputs = self._draw(seed)
        # From a copy: the kernel has not seen it.
        self._reference = self._problem.reference(self._draw(seed), shape, self._class)
        for sms in job.sms:
            first: list[Any] | None = None
            for index in range(job.schedules):
                self._report.phase(
                    f"{self._class}, {sms} SM{'s' if sms > 1 else ''}, "
                    f"schedule {index + 1}/{job.schedules}",
                    job.target.executor.watchdog_limit(job.call_limit_s),
                )
                outputs, found, reason = self._schedule(sms, index)
                if outputs is not None and not reason:
                    reason = self._judge(outputs, first)
                    first = first or outputs
                self._report(ScheduleRun(shape.name, self._class, sms, index, reason, found))
                if reason:
                    return False
                if job.counters:
                    self._counters()
        return True

    def _draw(self, seed: int) -> Inputs:
        return self._problem.make_inputs(self._shape, self._class, seed, self._job.target.device)

    def _schedule(self, sms: int, index: int) -> tuple[list[Any] | None, EmulatorReport, str]:
        """One call under one schedule: outputs if there are any, findings, and what ended it."""
        job = self._job
        # No part of the request but what the schedule belongs to: --sms 3 repeats what 1,2,3 found.
        seed = derive(job.seed, "schedule", self._shape.name, self._class, sms, index)
        emulation = dataclasses.replace(job.target.emulation or DEFAULT_EMULATION, sms=sms)
        self._runtime.configure(
            emulation,
            check=True,
            seed=seed,
            max_findings=job.max_findings,
            os_threads=job.os_threads,
            limit_s=job.call_limit_s,
        )
        self._poison = self._inputs.arena.draw_poison(derive(seed, "poison"))
        self._inputs.arena.fill(self._poison)
        outputs, reason = None, ""
        try:
            result = self._kernel(self._inputs.data)
            outputs = [o.clone() for o in self._problem.outputs_of(result, self._inputs)]
        except (ProblemError, MachineFault):
            raise
        except KernelFault as fault:
            reason = str(fault)
        except NotImplementedError as error:
            reason = f"skipped: {' '.join(str(error).split())}"
        except Exception as error:
            reason = f"raised {describe_exception(error, job.step.entry)}"
        found = findings.resolve_report(self._runtime.report(), self._symbols)
        if reason and found.findings:
            reason = found.headline()
        return outputs, found, reason

    def _judge(self, outputs: list[Any], first: list[Any] | None) -> str:
        """Why outputs are wrong; empty if they are right."""
        if first is not None:
            differing = sum(
                int((bits(a) != bits(b)).sum()) for a, b in zip(outputs, first, strict=True)
            )
            if not differing:
                return ""
        verdict = self._problem.compare(outputs, self._reference, self._shape, self._class)
        if not verdict.ok:
            return f"wrong: {why_wrong(verdict, self._inputs, self._poison)}"
        if first is None or not self._problem.repeatable:
            return ""
        return f"wrong: {differing} elements differ in their bits from those of the first schedule"
