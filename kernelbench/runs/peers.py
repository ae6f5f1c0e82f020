"""How the steps of a run stand against the best of its peers, and against the read floor.

Peers are what others offer for a problem: a lineage with ``peers_of`` in its ``lineage.toml``,
whose steps have no parents. They are checked and timed as every step is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.project.model import Lineage
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import Result


@dataclass(frozen=True)
class Standing:
    """One step on one shape, all times being medians of the same run in microseconds."""

    step: str
    shape: str
    metric: str  #: ``device`` or ``call``.
    us: float  #: Its time.
    best_peer: str = ""  #: The fastest peer that is right; empty if none was timed.
    best_peer_us: float | None = None  #: That peer's time.
    #: Time of a read-only stream over the bytes that the step must read, measured after the step;
    #: None where it was not.
    floor_us: float | None = None

    @property
    def vs_best_peer(self) -> float | None:
        """The best peer's time over the step's: above 1 the step is ahead of it."""
        return None if self.best_peer_us is None else self.best_peer_us / self.us

    @property
    def of_floor(self) -> float | None:
        """The floor's time over the step's."""
        return None if self.floor_us is None else self.floor_us / self.us


def standings(rows: Sequence[Result], lineages: Sequence[Lineage]) -> list[Standing]:
    """Every right and timed step of a run, in order; nothing if no peer was among the rows.

    Device times are compared; where no row has one (on a CPU), call times.
    """
    peers = {lineage.name for lineage in lineages if lineage.peers_of}
    if not any(row.lineage in peers for row in rows):
        return []
    metric: Metric = "device" if any("device" in row.metrics for row in rows) else "call"
    times = [(row, row.metrics.get(metric)) for row in rows]
    right = [(row, time.median) for row, time in times if time and row.status == "pass"]
    best: dict[tuple[str, str], tuple[float, str]] = {}
    for row, us in right:
        if row.lineage in peers:
            key = (row.problem, row.shape)
            best[key] = min(best.get(key, (us, row.step)), (us, row.step))
    found = []
    for row, us in right:
        peer_us, peer = best.get((row.problem, row.shape), (None, ""))
        floor_us = row.floor.us if row.floor and metric == "device" else None
        found.append(Standing(row.step, row.shape, metric, us, peer, peer_us, floor_us))
    return found
