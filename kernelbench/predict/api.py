"""Predicted times of steps, and what a prediction says of a change from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelbench.base import schema
from kernelbench.base.errors import UsageError
from kernelbench.base.observer import Observer
from kernelbench.base.table import Row, RowTable
from kernelbench.emulator.settings import Emulation
from kernelbench.machine.devices import require_torch
from kernelbench.predict.model import DEVICES, DeviceModel, device, replay
from kernelbench.predict.timeline import Timeline, timeline_rows
from kernelbench.predict.trace import StepTrace, trace, traced_inputs
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.runs.plan import plan_check
from kernelbench.runs.settings import Names, names_of, step_names

SHOWN_BUBBLES = 5
#: Smaller changes, and what saves less, are not judged.
SMALL = 0.03
#: Parts of the critical path by cause and address, more than it has.
_PARTS = 4096
SCHEMA = "kernelbench.prediction/1"


@dataclass(frozen=True)
class Bubble:
    """A part of the critical path, by cause and source line.

    Attributes:
        where: The line that computes, copies or multiplies, or that waits for another warp.
        on_path_us: Its part of the predicted time.
        if_free_us: The predicted device time of a replay in which this cause costs nothing there:
            another path may be almost as long.
    """

    cause: str
    where: str
    on_path_us: float
    if_free_us: float


@dataclass(frozen=True)
class Prediction:
    """A predicted time of a step on a shape.

    Attributes:
        device_us: What the device takes.
        host_us: What a call takes beside; None where no reported figure says it.
        host: The step whose figures that comes from; empty if none.
        low_us, high_us: Of a call, or of the device if the host is not known: nine of ten held-out
            figures were within this.
        schedule: A hash; two steps of equal schedules differ on the host alone.
    """

    step: str
    shape: str
    device_us: float
    host_us: float | None
    host: str
    low_us: float
    high_us: float
    schedule: str
    bubbles: tuple[Bubble, ...] = ()

    @property
    def us(self) -> float:
        """The call time, or the device time if the host is not known."""
        return self.device_us + (self.host_us or 0.0)


def _times_of(found: Iterable[Prediction]) -> str:
    """What :attr:`Prediction.us` is of these."""
    return " or ".join(sorted({"device" if each.host_us is None else "call" for each in found}))


@dataclass(frozen=True, repr=False)
class _Predicted(RowTable):
    """Rows of which none is a measurement."""

    device: DeviceModel

    def _caption(self) -> str:
        return f"predicted for {self.device.device}, not measured"


@dataclass(frozen=True, repr=False)
class Predictions(_Predicted):
    """Predicted times."""

    found: tuple[Prediction, ...]

    def rows(self) -> list[Row]:
        """A row for each step and shape, times in us."""
        of = _times_of(self.found)
        return [
            {
                "step": each.step,
                "shape": each.shape,
                "predicted device µs": f"{each.device_us:.1f}",
                "predicted call µs": "–" if each.host_us is None else f"{each.us:.1f}",
                f"90 % of {of}": f"{each.low_us:.1f} … {each.high_us:.1f}",
            }
            for each in self.found
        ]

    def bubble_rows(self) -> list[Row]:
        """What would take less time if it were free, times in us."""
        return [
            {
                "step": each.step,
                "shape": each.shape,
                "cause": bubble.cause,
                "where": bubble.where,
                "on the path, predicted µs": f"{bubble.on_path_us:.2f}",
                "device if free, predicted µs": f"{bubble.if_free_us:.2f}",
                "saves, predicted": f"{100 * (1 - bubble.if_free_us / each.device_us):.1f}%",
            }
            for each in self.found
            for bubble in each.bubbles
        ]

    def to_json(self) -> dict[str, Any]:
        """A document of :data:`SCHEMA`; times in us, all of them predicted."""
        return {
            "schema": SCHEMA,
            "predicted": True,
            "device": self.device.device,
            "model": f"{self.device.name}.toml",
            "predictions": schema.encode(self.found),
        }


@dataclass(frozen=True)
class PredictedChange:
    """What a prediction says of a change on a shape.

    Attributes:
        change: Of the time, as a part of the base's.
        spread: What the prediction cannot tell apart.
        verdict: ``faster``, ``slower``, ``no call`` or ``same schedule``.
        reason: Why there is no call.
    """

    base: Prediction
    cand: Prediction
    change: float
    spread: float
    verdict: str
    reason: str = ""


@dataclass(frozen=True, repr=False)
class Changes(_Predicted):
    """Predicted changes from one step to another.

    Attributes:
        made: Every prediction, as they were made.
    """

    found: tuple[PredictedChange, ...]
    made: tuple[Prediction, ...] = ()

    def rows(self) -> list[Row]:
        """A row for each shape; times in us, changes in percent."""
        of = _times_of([side for each in self.found for side in (each.base, each.cand)])
        return [
            {
                "shape": each.base.shape,
                f"{each.base.step} predicted {of} µs": f"{each.base.us:.1f}",
                f"{each.cand.step} predicted {of} µs ": f"{each.cand.us:.1f}",
                "predicted Δ": f"{100 * each.change:+.1f}%",
                "90 % of Δ": f"[{100 * (each.change - each.spread):+.1f}, "
                f"{100 * (each.change + each.spread):+.1f}]",
                "predicted": each.verdict + (f": {each.reason}" if each.reason else ""),
            }
            for each in self.found
        ]


def predict(
    steps: Names,
    shapes: Names | None = None,
    *,
    on: str | None = None,
    bubbles: bool = True,
    timelines: list[Timeline] | None = None,
    observer: Observer | None = None,
) -> Predictions:
    """Predict what steps take on a GPU that is not here: an emulated call, replayed on its model.

    Args:
        steps: Compiled steps of one architecture, as :func:`kernelbench.run` takes them.
        shapes: By name or ad hoc; the problem's benchmark shapes if None.
        on: One of :data:`~kernelbench.predict.model.DEVICES`; the first of the steps' architecture
            if None.
        bubbles: Whether to replay anew without each of the longest parts of the critical path.
        timelines: Takes the schedule of each step's first CTA, in the order of the predictions.

    Raises:
        UsageError: For a step that the model does not cover, by the name of what it lacks.
        EnvironmentProblem: Without torch, which makes a call's data.
        KernelbenchError: If a step cannot be built or its call fails.
    """
    require_torch("predicting")
    observer = observer or Observer()
    context = Context.find()
    plans = plan_check(
        context, step_names(steps), names_of(shapes) or ("all",), (), Emulation(),
        warn=observer.warning,
    )  # fmt: skip
    model = model_of([each.step for each in plans], on)
    sms = int(model.costs["sms"].value)
    found = []
    for each in plans:
        for shape in each.shapes:
            if shape.name in each.skip:
                observer.warning(f"{each.step.name} {shape.name}: {each.skip[shape.name]}")
                continue
            observer.progress(f"{each.step.name} {shape.name}: traced on the emulator")
            inputs = traced_inputs(each.problem, shape)
            traced = trace(each.step, each.problem, inputs.data, sms)
            found.append(predicted(context, model, each.step, shape.name, traced, bubbles))
            if timelines is not None:
                rows, us = timeline_rows(traced, model.values()), found[-1].device_us
                names = each.step.name, shape.name, model.device
                timelines.append(Timeline(*names, us, rows, source_sha(each.step)))
    return Predictions(model, tuple(found))


def model_of(steps: Sequence[Step], on: str | None) -> DeviceModel:
    """The model of a GPU by its name, or the first of the steps' architecture.

    Raises:
        UsageError: If there is none, or a step is for another architecture.
    """
    model = device(on) if on else _device_of(steps[0])
    for step in steps:
        if step.arch != model.arch:
            raise UsageError(
                f"--predict: {step.name} is for {step.arch or step.kind}, "
                f"{model.name}.toml for {model.arch}",
                "predict steps of one architecture at a time",
            )
    return model


def _device_of(step: Step) -> DeviceModel:
    for name in DEVICES:
        if device(name).arch == step.arch:
            return device(name)
    of = " and ".join(dict.fromkeys(device(name).arch for name in DEVICES))
    words = step.in_words + (f" for {step.arch}" if step.compiled else "")
    raise UsageError(f"--predict models compiled steps for {of}: {words}")


def compare(
    base: str,
    cand: str,
    shapes: Names | None = None,
    *,
    on: str | None = None,
    timelines: list[Timeline] | None = None,
    observer: Observer | None = None,
) -> Changes:
    """Predict a change from one step to another; the arguments are those of :func:`predict`."""
    steps = (base, cand) if base != cand else (base,)
    listed = timelines is not None
    both = predict(steps, shapes, on=on, bubbles=listed, timelines=timelines, observer=observer)
    by_step: dict[str, dict[str, Prediction]] = {}
    for each in both.found:
        by_step.setdefault(each.step, {})[each.shape] = each
    if not by_step:
        raise UsageError("--predict: neither step takes any of the shapes")
    traced = [*by_step.values()]
    ours, theirs = traced[0], traced[-1]
    shared = [shape for shape in ours if shape in theirs]
    changes = [changed(both.device, ours[shape], theirs[shape]) for shape in shared]
    return Changes(both.device, tuple(changes), both.found)


def changed(model: DeviceModel, base: Prediction, cand: Prediction) -> PredictedChange:
    """What a prediction says of a change, or that it cannot tell."""
    spread = model.spread["change"].value
    if base.host != cand.host:
        change = cand.device_us / base.device_us - 1
        return PredictedChange(
            base, cand, change, spread, "no call", "their hosts differ; Δ of the device"
        )
    change = cand.us / base.us - 1
    if base.schedule == cand.schedule:
        return PredictedChange(base, cand, 0.0, 0.0, "same schedule")
    if abs(change) < spread:
        return PredictedChange(base, cand, change, spread, "no call")
    return PredictedChange(base, cand, change, spread, "faster" if change < 0 else "slower")


def predicted(
    context: Context,
    model: DeviceModel,
    step: Step,
    shape: str,
    traced: StepTrace,
    with_bubbles: bool = False,
) -> Prediction:
    """What a trace takes on a device.

    Raises:
        UsageError: For an operation that has no cost, by its name.
    """
    model.require(traced)
    us, _ = replay(traced.records, model.values(), stretches=traced.stretches)
    host = host_class(model, ancestors(context, step))
    host_us = model.host[host].value if host else None
    total, spread = us + (host_us or 0.0), model.spread["time"].value
    return Prediction(
        step.name, shape, us, host_us, host, total / (1 + spread), total / (1 - spread),
        traced.schedule(),
        bubbles_of(traced, model.values()) if with_bubbles else (),
    )  # fmt: skip


def path_by_line(traced: StepTrace, costs: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """The parts of a trace's critical path by cause and source line, in us."""
    _, parts = replay(traced.records, costs, _PARTS, stretches=traced.stretches)
    on_path: dict[tuple[str, str], float] = {}
    for part in parts:
        key = part.cause, traced.place(part.pc)
        on_path[key] = on_path.get(key, 0.0) + part.us
    return on_path


