"""A clock that counts: on ``PYTHONPATH`` of a command whose verdict must not depend on the machine.

``time.perf_counter`` advances by about 100 µs a look, and by what is slept through ``time.sleep``:
a call that sleeps takes longer by that, whatever else runs here. Commands import this before
anything else of theirs, so that to them it is the clock. One counter serves a process and all that
it forks: a judge's clock goes on while a submission is called.
"""

from __future__ import annotations

import mmap
import random
import struct
import time

_TICK_S = 1e-4
_SPREAD_S = 1e-5

_random = random.Random(1)
_sleep = time.sleep
_shared = mmap.mmap(-1, 8)
_seconds = struct.Struct("d")


def _advance(seconds: float) -> float:
    now = float(_seconds.unpack_from(_shared)[0]) + seconds
    _seconds.pack_into(_shared, 0, now)
    return now


def _count() -> float:
    return _advance(_TICK_S + _random.uniform(-_SPREAD_S, _SPREAD_S))


def _sleep_and_count(seconds: float) -> None:
    _advance(seconds)
    _sleep(seconds)


time.perf_counter = _count
time.sleep = _sleep_and_count
