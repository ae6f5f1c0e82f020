"""Predicted times of steps, and what a prediction says of a change from one to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.base.errors import UsageError
from kernelbench.base.observer import Observer
from kernelbench.base.table import Row, RowTable
from kernelbench.emulator.settings import Emulation
from kernelbench.machine.devices import require_torch
from kernelbench.predict.model import DeviceModel, device, replay
from kernelbench.predict.trace import StepTrace, trace
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.runs.plan import plan_check
from kernelbench.runs.settings import Names, names_of, step_names

#: Input values change no schedule: the first class is traced, with this seed.
_SEED = 1
SHOWN_BUBBLES = 8


@dataclass(frozen=True)
class PathPart:
    """A part of the critical path: what it is, where in the source, in us."""

    cause: str
    where: str
    us: float


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
    stalls: tuple[PathPart, ...] = ()

    @property
    def us(self) -> float:
        """The call time, or the device time if the host is not known."""
        return self.device_us + (self.host_us or 0.0)


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
        return [
            {
                "step": each.step,
                "shape": each.shape,
                "predicted device µs": f"{each.device_us:.1f}",
                "predicted call µs": "–" if each.host_us is None else f"{each.us:.1f}",
                "90 %": f"{each.low_us:.1f} … {each.high_us:.1f}",
            }
            for each in self.found
        ]

    def stall_rows(self) -> list[Row]:
        """The longest parts of each critical path: what each would save at most."""
        return [
            {
                "step": each.step,
                "shape": each.shape,
                "predicted µs": f"{stall.us:.2f}",
                "cause": stall.cause,
                "where": stall.where,
            }
            for each in self.found
            for stall in each.stalls
        ]


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
    """Predicted changes from one step to another."""

    found: tuple[PredictedChange, ...]

    def rows(self) -> list[Row]:
        """A row for each shape; times in us, changes in percent."""
        return [
            {
                "shape": each.base.shape,
                f"{each.base.step} predicted µs": f"{each.base.us:.1f}",
                f"{each.cand.step} predicted µs ": f"{each.cand.us:.1f}",
                "predicted Δ": f"{100 * each.change:+.1f}%",
                "90 %": f"[{100 * (each.change - each.spread):+.1f}, "
                f"{100 * (each.change + each.spread):+.1f}]",
                "predicted": each.verdict + (f": {each.reason}" if each.reason else ""),
            }
            for each in self.found
        ]


def predict(
    steps: Names, shapes: Names | None = None, *, observer: Observer | None = None
) -> Predictions:
    """Predict what steps take on a GPU that is not here: an emulated call, replayed on its model.

    Args:
        steps: Compiled Blackwell steps, as :func:`kernelbench.run` takes them.
        shapes: By name or ad hoc; the problem's benchmark shapes if None.

    Raises:
        UsageError: For a step that the model does not cover, by the name of what it lacks.
        EnvironmentProblem: Without torch, which makes a call's data.
        KernelbenchError: If a step cannot be built or its call fails.
    """
    require_torch("predicting")
    observer = observer or Observer()
    model = device()
    sms = int(model.costs["sms"].value)
    context = Context.find()
    plans = plan_check(
        context, step_names(steps), names_of(shapes) or ("all",), (), Emulation(sms=sms),
        warn=observer.warning,
    )  # fmt: skip
    for each in plans:
        if each.step.arch != model.arch:
            raise UsageError(
                f"--predict: {each.step.name} is for {each.step.arch or each.step.kind}; "
                f"there is a model of {model.arch} only"
            )
    found = []
    for each in plans:
        for shape in each.shapes:
            if shape.name in each.skip:
                observer.warning(f"{each.step.name} {shape.name}: {each.skip[shape.name]}")
                continue
            observer.progress(f"{each.step.name} {shape.name}: traced on the emulator")
            inputs = each.problem.make_inputs(shape, each.problem.input_classes[0], _SEED, "cpu")
            traced = trace(each.step, each.problem, inputs.data, sms)
            found.append(_predicted(context, model, each.step, shape.name, traced))
    return Predictions(model, tuple(found))


def compare(
    base: str, cand: str, shapes: Names | None = None, *, observer: Observer | None = None
) -> Changes:
    """Predict a change from one step to another; the arguments are those of :func:`predict`."""
    both = predict((base, cand) if base != cand else (base,), shapes, observer=observer)
    by_step: dict[str, dict[str, Prediction]] = {}
    for each in both.found:
        by_step.setdefault(each.step, {})[each.shape] = each
    if not by_step:
        raise UsageError("--predict: neither step takes any of the shapes")
    steps = [*by_step.values()]
    ours, theirs = steps[0], steps[-1]
    shared = [shape for shape in ours if shape in theirs]
    changes = [_changed(both.device, ours[shape], theirs[shape]) for shape in shared]
    return Changes(both.device, tuple(changes))


def _changed(model: DeviceModel, base: Prediction, cand: Prediction) -> PredictedChange:
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


def _predicted(
    context: Context, model: DeviceModel, step: Step, shape: str, traced: StepTrace
) -> Prediction:
    model.require(traced)
    us, bubbles = replay(traced.records, model.values(), SHOWN_BUBBLES)
    host = host_class(model, ancestors(context, step))
    host_us = model.host[host].value if host else None
    total, spread = us + (host_us or 0.0), model.spread["time"].value
    return Prediction(
        step.name, shape, us, host_us, host, total / (1 + spread), total / (1 - spread),
        traced.schedule(),
        tuple(PathPart(b.cause, traced.place(b.pc), b.us) for b in bubbles),
    )  # fmt: skip


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
