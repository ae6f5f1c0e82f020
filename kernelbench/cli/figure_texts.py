"""How times and errors look on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelbench.records.metrics import METRICS, Metric, Summary, is_time

#: What is said of how something was measured; of the usual method of its metric nothing.
_METHODS = {kind.method: "" for kind in METRICS.values()} | {
    "wall": " wall",
    "competition": " ×15",
    "profiler": " prof",
    "incomplete": " part",
}


@dataclass(frozen=True)
class TimeUnit:
    """The one unit of all times in a table; it stands in the headings."""

    name: str  #: ``µs``, ``ms`` or ``s``.
    us: float  #: How many microseconds it is.

    def text(self, us: float | None) -> str:
        """A time with two decimals; ``–`` if there is none."""
        return "–" if us is None else f"{us / self.us:.2f}"

    def median(self, stats: Summary | None) -> str:
        """A median and, where it is not the usual one, its method."""
        if stats is None:
            return "–"
        return self.text(stats.median) + _METHODS.get(stats.method, f" {stats.method}")

    def spread(self, stats: Summary | None) -> str:
        """From the 5th to the 95th percentile of the repetitions."""
        return "–" if stats is None else f"{self.text(stats.p05)}–{self.text(stats.p95)}"


_UNITS = (TimeUnit("s", 1e6), TimeUnit("ms", 1e3), TimeUnit("µs", 1.0))


def unit_for(times_us: Iterable[float | None]) -> TimeUnit:
    """The largest unit in which none of these times (µs) is below one."""
    least = min((time for time in times_us if time), default=1.0)
    return next((unit for unit in _UNITS if least >= unit.us), _UNITS[-1])


def unit_of(metric: Metric, time: TimeUnit) -> TimeUnit:
    """The unit that a metric is shown in, beside times in ``time``."""
    return time if is_time(metric) else TimeUnit(METRICS[metric].symbol, 1.0)


def error_text(*errors: float | None) -> str:
    """The largest of the errors that there are."""
    known = [error for error in errors if error is not None]
    return f"{max(known):.2g}" if known else "–"
