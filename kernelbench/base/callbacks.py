"""What callers are told through while something takes its time."""

from __future__ import annotations

from collections.abc import Callable

#: Told what is going on, in one line.
OnProgress = Callable[[str], None]
#: Told what a user must know, in one line.
OnWarning = Callable[[str], None]
