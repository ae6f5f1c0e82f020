"""A clock that counts: on ``PYTHONPATH`` of a command whose verdict must not depend on the machine.

``time.perf_counter`` advances by about 100 µs a look, and by what is slept through ``time.sleep``
in the same process: a call that sleeps takes longer by that, whatever else runs here. Commands
import this before anything else of theirs, so that to them it is the clock.
"""

from __future__ import annotations

import random
import time

_TICK_S = 1e-4
_SPREAD_S = 1e-5

_random = random.Random(1)
_sleep = time.sleep
_now = 0.0


def _count() -> float:
    global _now
    _now += _TICK_S + _random.uniform(-_SPREAD_S, _SPREAD_S)
    return _now


def _sleep_and_count(seconds: float) -> None:
    global _now
    _now += seconds
    _sleep(seconds)


time.perf_counter = _count
time.sleep = _sleep_and_count
