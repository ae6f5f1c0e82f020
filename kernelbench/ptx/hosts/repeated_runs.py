"""A program's main again, with its launches in other schedules: what no check of one launch shows.

Or with the words set back that launches leave changed: whether a program fails for want of that.

A kernel without a race may still compute what depends on an order, as of its CTAs, and the program
knows what is right. A process is forked before ``main`` and waits; each run is a fork of that one.
Its output goes nowhere. Nothing is said of a program whose run cannot be repeated: one that fails
with the very schedules with which it came out right.
"""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from kernelbench.base.child_process import end_with_parent
from kernelbench.ptx.hosts.checked_launches import interleaves

#: Runs in other schedules, and more of them in so many seconds; a run that takes longer than the
#: first and the least limit is ended.
RUNS, MOST_RUNS, _MORE_S = 4, 16, 1.0
#: How a run is made: as the program runs; findings count as a failure, too; and words that launches
#: have left changed are set back, in the memory whose name follows, or in all; no strong store is
#: seen late; with large numbers in new memory, where NaN is no difference for most comparisons;
#: with so many operations done before their calls return; and with so many times the bytes at a
#: site.
AS_IT_IS, CHECKED, SET_BACK, LARGE, AT_ONCE = "as-it-is", "checked", "set-back", "large", "at-once"
SCALED, NOT_LATE = "scaled", "not-late"
#: Or on so many times the SMs, if they are as few as here at most, where findings count, too.
MORE_SMS, SMS_TIMES, FEW_SMS = "more-sms", 4, 4
_SCALES = (4, 8, 2)  # bytes of an element
_SCALES_S = 5.0
_LEAST_LIMIT_S = 5.0
#: CTAs on several threads of this machine come in other orders each time.
_TIMES = 3
#: Exit code of a run that did not come to main's end.
_NO_STATUS = 255


class RepeatedRuns:
    """Runs of one program from before its main.

    Args:
        run: Makes the run in the schedules of these seeds, one for each launch, and then in that
            of the last and those behind it; main's status. Its second argument is how.
    """

    def __init__(self, run: Callable[[Sequence[int], str], int]) -> None:
        self._run = run
        asks, self._ask = os.pipe()
        self._answer, answers = os.pipe()
        program = os.pidfd_open(os.getpid())
        # Not a child of this process: the program may wait for all of its children.
        between = os.fork()
        if not between:
            if os.fork():
                os._exit(0)
            os.close(self._ask)
            os.close(self._answer)
            self._wait_for_runs(asks, answers, program)
        os.waitpid(between, 0)
        for each in (asks, answers, program):
            os.close(each)

    def status(self, seeds: Sequence[int], limit_s: float, how: str = AS_IT_IS) -> int | None:
        """Main's status of a run; None if it did not come to its end."""
        text = json.dumps([max(limit_s, _LEAST_LIMIT_S), how, *seeds])
        os.write(self._ask, len(text).to_bytes(4, "little") + text.encode())
        answer = os.read(self._answer, 1)
        return answer[0] if answer and answer[0] != _NO_STATUS else None

    def end(self) -> None:
        """Let the process go."""
        os.close(self._ask)
        os.close(self._answer)

    def _wait_for_runs(self, asks: int, answers: int, program: int) -> NoReturn:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        while asks in select.select([asks, program], [], [])[0] and (head := os.read(asks, 4)):
            limit, how, *seeds = json.loads(_read(asks, int.from_bytes(head, "little")))
            run = os.fork()
            if not run:
                end_with_parent()
                os._exit(self._status(seeds, how))
            os.write(answers, bytes([_ended(run, limit, program)]))
        os._exit(0)

    def _status(self, seeds: Sequence[int], how: str) -> int:
        try:
            return min(self._run(seeds, how) & 0xFF, _NO_STATUS - 1)
        except BaseException:
            return _NO_STATUS


def _read(file: int, count: int) -> str:
    found = b""
    while len(found) < count and (part := os.read(file, count - len(found))):
        found += part
    return found.decode()


def _ended(process: int, limit_s: float, program: int) -> int:
    """The exit code of a process, which has so many seconds, and no more than the program."""
    end = os.pidfd_open(process)
    try:
        if end not in select.select([end, program], [], [], limit_s)[0]:
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
    finally:
        os.close(end)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else _NO_STATUS