def bubbles_of(traced: StepTrace, costs: Mapping[str, float]) -> tuple[Bubble, ...]:
    """The longest parts of a trace's critical path, and the time without each of them."""
    on_path = path_by_line(traced, costs)
    longest = sorted(on_path, key=lambda key: -on_path[key])[:SHOWN_BUBBLES]
    pcs: dict[str, list[int]] = {}
    for pc in np.unique(traced.records["pc"]).tolist():
        pcs.setdefault(traced.place(pc), []).append(pc)
    found = [
        Bubble(
            cause,
            where,
            on_path[cause, where],
            replay(
                traced.records, costs, free=(cause, pcs.get(where, [])), stretches=traced.stretches
            )[0],
        )
        for cause, where in longest
    ]
    return tuple(sorted(found, key=lambda bubble: bubble.if_free_us))


def removed(
    listed: Iterable[Bubble],
    us: float,
    before: Mapping[str, float],
    after: Mapping[str, float],
    host_us: float = 0.0,
) -> list[Bubble]:
    """Bubbles of a list that a change has removed: less than half of their cause is left.

    Args:
        us: The predicted time before, with ``host_us`` in it.
        before, after: Parts of the critical path by cause.
    """
    return [
        bubble
        for bubble in listed
        if 1 - (bubble.if_free_us + host_us) / us > SMALL
        and after.get(bubble.cause, 0.0) < before[bubble.cause] / 2
    ]


def ancestors(context: Context, step: Step) -> list[str]:
    """A step's name, its parent's, and so on."""
    names = [step.name]
    while (parent := context.lineages.parent_of(step)) and parent.name not in names:
        names.append(parent.name)
        step = parent
    return names


def host_class(model: DeviceModel, names: Sequence[str]) -> str:
    """The class of hosts of a step, by the first of its ancestors that begins one; or nothing."""
    return next((name for name in names if name in model.host), "")
