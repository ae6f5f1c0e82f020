"""How long a campaign will take: from pieces of the same command and steps that were measured."""

from __future__ import annotations

from collections import Counter, defaultdict


class Pace:
    """Seconds of pieces by what they are like, and how many are left; its size is that of the file.

    Attributes:
        left: Pieces to be done, by what they are like.
    """

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._pieces: Counter[str] = Counter()

    def took(self, like: str, seconds: float) -> None:
        """A piece was measured, now or in an earlier sweep."""
        self._seconds[like] += seconds
        self._pieces[like] += 1

    def seconds_left(self, slots: int) -> float | None:
        """Seconds for what is left, by so many at a time; None before anything was measured.

        Pieces of which none was measured are taken to be as all others are on average.
        """
        measured = sum(self._pieces.values())
        if not measured:
            return None
        average = sum(self._seconds.values()) / measured
        work = 0.0
        for like, number in self.left.items():
            known = self._pieces[like]
            work += number * (self._seconds[like] / known if known else average)
        return work / max(slots, 1)


def duration_text(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
