"""Collecting the samples of ``kernelbench calibrate``; ``stats/calibration.py`` judges them.

Three series, every attempt of which is kept: A/A comparisons spread over fresh processes, planted
slowdowns (real extra device work), and the negative control (A…A B…B in sequence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.base.seeds import derive
from kernelbench.compare.comparer import ArmFailure, prepared_together, protocol_size
from kernelbench.compare.session_samples import block_samples
from kernelbench.executors.targets import Target
from kernelbench.measure.results import TimedBlock, error_of
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.run_record import UNJUDGED, Environment
from kernelbench.stats.blocks import Floats
from kernelbench.stats.calibration import AASample, PlantedSample
from kernelbench.worker.jobs import Arm, CompareJob, Timing
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import (
    ArmFailed,
    BlockTimed,
    DelayInjected,
    EnvironmentRead,
    JobFailed,
    Message,
    MetricMeasured,
    PhaseBegins,
    TimingFailed,
)
from kernelbench.worker.worker_handle import WorkerHandle


@dataclass
class Collector:
    """Runs calibration jobs for one step and shape and keeps all that they report."""

    launcher: Launcher
    step: Step
    lineage: Lineage
    shape: Any
    input_class: str
    target: Target
    timing: Timing
    seed: int
    call_limit_s: float
    on_progress: Callable[[str], None] = lambda _text: None
    environment: Environment | None = None
    #: ``a_a``, ``planted``, ``sequential``: What the three series gave.
    a_a: list[AASample] = field(default_factory=list)
    planted: list[PlantedSample] = field(default_factory=list)
    sequential: list[tuple[Floats, Floats]] = field(default_factory=list)
    failure: BaseException | None = None  #: What ended them early, if something did.
    #: Every block of every attempt, in order, for the samples file.
    raw: list[dict[str, Any]] = field(default_factory=list)
    #: One line per worker: series, session, seed, how it ended.
    attempts: list[dict[str, Any]] = field(default_factory=list)

    def measure_a_a(self, sessions: int, per_session: int) -> None:
        """Add A/A comparisons: ``per_session`` in each of ``sessions`` processes."""
        jobs = [self._job("aa", i, repeats=per_session, check=i == 0) for i in range(sessions)]
        for session, blocks, _ in self._rounds("aa", jobs):
            self.a_a.append(AASample(session, block_samples(blocks, self.shape.name)))

    def measure_planted(self, levels: dict[float, int], base_us: float, target: float) -> None:
        """Add planted slowdowns: ``levels`` maps a fraction to its number of trials.

        Trials are spread over fresh processes, ten each, levels shuffled.

        Args:
            levels: Number of trials by slowdown, a fraction.
            base_us: The step's time in microseconds, of which the delay is a fraction.
            target: The level that has to be found.
        """
        wanted = [level for level, trials in levels.items() for _ in range(trials)]
        np.random.default_rng(derive(self.seed, "planted order")).shuffle(wanted)
        chosen = [wanted[start : start + 10] for start in range(0, len(wanted), 10)]
        jobs = [
            self._job("planted", i, plants_us=tuple(level * base_us for level in each))
            for i, each in enumerate(chosen)
        ]
        left = [[*each] for each in chosen]
        for session, blocks, planted_us in self._rounds("planted", jobs):
            samples = block_samples(blocks, self.shape.name)
            median = float(np.median(samples.base))
            level = left[session].pop(0)
            planted = planted_us / median
            self.planted.append(PlantedSample(level, planted, samples, level == target))

    def measure_sequential(self, sessions: int, per_session: int) -> None:
        """Add pairs of the negative control: all of one arm, then all of the other."""
        jobs = [
            self._job("sequential", i, repeats=per_session, sequential=True)
            for i in range(sessions)
        ]
        for _, blocks, _ in self._rounds("sequential", jobs):
            first, second = (np.array(block.values) for block in blocks)
            self.sequential.append((first, second))

    def _job(
        self,
        series: str,
        session: int,
        *,
        repeats: int = 1,
        check: bool = False,
        sequential: bool = False,
        plants_us: tuple[float, ...] = (),
    ) -> CompareJob:
        blocks, quads = protocol_size(self.timing.reps, self.target.gpu is not None)
        plant = 0.0 if plants_us else None
        return CompareJob(
            base=Arm(self.step, plant), cand=Arm(self.step, plant), lineage=self.lineage,
            shape=self.shape, classes=(self.input_class,), target=self.target,
            seed=derive(self.seed, series, session), timing=self.timing, blocks=blocks, quads=quads,
            check=check, call_limit_s=self.call_limit_s, own_stream=True, repeats=repeats,
            sequential=sequential, plants_us=plants_us, gated=True,
        )  # fmt: skip

    def _rounds(
        self, series: str, jobs: Sequence[CompareJob]
    ) -> Iterator[tuple[int, list[TimedBlock], float]]:
        """Run workers, prepared side by side as those of ``ab`` are, and timed one after another.

        Yields:
            The session, the blocks of one round, and the delay that it was found to have (µs).
        """
        together = prepared_together(self.target)
        for first in range(0, len(jobs), together):
            group = [*enumerate(jobs)][first : first + together]
            running: list[WorkerHandle] = []
            try:
                for _, job in group:
                    running.append(self.launcher.start(job))
                attempts: list[dict[str, Any]] = [
                    {"series": series, "session": at, "seed": job.seed, "rounds": 0, "ending": ""}
                    for at, job in group
                ]
                self.attempts += attempts
                for worker, attempt in zip(running, attempts, strict=True):
                    for message in worker.until_prepared():
                        self._take(message, attempt)
                for (session, _), worker, attempt in zip(group, running, attempts, strict=True):
                    worker.go()
                    for blocks, planted_us in self._timed(worker, attempt):
                        yield session, blocks, planted_us
            finally:
                for worker in running:
                    worker.release()
                for worker in running:
                    worker.close()

    def _timed(
        self, worker: WorkerHandle, attempt: dict[str, Any]
    ) -> Iterator[tuple[list[TimedBlock], float]]:
        """The rounds of one worker that was told to go on."""
        current: list[TimedBlock] = []
        planted_us = 0.0
        for message in worker.messages():
            if isinstance(message, DelayInjected):
                planted_us = message.found_us
            elif isinstance(message, BlockTimed):
                current.append(message.block)
            elif isinstance(message, MetricMeasured):
                self.raw.append(
                    {
                        "series": attempt["series"],
                        "session": attempt["session"],
                        "round": message.round,
                        "method": message.method,
                        "blocks": [block.to_json(message.metric) for block in current],
                    }
                )
                attempt["rounds"] += 1
                yield current, planted_us
                current, planted_us = [], 0.0
            else:
                self._take(message, attempt)
        ending = worker.ending
        attempt["ending"] = ending.kind if ending else ""
        if ending is None or ending.kind != "done":
            raise EnvironmentProblem(
                f"calibration worker failed: {ending.reason if ending else 'no word'}",
                "what was measured so far is kept",
            )

    def _take(self, message: Message, attempt: dict[str, Any]) -> None:
        """What is no time; raises for what ends the calibration."""
        if isinstance(message, EnvironmentRead) and self.environment is None:
            self.environment = message.environment
        elif isinstance(message, PhaseBegins):
            session = attempt["session"] + 1
            self.on_progress(f"{attempt['series']} session {session}: {message.name}")
        elif isinstance(message, JobFailed):
            attempt["ending"] = message.reason
            raise message.as_error()
        elif isinstance(message, ArmFailed | TimingFailed):
            attempt["ending"] = message.reason
            if message.status in UNJUDGED:
                raise error_of(message.status, message.reason)
            raise ArmFailure(f"{self.step.name} on {self.shape.name}: {message.reason}")
