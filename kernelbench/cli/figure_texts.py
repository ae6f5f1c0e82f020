"""How times and errors look on the terminal."""

from __future__ import annotations

from kernelbench.records.device_table import TableTime
from kernelbench.records.run_record import TimeStats

_METHODS = {
    "events": "",
    "graph": "",
    "wall": " wall",
    "competition": " ×15",
    "profiler": " prof",
    "incomplete": " part",
}


def time_text(stats: TimeStats | TableTime | None) -> str:
    """A median with a unit that suits it and, where it is not the usual one, its method."""
    if stats is None:
        return "–"
    return microseconds(stats.median) + _METHODS.get(stats.method, f" {stats.method}")


def error_text(*errors: float | None) -> str:
    """The largest of the errors that there are."""
    known = [error for error in errors if error is not None]
    return f"{max(known):.2g}" if known else "–"


def microseconds(value: float) -> str:
    """``41.20 µs``, ``3.21 ms`` or ``2.913 s``."""
    if value < 1000:
        return f"{value:.2f} µs"
    if value < 1e6:
        return f"{value / 1e3:.2f} ms"
    return f"{value / 1e6:.3f} s"
