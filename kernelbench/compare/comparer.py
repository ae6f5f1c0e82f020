"""Measuring two arms against each other, for ``ab`` and the live gate.

A comparison is one shape; each session of it is a fresh worker process in which both arms run
interleaved. Inference is in ``stats/inference.py``; here samples are collected
and turned into its input.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, IncorrectError
from kernelbench.base.seeds import derive
from kernelbench.compare.session_samples import SessionSamples, block_samples
from kernelbench.executors.targets import Target
from kernelbench.measure import speed_of_light
from kernelbench.measure.results import TimedBlock, error_of
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Lineage, Step
from kernelbench.project.source_files import sources_of
from kernelbench.records import calibration_record
from kernelbench.records.metrics import Metric, is_time
from kernelbench.records.run_record import UNJUDGED, Environment
from kernelbench.stats.defaults import TICK_US
from kernelbench.stats.estimate import Estimate, estimate_change
from kernelbench.worker.jobs import Arm, CompareJob, Timing
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import (
    ArmChecked,
    ArmFailed,
    ArmName,
    BlockTimed,
    EnvironmentRead,
    JobFailed,
    Message,
    MetricMeasured,
    PhaseBegins,
    TimingFailed,
    WorkCounted,
)
from kernelbench.worker.worker_handle import WorkerHandle

#: Reps of one arm per block at full size; each quad has two of each arm.
_QUADS_PER_BLOCK = 10
_BLOCKS = 25
#: Sessions that are prepared side by side on a GPU; each has its own inputs in the device's memory.
PREPARED_TOGETHER = 3
#: A host clock has no coarse tick, nor has what is no time; in the metric's unit.
_FINE_TICK = 0.001


class _NotPrepared(Exception):
    """The machine gave way while several sessions were prepared."""


class ArmFailure(IncorrectError):
    """An arm of a comparison is wrong, hung or faulted.

    Attributes:
        arm: ``base`` or ``cand``; None if the worker failed for both.
    """

    def __init__(self, message: str, arm: str | None = None) -> None:
        super().__init__(message)
        self.arm = arm


def protocol_size(reps: int, on_gpu: bool) -> tuple[int, int]:
    """Blocks and quads for ``reps`` repetitions an arm: 25 × 10 for 500.

    On a CPU a block is one quad, so that a time budget can end the series after any of them.
    """
    quads = min(_QUADS_PER_BLOCK, max(1, reps // (2 * _BLOCKS))) if on_gpu else 1
    return max(2, -(-reps // (2 * quads))), quads


def prepared_together(target: Target) -> int:
    """How many sessions are prepared side by side: on a CPU they would share its cores."""
    return PREPARED_TOGETHER if target.gpu is not None else 1


@dataclass
class Comparer:
    """Collects interleaved samples of two arms; a context manager: sessions take time to end."""

    launcher: Launcher
    base: Step
    cand: Step
    lineage: Lineage
    target: Target
    classes: tuple[str, ...]
    timing: Timing
    seed: int
    call_limit_s: float
    on_progress: Callable[[str], None] = lambda _text: None
    environment: Environment | None = None  #: The machine, as the first worker found it.
    _ending: list[WorkerHandle] = field(default_factory=list, init=False)

    def __enter__(self) -> Comparer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def collect(self, collected: SessionSamples, sessions: int) -> None:
        """Add ``sessions`` sessions of a shape; the first one checks both arms before it times.

        Raises:
            ArmFailure: If an arm is wrong, hangs, faults, or is faster than its device allows.
        """
        shape = collected.shape
        problem = load_problem(self.lineage)
        for step in (self.base, self.cand):
            # Here, and not in the worker: what this machine lacks is no fault of the step.
            self.target.executor.prepare(step, problem, self.target)
        together = prepared_together(self.target)
        for first in range(0, sessions, together):
            group = range(first, min(first + together, sessions))
            try:
                self._sessions(collected, group, sessions)
            except _NotPrepared:
                # Perhaps there is not memory for all of them.
                for session in group:
                    self._sessions(collected, range(session, session + 1), sessions)
        if self.environment is not None:
            arms: tuple[tuple[Step, ArmName], ...] = ((self.base, "base"), (self.cand, "cand"))
            for step, arm in arms:
                fault = impossible(collected, arm, self.environment.device, self.timing)
                if fault:
                    raise ArmFailure(f"{step.name} on shape {shape.name} is wrong: {fault}", arm)

    def _sessions(self, collected: SessionSamples, group: range, of: int) -> None:
        """Prepare sessions side by side, each in a process of its own, and time them in turn."""
        began = time.monotonic()
        self.close()
        running: list[WorkerHandle] = []
        try:
            for index, session in enumerate(group):
                running.append(self.launcher.start(self._job(collected, session, index, group)))
            # What the verdicts take half a second to import, while nothing is timed.
            importlib.import_module("scipy.stats")
            for session, worker in zip(group, running, strict=True):
                for message in worker.until_prepared():
                    self._say(message, collected, session, of)
                    gave_way = isinstance(message, JobFailed) and message.status == "machine"
                    if gave_way and len(running) > 1:
                        raise _NotPrepared
                    self._take(collected, message)
            for session, worker in zip(group, running, strict=True):
                worker.go()
                self._timed(collected, worker, session, of)
                collected.session_s.append(time.monotonic() - began)
                began = time.monotonic()
            self._ending, running = running, []
        finally:
            for worker in (*running, *self._ending):
                worker.release()
            for worker in running:
                worker.close()

    def close(self) -> None:
        """Wait for the sessions that were timed last: a GPU takes some time to end them."""
        ending, self._ending = self._ending, []
        for worker in ending:
            worker.close()

    def _job(self, collected: SessionSamples, session: int, index: int, group: range) -> CompareJob:
        blocks, quads = protocol_size(self.timing.reps, self.target.gpu is not None)
        return CompareJob(
            base=Arm(self.base),
            cand=Arm(self.cand),
            lineage=self.lineage,
            shape=collected.shape,
            classes=self.classes,
            target=self.target,
            seed=derive(self.seed, collected.shape.name, session),
            timing=self.timing,
            blocks=blocks,
            quads=quads,
            check=0 in group,
            share=(index, len(group)),
            call_limit_s=self.call_limit_s,
            own_stream=True,
            gated=True,
        )

    def _say(self, message: Message, collected: SessionSamples, session: int, of: int) -> None:
        if isinstance(message, PhaseBegins):
            name = collected.shape.name
            self.on_progress(f"{name} session {session + 1}/{of}: {message.name}")

    def _timed(
        self, collected: SessionSamples, worker: WorkerHandle, session: int, of: int
    ) -> None:
        """Take one session's times."""
        shape = collected.shape
        found: dict[Metric, list[TimedBlock]] = {}
        for message in worker.messages():
            self._say(message, collected, session, of)
            if isinstance(message, BlockTimed):
                found.setdefault(message.metric, []).append(message.block)
            else:
                self._take(collected, message)
        ending = worker.ending
        if ending is None or ending.kind != "done":
            reason = ending.reason if ending else "the worker left no word"
            if self.environment is None:
                raise EnvironmentProblem(f"the worker failed before it reached a step: {reason}")
            if ending is not None and ending.status in UNJUDGED:
                raise error_of(ending.status, f"{reason} (shape {shape.name})")
            raise self._failure_of_both(shape, reason)
        for metric, of_metric in found.items():
            samples = block_samples(of_metric, shape.name)
            blocks_json = [block.to_json(metric) for block in of_metric]
            collected.raw.append({"session": session, "metric": metric, "blocks": blocks_json})
            collected.sessions.setdefault(metric, []).append(samples)
            clocks = [block.sm_mhz for block in of_metric if block.sm_mhz]
            collected.clocks.setdefault(metric, []).extend(clocks)

    def _take(self, collected: SessionSamples, message: Message) -> None:
        shape = collected.shape
        if isinstance(message, EnvironmentRead):
            self.environment = self.environment or message.environment
        elif isinstance(message, ArmChecked):
            step = self.base if message.arm == "base" else self.cand
            collected.remarks += [f"{step.name} {message.inputs}: {note}" for note in message.notes]
        elif isinstance(message, WorkCounted):
            collected.work = message.work
        elif isinstance(message, MetricMeasured) and message.method == "none":
            said = "; ".join(message.notes)
            raise self._failure_of_both(shape, f"{said}; compare call times (--metric call)")
        elif isinstance(message, MetricMeasured):
            collected.methods[message.metric] = message.method
            collected.notes.setdefault(message.metric, []).extend(message.notes)
            collected.busy_s += message.busy_s
        elif isinstance(message, JobFailed):
            raise message.as_error()
        elif isinstance(message, ArmFailed | TimingFailed) and message.status in UNJUDGED:
            raise error_of(message.status, message.reason)
        elif isinstance(message, ArmFailed):
            step = self.base if message.arm == "base" else self.cand
            raise ArmFailure(
                f"{step.name} on shape {shape.name} is {message.status}: {message.reason}",
                message.arm,
            )
        elif isinstance(message, TimingFailed):
            raise self._failure_of_both(shape, f"{message.status}: {message.reason}")

    def _failure_of_both(self, shape: Any, reason: str) -> ArmFailure:
        return ArmFailure(f"{self.base.name} vs {self.cand.name} on shape {shape.name}: {reason}")


