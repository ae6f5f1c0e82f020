"""What a lineage comes to, on the first screen: what is fastest, by how much, how sure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kernelbench.project.model import Reported
from kernelbench.records.ledger import LedgerEntry
from kernelbench.records.run_record import RunRecord
from kernelbench.report.html.record import (
    BarPage,
    BehindPage,
    FastestPage,
    HeadPage,
    LineagePage,
    StepPage,
    StepTimePage,
)

_METRIC = "device"
_Newest = dict[tuple[str, str], LedgerEntry]


def head_of(
    page: LineagePage,
    shapes: Sequence[str],
    entries: Sequence[LedgerEntry],
    runs: Sequence[RunRecord],
    reference: str,
) -> HeadPage | None:
    """The head of a lineage: on its first shape with measured times, or else with reported ones,
    and on the device on which the newest step is the fastest.

    Args:
        page: The lineage without its head.
        shapes: In the order of the shapes file.
        entries: All comparisons, oldest first; runs: all saved runs.
        reference: The step that is right, not fast: it has no bar.

    Returns:
        None if the main line has fewer than two figures of one kind on one shape.
    """
    main = [step for step in page.steps if not step.experiment and step.name != reference]
    age = {step.name: at for at, step in enumerate(main)}
    for shape in shapes:
        there = [best for best in page.fastest if (best.shape, best.metric) == (shape, _METRIC)]
        # Of several devices that which has the newest step.
        for best in sorted(there, key=lambda each: age.get(each.step, -1), reverse=True):
            newest = _newest(entries, best)
            bars = tuple(
                _bar(step, row.measured.time.median, newest.get((step.parent or "", step.name)))
                for step, row in _times_there(main, best)
            )
            if len(bars) > 1:
                shown = _newest_as_fast(best, main)
                rival = _same_run(shown, runs, page.peers)
                return _head(best, shown, bars, newest, page.fastest, rival)
    return next(filter(None, (_reported(main, shape) for shape in shapes)), None)


def _newest_as_fast(best: FastestPage, steps: Sequence[StepPage]) -> FastestPage:
    """The newest step whose median lies in the range of the fastest: who is behind it by chance."""
    shown = best
    for step, row in _times_there(steps, best):
        time = row.measured.time
        if time.median <= best.high:
            shown = replace(
                best, step=step.name, us=time.median, low=time.p05, high=time.p95,
                of_sol=row.of_sol,
            )  # fmt: skip
    return shown


def _head(
    best: FastestPage,
    shown: FastestPage,
    bars: tuple[BarPage, ...],
    newest: _Newest,
    fastest: Sequence[FastestPage],
    rival: tuple[str, float | None],
) -> HeadPage:
    ties = tuple(
        bar.step for bar in bars if best.low <= bar.us <= best.high and bar.step != shown.step
    )
    sure = _about([shown.step], newest) or _about(ties, newest)
    rivals = [
        row for row in fastest
        if row.device == best.device and row.metric == _METRIC and row.ratio is not None
    ]  # fmt: skip
    return HeadPage(
        device=best.device,
        shape=best.shape,
        metric=_METRIC,
        reported=False,
        step=shown.step,
        us=shown.us,
        low=shown.low,
        high=shown.high,
        of_sol=shown.of_sol,
        first=bars[0].step,
        times_first=bars[0].us / shown.us,
        ties=ties,
        peer=rival[0],
        times_peer=rival[1],
        compared_with=(sure.base.step, sure.cand.step) if sure else None,
        verdict=sure.verdict if sure else "",
        change=sure.change if sure else None,
        ci=sure.ci if sure else None,
        bars=bars,
        ahead=sum(row.ratio >= 1 for row in rivals if row.ratio is not None),
        compared=len(rivals),
        behind=tuple(
            BehindPage(row.shape, row.peer, row.ratio)
            for row in rivals
            if row.ratio is not None and row.ratio < 1
        ),
    )


def _newest(entries: Iterable[LedgerEntry], best: FastestPage) -> _Newest:
    """The newest comparison of each pair there, by base and candidate."""
    return {
        (entry.base.step, entry.cand.step): entry
        for entry in entries
        if (entry.device, entry.shape, entry.metric) == (best.device, best.shape, _METRIC)
        and entry.protocol.get("l2") == "cold"
    }


def _about(steps: Sequence[str], newest: _Newest) -> LedgerEntry | None:
    """The newest comparison that has one of these steps."""
    return next((e for pair, e in reversed(newest.items()) if {*pair} & {*steps}), None)


def _times_there(
    steps: Iterable[StepPage], best: FastestPage
) -> Iterator[tuple[StepPage, StepTimePage]]:
    """Device times with a cold L2, on the device and shape of the fastest."""
    for step in steps:
        for row in step.times:
            time = row.measured
            where = (time.device, time.shape, time.metric, time.l2)
            if where == (best.device, best.shape, _METRIC, "cold"):
                yield step, row


def _bar(step: StepPage, us: float, entry: LedgerEntry | None) -> BarPage:
    if entry is None:
        return BarPage(step.name, step.parent or "", us, "", None, None)
    return BarPage(step.name, entry.base.step, us, entry.verdict, entry.change, entry.ci)


def _same_run(
    best: FastestPage, runs: Sequence[RunRecord], peers: Sequence[str]
) -> tuple[str, float | None]:
    """The fastest peer of the newest run that has the step, too: name, its time over the step's."""
    for run in sorted(runs, key=lambda run: run.created, reverse=True):
        if run.device != best.device or run.protocol.l2 != "cold":
            continue
        times = {
            row.step: row.metrics["device"].median
            for row in run.results
            if row.shape == best.shape and "device" in row.metrics
        }
        timed = sorted((times[name], name) for name in peers if name in times)
        if timed and best.step in times:
            return timed[0][1], timed[0][0] / times[best.step]
    return "", None


