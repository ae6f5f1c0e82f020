"""Becoming the process that keeps workers ready for a project's commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from kernelbench.worker import served


def keep_workers(
    idle_s: float, on_listening: Callable[[], None], beside: Callable[[], NoReturn]
) -> NoReturn:
    """Serve until no command has come for so many seconds.

    The same process goes on, so that it is what a shell waits for and Ctrl-C reaches.

    Args:
        on_listening: Called when commands find it.
        beside: What another process does meanwhile; it ends with this one.

    Raises:
        UsageError: If another process serves the project already.
    """
    listening = served.listen()
    on_listening()
    if not os.fork():
        listening.close()
        beside()
    listening.set_inheritable(True)
    words = [sys.executable, "-m", "kernelbench.worker.child", "--serve"]
    os.execv(sys.executable, [*words, str(listening.fileno()), str(idle_s)])
