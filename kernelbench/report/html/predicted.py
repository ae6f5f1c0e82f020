"""Predicted schedules as a report shows them: a step's beside its parent's, and its bubbles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kernelbench.base.errors import UsageError
from kernelbench.predict import api
from kernelbench.predict.model import device
from kernelbench.predict.schedule import Schedule, digest_of
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.registry import Step
from kernelbench.report.html.record import BubblePage, CausePage, PredictedPage

#: Schedules of a lineage that a page has room for.
_SHOWN = 8


def predicted_pages(
    schedules: Iterable[Schedule], steps: Mapping[str, Step]
) -> Iterator[PredictedPage]:
    """A page for each of the newest schedules of these steps, in the steps' order."""
    pages = [*_pages(schedules, steps)]
    parents = [id(page.schedules[0]) for page in pages if len(page.schedules) > 1]
    for page in pages:
        alone = len(page.schedules) == 1
        yield replace(page, drawn=not (alone and id(page.schedules[0]) in parents))


def _pages(schedules: Iterable[Schedule], steps: Mapping[str, Step]) -> Iterator[PredictedPage]:
    saved = {(s.prediction.step, s.prediction.shape, s.model): s for s in schedules}
    order = [*steps]
    keys = sorted((key for key in saved if key[0] in steps), key=lambda key: saved[key].created)
    for key in sorted(keys[-_SHOWN:], key=lambda key: order.index(key[0])):
        step, found = steps[key[0]], saved[key]
        before = saved.get((step.parent or "", *key[1:]))
        if before is not None and before.costs != found.costs:
            before = None
        gone, past, now = [], before.by_cause if before else {}, found.by_cause
        if before is not None:
            made = before.prediction
            gone = api.removed(made.bubbles, made.device_us, past, now)
        causes = {**now, **past}
        yield PredictedPage(
            step.name,
            (before, found) if before else (found,),
            _bubbles(found, found.prediction.bubbles),
            _bubbles(before or found, gone),
            tuple(
                CausePage(each, past.get(each, 0.0) if before else None, now.get(each, 0.0))
                for each in sorted(causes, key=lambda each: -causes[each])
            ),
            _stale(found, step),
        )


def _bubbles(found: Schedule, bubbles: Iterable[api.Bubble]) -> tuple[BubblePage, ...]:
    us = found.prediction.device_us
    return tuple(BubblePage(each, 1 - each.if_free_us / us) for each in bubbles)


def _stale(found: Schedule, step: Step) -> str:
    try:
        same_costs = digest_of(device(found.model.removesuffix(".toml"))) == found.costs
    except UsageError:  # a file of the user's own
        same_costs = True
    changed = [] if found.source == source_sha(step) else ["the step's sources"]
    return " and ".join(changed + ([] if same_costs else ["the model"]))