def _reported(steps: Sequence[StepPage], shape: str) -> HeadPage | None:
    """A head of figures that the lineage's source gives."""
    given: list[tuple[StepPage, Reported]] = [
        (step, step.reported)
        for step in steps
        if step.reported and step.reported.unit == "us" and shape in step.reported.values
    ]
    if len(given) < 2:
        return None
    best, figures = min(given, key=lambda each: each[1].values[shape])
    first, us = given[0][1].values[shape], figures.values[shape]
    return HeadPage(
        device=figures.device,
        shape=shape,
        metric=figures.metric,
        reported=True,
        step=best.name,
        us=us,
        first=given[0][0].name,
        times_first=first / us,
        bars=tuple(_bar(step, each.values[shape], None) for step, each in given),
    )


_HEIGHT, _STEP = 78, 14


def steps_down(head: HeadPage) -> dict[str, Any]:
    """What the picture of a head is made of: from each step's parent's time down to its own.

    Returns:
        ``width``, and by step where its bar and the line of its interval lie, in the picture's
        units, with the title and the recorded figures.
    """
    times = {bar.step: bar.us for bar in head.bars}
    top, bottom = math.log(max(times.values())), math.log(min(times.values()))

    def level(us: float) -> float:
        return round(2 + (top - math.log(us)) / max(top - bottom, 1e-9) * (_HEIGHT - 8), 1)

    found = []
    for i, bar in enumerate(head.bars):
        base = times.get(bar.parent) or (head.bars[i - 1].us if i else bar.us)
        ends = sorted((level(base), level(bar.us)))
        whisker, x = "", i * _STEP
        if bar.ci is not None:
            low, high = (level(min(max(base * (1 + end), 1e-3), 1e9)) for end in bar.ci)
            whisker = f"M{x + _STEP / 2 - 1} {high}V{low}"
        change = () if bar.change is None else (bar.change,)
        found.append({
            "step": bar.step, "verdict": bar.verdict, "x": x, "y": ends[0], "width": _STEP - 2,
            "height": max(round(ends[1] - ends[0], 1), 2), "whisker": whisker,
            "values": " ".join(f"{each:.9g}" for each in (bar.us, *change, *(bar.ci or ()))),
            "title": _title(bar),
        })  # fmt: skip
    return {"width": len(head.bars) * _STEP, "bars": found}


def _title(bar: BarPage) -> str:
    text = f"{bar.step}: {bar.us:,.2f} µs"
    if bar.change is None:
        return text
    ends = f" [{100 * bar.ci[0]:.1f}, {100 * bar.ci[1]:.1f}]" if bar.ci else ""
    return f"{text}; against {bar.parent} {bar.verdict} {100 * bar.change:.1f} %{ends}"
