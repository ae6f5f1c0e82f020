"""The metrics of a step, and the one form that a measured value of one has, from sample to table.

A metric is one entry of :data:`METRICS`. Records, tables, comparisons and views go through that map
and through the maps of :class:`Summary` that rows have, so that they need not know which there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from kernelbench.base.schema import Columns

#: Device time is the GPU's, call time the caller's, time inside that between other kernels of a
#: graph; energy is that of the board, per call.
Metric = Literal["device", "call", "inside", "energy"]


@dataclass(frozen=True)
class MetricKind:
    """What a metric is. Of every metric less is better."""

    unit: str  #: As JSON and CSV name it (``us``).
    symbol: str  #: As people read it (``µs``).
    title: str  #: What it is called in a sentence.
    method: str  #: How it is usually measured on a GPU; tables leave that word out.
    source: str  #: What it is read from.


#: In the order in which they are shown; the first that a row has stands for it.
METRICS: dict[Metric, MetricKind] = {
    "device": MetricKind("us", "µs", "device time", "graph", "CUDA events around graph replays"),
    "call": MetricKind("us", "µs", "call time", "events", "CUDA events around the Python call"),
    "inside": MetricKind("us", "µs", "time inside a graph", "graph", "the same with other kernels"),
    "energy": MetricKind("mj", "mJ", "energy", "nvml", "NVML's counter over back-to-back calls"),
}

#: The times that stand for a row.
TIMES: tuple[Metric, ...] = ("device", "call")


def is_time(metric: str) -> bool:
    """Whether it is a time in microseconds, which a speed of light can be held against."""
    return metric in TIMES


def sample_key(metric: str) -> str:
    """What files of raw samples call a metric's values."""
    unit = next((kind.unit for name, kind in METRICS.items() if name == metric), "us")
    return f"t_{unit}"


#: A map by metric in JSON: ``device_us``, ``call_us``, null where the row has none.
COLUMNS = Columns(
    {name: f"{name}_{METRICS[name].unit}" for name in sorted(METRICS)}, required=TIMES
)


@dataclass(frozen=True)
class Summary:
    """Order statistics of one step's repetitions, in the unit of their metric.

    Attributes:
        mean, min, std: None in a table, which does not keep them.
        reps: Number of timed repetitions.
        method: ``events`` (CUDA events around the Python call), ``competition`` (15 calls in one
            event pair, per call), ``graph`` (CUDA-graph replay between events), ``profiler`` (sum
            of kernel durations), ``wall`` (host clock, CPU only).
    """

    median: float
    mean: float | None
    min: float | None
    p05: float
    p95: float
    std: float | None
    reps: int
    method: str

    @property
    def spread(self) -> float:
        """From the 5th to the 95th percentile, as a fraction of the median."""
        return (self.p95 - self.p05) / self.median if self.median else 0.0


#: What was measured of a row.
Metrics = Mapping[Metric, Summary]


class WithMetrics:
    """A row with metrics."""

    metrics: Metrics

    @property
    def timed(self) -> tuple[Metric, Summary] | None:
        """The time that stands for it: the device's, or a call's where that is all there is."""
        found = ((name, self.metrics[name]) for name in TIMES if name in self.metrics)
        return next(found, None)

    @property
    def time(self) -> Summary | None:
        """That time, of whichever metric."""
        return self.timed and self.timed[1]


def shown(rows: Iterable[WithMetrics]) -> list[Metric]:
    """The metrics that a table of rows has columns of: times, and what else any row has."""
    found = {name for row in rows for name in row.metrics}
    return [name for name in METRICS if name in TIMES or name in found]


def summarize(samples: Sequence[float], method: str) -> Summary:
    """Order statistics of raw samples, none of which is dropped; ValueError without samples."""
    import numpy as np

    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples to summarize")
    low, median, high = np.percentile(values, [5, 50, 95])
    return Summary(
        median=float(median),
        mean=float(values.mean()),
        min=float(values.min()),
        p05=float(low),
        p95=float(high),
        std=float(values.std(ddof=1)) if values.size > 1 else 0.0,
        reps=int(values.size),
        method=method,
    )
