"""Collecting the samples of ``kernelbench calibrate``; ``stats/calibration.py`` judges them.

Three series, every attempt of which is kept: A/A comparisons spread over fresh processes, planted
slowdowns (real extra device work), and the negative control (A…A B…B in sequence).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.base.seeds import derive
from kernelbench.compare.comparer import ArmFailure, block_samples, protocol_size
from kernelbench.executors.targets import Target
from kernelbench.measure.outcomes import TimedBlock, error_of
from kernelbench.project.registry import Lineage, Step
from kernelbench.records.run_record import UNJUDGED, Environment
from kernelbench.stats.blocks import Floats
from kernelbench.stats.calibration import AASample, PlantedSample
from kernelbench.worker.jobs import Arm, CompareJob, Timing
from kernelbench.worker.launcher import Launcher
from kernelbench.worker.messages import (
    ArmFailed,
    BlockTimed,
    DelayPlanted,
    EnvironmentRead,
    JobFailed,
    MetricMeasured,
    PhaseBegins,
    TimingFailed,
)


@dataclass
class Collector:
    """Runs calibration jobs for one step and shape and keeps all that they report.

    Attributes:
        raw: Every block of every attempt, in order, for the samples file.
        attempts: One line per worker: series, session, seed, how it ended.
    """

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
    raw: list[dict[str, Any]] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def _metric(self) -> str:
        return self.timing.metrics[0]

    def a_a(self, found: list[AASample], sessions: int, per_session: int) -> None:
        """Add A/A comparisons to ``found``: ``per_session`` in each of ``sessions`` processes."""
        for session in range(sessions):
            for blocks in self._run("aa", session, repeats=per_session, check=session == 0):
                found.append(AASample(session, block_samples(blocks, self.shape.name)))

    def planted(
        self, found: list[PlantedSample], levels: dict[float, int], base_us: float, target: float
    ) -> None:
        """Add planted slowdowns to ``found``: ``levels`` maps a fraction to its number of trials.

        Trials are spread over fresh processes, ten each, levels shuffled.
        """
        wanted = [level for level, trials in levels.items() for _ in range(trials)]
        np.random.default_rng(derive(self.seed, "planted order")).shuffle(wanted)
        for session, start in enumerate(range(0, len(wanted), 10)):
            chosen = wanted[start : start + 10]
            plants = tuple(level * base_us for level in chosen)
            planted_us: dict[int, float] = {}
            rounds = self._run("planted", session, plants_us=plants, planted_us=planted_us)
            for index, blocks in enumerate(rounds):
                samples = block_samples(blocks, self.shape.name)
                median = float(np.median(samples.base))
                level = chosen[index]
                found.append(
                    PlantedSample(level, planted_us[index] / median, samples, level == target)
                )

    def sequential(
        self, found: list[tuple[Floats, Floats]], sessions: int, per_session: int
    ) -> None:
        """Add the negative control to ``found``: all of one arm, then all of the other."""
        for session in range(sessions):
            for blocks in self._run("sequential", session, repeats=per_session, sequential=True):
                first, second = (np.array(block.time_us) for block in blocks)
                found.append((first, second))

    def _run(
        self,
        series: str,
        session: int,
        *,
        repeats: int = 1,
        check: bool = False,
        sequential: bool = False,
        plants_us: tuple[float, ...] = (),
        planted_us: dict[int, float] | None = None,
    ) -> Iterator[list[TimedBlock]]:
        """Run one worker and yield the blocks of each of its rounds."""
        blocks, quads = protocol_size(self.timing.reps, self.target.gpu is not None)
        plant = 0.0 if plants_us else None
        seed = derive(self.seed, series, session)
        job = CompareJob(
            base=Arm(self.step, plant),
            cand=Arm(self.step, plant),
            lineage=self.lineage,
            shape=self.shape,
            classes=(self.input_class,),
            target=self.target,
            seed=seed,
            timing=self.timing,
            blocks=blocks,
            quads=quads,
            check=check,
            call_limit_s=self.call_limit_s,
            own_stream=True,
            repeats=repeats,
            sequential=sequential,
            plants_us=plants_us,
        )
        current: list[TimedBlock] = []
        attempt: dict[str, Any] = {
            "series": series,
            "session": session,
            "seed": seed,
            "rounds": 0,
            "ending": "",
        }
        self.attempts.append(attempt)
        for message in self.launcher.run(job):
            if isinstance(message, EnvironmentRead) and self.environment is None:
                self.environment = message.environment
            elif isinstance(message, PhaseBegins):
                self.on_progress(f"{series} session {session + 1}: {message.name}")
            elif isinstance(message, DelayPlanted) and planted_us is not None:
                planted_us[message.round] = message.found_us
            elif isinstance(message, BlockTimed):
                current.append(message.block)
            elif isinstance(message, MetricMeasured):
                self.raw.append(
                    {
                        "series": series,
                        "session": session,
                        "round": message.round,
                        "method": message.method,
                        "blocks": [block.to_json() for block in current],
                    }
                )
                attempt["rounds"] += 1
                yield current
                current = []
            elif isinstance(message, JobFailed):
                attempt["ending"] = message.reason
                raise message.as_error()
            elif isinstance(message, ArmFailed | TimingFailed) and message.status in UNJUDGED:
                attempt["ending"] = message.reason
                raise error_of(message.status, message.reason)
            elif isinstance(message, ArmFailed | TimingFailed):
                attempt["ending"] = message.reason
                raise ArmFailure(f"{self.step.name} on {self.shape.name}: {message.reason}", None)
        ending = self.launcher.ending
        attempt["ending"] = ending.kind if ending else ""
        if ending is None or ending.kind != "done":
            raise EnvironmentProblem(
                f"calibration worker failed: {ending.reason if ending else 'no word'}",
                "what was measured so far is kept",
            )
