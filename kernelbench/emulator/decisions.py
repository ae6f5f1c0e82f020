"""Decisions of a schedule, and the fewest of them that still show something.

A schedule is what the emulator's scheduler decides: which warp runs next and from which lane on,
which copy or product completes, whether a thread gives way before an instruction. Only decisions
that are not the usual ones are kept (``choices.hpp``): usually warps run in turn, what is
asynchronous completes as soon as the scheduler runs, and nobody gives way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

#: Launch, cluster, who, number, value: see ``Decision`` in ``choices.hpp``.
Decision = tuple[int, int, int, int, int]
#: ``Who`` in ``choices.hpp``; a scheduler's first two decisions, see ``Runner::run``.
_CLUSTER_ORDER, _ELECTED = -2, -3
_STYLE, _HELD_UP = 0, 1


class OutOfTime(Exception):
    """No further trial may be made."""


def fewest(
    decisions: Sequence[Decision], shows: Callable[[Sequence[Decision]], bool]
) -> list[Decision]:
    """The shortest list that was found whose schedule still shows it; delta debugging.

    None of what is left can be taken out alone. A trial that raises :class:`OutOfTime` ends the
    search with the best so far.

    Args:
        decisions: Those of a schedule that shows it, in the order in which they were made.
        shows: Whether the schedule of fewer decisions does, too.
    """
    best = [*decisions]

    def tried(fewer: list[Decision]) -> bool:
        nonlocal best
        if len(fewer) < len(best) and shows(fewer):
            best = fewer
            return True
        return False

    try:
        if not tried([]):
            _shorten(lambda: best, tried)
            _without_one_who(lambda: best, tried)
            _without_chunks(lambda: best, tried)
    except OutOfTime:
        pass
    return best


_Best = Callable[[], list[Decision]]
_Tried = Callable[[list[Decision]], bool]


def _shorten(best: _Best, tried: _Tried) -> None:
    """What was decided after it had happened does not matter: halve the end, then less."""
    low = 0
    while low + 1 < len(best()):
        middle = (low + len(best())) // 2
        if not tried(best()[:middle]):
            low = middle


def _without_one_who(best: _Best, tried: _Tried) -> None:
    """A thread's decisions, or all threads', at once."""
    tried([each for each in best() if each[2] < 0])
    for who in sorted({each[2] for each in best()}):
        tried([each for each in best() if each[2] != who])


def _without_chunks(best: _Best, tried: _Tried) -> None:
    chunk = max(1, len(best()) // 2)
    while True:
        start, less = 0, False
        while start < len(best()):
            now = best()
            if tried(now[:start] + now[start + chunk :]):
                less = True
            else:
                start += chunk
        if chunk > 1:
            chunk //= 2
        elif not less:
            return


def in_words(decision: Decision) -> str:
    """``launch 0, cluster 0: thread 64 gives way at its 3rd chance``, for people."""
    launch, cluster, who, number, value = decision
    if who == _ELECTED:
        return f"of the lanes {number:#x} the one after {value} others is elected"
    if who == _CLUSTER_ORDER:
        return f"launch {launch}: place {number} of the clusters' order is changed with {value}"
    place = f"launch {launch}, cluster {cluster}"
    if who >= 0:
        return f"{place}: thread {who} gives way before its primitive {number}"
    if number == _STYLE:
        when = "late" if value == 0 else "now and then"
        return f"{place}: what is asynchronous completes {when}"
    if number == _HELD_UP:
        return f"{place}: warp {value} is held up until no other can run"
    return f"{place}: the scheduler's decision {number} is {value}"
