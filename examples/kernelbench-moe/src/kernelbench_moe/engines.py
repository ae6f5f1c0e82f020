"""What the plug-ins of both engines share."""

from __future__ import annotations

import functools
import logging
import os

#: Set to 0, the plug-ins leave the engines as they are.
SWITCH = "KERNELBENCH_MOE"
_logger = logging.getLogger("kernelbench_moe")


def enabled() -> bool:
    """Whether the environment lets the plug-ins work; they do unless ``KERNELBENCH_MOE`` is 0."""
    return os.environ.get(SWITCH, "1") != "0"


@functools.cache
def log_once(level: int, text: str) -> None:
    """Log a line the first time that a process has it, at a level of :mod:`logging`."""
    _logger.log(level, text)


def fell_back(engine: str, reason: str) -> None:
    """Say, once for each reason, that the engine computes a layer or a call itself."""
    log_once(logging.WARNING, f"kernelbench-moe: {engine} keeps its own path: {reason}")
