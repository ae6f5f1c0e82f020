"""What the sessions of one shape gave: times by arm, block and session."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.measure.results import TimedBlock
from kernelbench.project.problem import Work
from kernelbench.stats.blocks import BlockSamples, samples_of
from kernelbench.worker.messages import ArmName


@dataclass
class SessionSamples:
    """What the sessions of one shape gave.

    Attributes:
        sessions: Per metric, one :class:`BlockSamples` per session.
        raw: Per session and metric, the blocks as measured.
        methods, notes, clocks: Per metric.
        remarks: What the check of an arm noted, one line each.
        busy_s: Seconds in which something was timed or flushed.
        session_s: Seconds of each session; the first has the preparation of all in its group, too.
    """

    shape: Any
    sessions: dict[str, list[BlockSamples]] = field(default_factory=dict)
    raw: list[dict[str, Any]] = field(default_factory=list)
    methods: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    clocks: dict[str, list[float]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    work: Work | None = None
    busy_s: float = 0.0
    session_s: list[float] = field(default_factory=list)

    def median_us(self, metric: str, arm: ArmName) -> float:
        """Median time of an arm over all sessions, microseconds."""
        sessions = self.sessions[metric]
        return float(np.median(np.concatenate([getattr(s, arm).ravel() for s in sessions])))

    def sm_mhz(self, metric: str) -> float | None:
        """Median SM clock while a metric was timed."""
        values = self.clocks.get(metric)
        return statistics.median(values) if values else None


def block_samples(blocks: Sequence[TimedBlock], where: str) -> BlockSamples:
    """The arrays of one session's whole blocks; EnvironmentProblem if they are fewer than two."""
    samples = samples_of((block.arm, block.values, bool(block.throttle)) for block in blocks)
    if samples is None:
        raise EnvironmentProblem(
            f"shape {where}: the time budget allowed fewer than two blocks of ABBA",
            "raise --budget, or take a smaller shape",
        )
    return samples