def impossible(collected: SessionSamples, arm: ArmName, device: str, timing: Timing) -> str:
    """Why an arm (``base`` or ``cand``) is faster than any right kernel; empty if it is not.

    Args:
        collected: The samples of a shape.
        arm: ``base`` or ``cand``.
        device: Name of the GPU or CPU.
        timing: How they were timed.
    """
    ceilings = speed_of_light.datasheet(device)
    if ceilings is None or collected.work is None or not collected.work.bytes_total:
        return ""
    # Of a batch only the first launch is cold.
    l2 = timing.l2 if timing.batch == 1 else "warm"
    floor = speed_of_light.speed_of_light(collected.work, ceilings, l2)
    for metric in filter(is_time, collected.sessions):
        median = collected.median_us(metric, arm)
        if speed_of_light.below_floor(median, floor):
            return (
                f"{metric} time {median:.2f} µs, possible are {floor.impossible_us:.2f} µs or more"
            )
    return ""


@dataclass(frozen=True)
class VerdictRules:
    """How samples are judged."""

    results: Path  #: Folder of the device's calibrations.
    timing: Timing  #: How the samples were timed.
    alpha: float  #: Level of the tests.
    margin: float  #: Change below which nobody cares, as a fraction.
    seed: int  #: Of the permutations.
    device: str = ""  #: Name of the GPU or CPU.