def seed_of_failure(
    runs: RepeatedRuns, kept: Sequence[int], seed: int, began_s: float, known: Mapping[int, float]
) -> int | None:
    """The seed of a run whose main fails; None if none does, or if the program is none to repeat.

    Args:
        runs: Of a program whose main has returned 0.
        kept: The seed of each of its launches, of the schedule that was the last.
        seed: Of the first schedule; began_s: when it began, by ``time.monotonic``.
        known: The seconds of runs that would do again what the first has done, by seed.
    """
    began = time.monotonic()
    limit_s = began - began_s
    more_s, can_be_repeated = _MORE_S, False
    seeds = sorted(range(seed, seed + MOST_RUNS), key=lambda each: each not in known)
    for made, each in enumerate(seeds if kept else ()):
        if made >= RUNS and time.monotonic() > began + more_s:
            break
        if each in known:
            more_s -= known[each]
            continue
        status = runs.status([each], limit_s)
        if status != 0 and not can_be_repeated:
            can_be_repeated = runs.status(kept, limit_s) == 0
            if not can_be_repeated:
                return None
        if status:
            return each
    return None


def fails_beside_only(runs: RepeatedRuns, seed: int, began_s: float) -> bool:
    """Whether main fails with a seed because launches that nothing orders run beside each other:
    it does not with seeds that have them run one after another.

    Args:
        began_s: As of :func:`seed_of_failure`.
    """
    limit_s = time.monotonic() - began_s
    in_turn = (each for each in range(seed, seed + 2 * RUNS) if not interleaves(each))
    return interleaves(seed) and not any(runs.status([each], limit_s) for each in in_turn)


def not_waited_for(
    runs: RepeatedRuns, kept: Sequence[int], began_s: float, count: int
) -> int | None:
    """Which operation a program goes on too early behind: main ends well once that one, and those
    before it, are done before their calls return. None if that helps nothing.

    Args:
        kept: The seed of each of its launches; began_s: as of :func:`seed_of_failure`.
        count: Operations that it asks for.
    """
    limit_s = time.monotonic() - began_s

    def ends_well(at_once: int) -> bool:
        return runs.status(kept, limit_s, f"{AT_ONCE}{at_once}") == 0

    if not count or ends_well(0) or not ends_well(count):
        return None
    fails, well = 0, count
    while well - fails > 1:
        middle = (fails + well) // 2
        fails, well = (fails, middle) if ends_well(middle) else (middle, well)
    return well - 1


def wrong_size(
    runs: RepeatedRuns, kept: Sequence[int], began_s: float, sites: Iterable[int]
) -> tuple[int, int] | None:
    """Of which site the copies have too few bytes, and how many times: main ends well once they
    have more. None if that helps nothing.

    Args:
        kept: The seed of each of its launches; began_s: as of :func:`seed_of_failure`.
    """
    began = time.monotonic()
    limit_s = began - began_s
    for site, scale in itertools.product(sites, _SCALES):
        if time.monotonic() > began + _SCALES_S:
            return None
        if runs.status(kept, limit_s, f"{SCALED}{site}x{scale}") == 0:
            return site, scale
    return None


def needs_new_memory(runs: RepeatedRuns, kept: Sequence[int], began_s: float) -> bool:
    """Whether main fails, or has no end, where new memory holds large numbers; of a program that
    ends well.

    Args:
        kept: The seed of each of its launches; began_s: as of :func:`seed_of_failure`.
    """
    limit_s = time.monotonic() - began_s
    return runs.status(kept, limit_s, LARGE) != 0 and runs.status(kept, limit_s) == 0


def fails_on_more_sms(runs: RepeatedRuns, seed: int, began_s: float) -> bool:
    """Whether main fails, or something is found, where the GPU has more SMs; of a program that is
    clean, and sizes its launches by them.

    Args:
        began_s: As of :func:`seed_of_failure`.
    """
    return runs.status([seed], time.monotonic() - began_s, MORE_SMS) not in (0, None)


def stale_memory(
    runs: RepeatedRuns, kept: Sequence[int], began_s: float, names: Sequence[str]
) -> Sequence[str]:
    """Which memory makes a program fail at times: it does not once words there are set back.

    Args:
        kept: The seed of each of its launches, of a schedule that shows it.
        began_s: When the first run began, by ``time.monotonic``.
        names: Of memory in which launches have found what earlier ones had left.
    """
    limit_s = time.monotonic() - began_s

    def fails(how: str) -> bool:
        return any(runs.status(kept, limit_s, how) != 0 for _ in range(_TIMES))

    if not names or not fails(CHECKED):
        return ()
    for name in (*names, ""):
        if not fails(SET_BACK + name):
            return (name,) if name else names
    return ()
