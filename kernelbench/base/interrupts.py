"""Ctrl-C at a moment of our choosing: work that must not be cut in two is finished first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold SIGINT back until the block has ended; then it is raised, for whoever handles it.

    For short work that loses something when it is interrupted, such as a first import of numpy: a
    module in C that was half imported cannot be imported again in the same process. Outside the
    main thread, which alone is interrupted, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        # None: a handler that was not installed from Python, which cannot be put back.
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if came:
            signal.raise_signal(signal.SIGINT)
