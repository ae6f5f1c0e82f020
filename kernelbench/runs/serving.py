"""Becoming the process that keeps workers ready for a project's commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import NoReturn

from kernelbench.worker import served


def keep_workers(idle_s: float, on_listening: Callable[[], None]) -> NoReturn:
    """Serve until no command has come for so many seconds.

    The same process goes on, so that it is what a shell waits for and Ctrl-C reaches.

    Args:
        on_listening: Called when commands find it.

    Raises:
        UsageError: If another process serves the project already.
    """
    listening = served.listen()
    listening.set_inheritable(True)
    on_listening()
    words = [sys.executable, "-m", "kernelbench.worker.child", "--serve"]
    os.execv(sys.executable, [*words, str(listening.fileno()), str(idle_s)])