def estimate(collected: SessionSamples, metric: str, rules: VerdictRules) -> Estimate:
    """Infer one metric of one shape, with the device's calibrated session spread if any.

    Args:
        collected: The samples of a shape.
        metric: What decides.
        rules: How they are judged.
    """
    timing = rules.timing
    spread = calibration_record.load_session_sd(
        rules.results, rules.device, collected.shape.name, metric, timing.l2
    )
    on_host = collected.methods.get(metric) == "wall"
    fine = on_host or not is_time(metric)
    tick = _FINE_TICK if fine else TICK_US / (timing.batch if metric == "device" else 1)
    found = estimate_change(
        collected.sessions[metric],
        margin=rules.margin,
        alpha=rules.alpha,
        session_sd=spread.sd if spread else None,
        session_df=spread.sessions - 1 if spread else None,
        session_total=spread.total_variance if spread else None,
        tick_us=tick,
        seed=rules.seed % 2**32,
    )
    if spread and found.session_sd is not None:
        found = replace(found, notes=(*found.notes, f"session spread from {spread.source}"))
    return found


def identical(base: Step, cand: Step) -> bool:
    """Whether two steps are the same code: sources and configuration, the Python glue included.

    A Python step's configuration only describes it, and a submission's file may have any name.
    """
    if not (base.built or cand.built):
        return _python_code(base) == _python_code(cand)
    return base.kind == cand.kind and source_sha(base) == source_sha(cand)


def _python_code(step: Step) -> dict[str, bytes]:
    files = sources_of(step)
    if step.submission and step.entry is not None:
        near = _with_neighbours(step.entry)
        files = {file.relative_to(step.path).as_posix(): file for file in near}
    return {
        "submission.py" if file == step.entry else name: file.read_bytes()
        for name, file in files.items()
    }


def _with_neighbours(entry: Path) -> set[Path]:
    """A submission's file and the modules beside it that it imports, directly or not."""
    found, left = {entry}, [entry]
    while left:
        names: set[str] = set()
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.walk(ast.parse(left.pop().read_bytes())):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    names.add(node.module.split(".")[0])
        for name in names:
            near = {entry.parent / f"{name}.py", *(entry.parent / name).rglob("*.py")}
            left += [file for file in near - found if file.is_file()]
            found |= {file for file in near if file.is_file()}
    return found
