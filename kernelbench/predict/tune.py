"""Other values of a step's constants, by predicted time: what ``kernelbench tune`` tries first."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from kernelbench.base.errors import KernelbenchError, UnknownNameError, UsageError
from kernelbench.base.observer import Observer
from kernelbench.base.table import Row
from kernelbench.emulator.settings import Emulation
from kernelbench.machine.devices import require_torch
from kernelbench.predict.api import PredictedChange, Prediction, changed, model_of, predicted
from kernelbench.predict.model import DeviceModel
from kernelbench.predict.trace import result_of, trace, traced_inputs
from kernelbench.project import overlay
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.project.problem import judging
from kernelbench.project.source_files import sources_of
from kernelbench.runs.plan import plan_check
from kernelbench.runs.runner import StepRun
from kernelbench.runs.settings import Names, names_of

_DECLARATION = re.compile(
    r"^ *(?:inline |static )*constexpr [\w:]+ (?P<all>k[A-Z]\w* = [^;{}]+);", re.MULTILINE
)
_CONSTANT = re.compile(r"(?P<name>k[A-Z]\w*) = (?P<value>.+?)(?=,\s*k[A-Z]\w* = |\Z)", re.DOTALL)


@dataclass(frozen=True)
class Constant:
    """A constant of a step's own sources.

    Attributes:
        place: ``file:line``, which names it where several have its name.
        span: Where its value is in the file's text.
    """

    name: str
    value: str
    place: str
    file: str
    span: tuple[int, int]


@dataclass(frozen=True)
class Variation:
    """A step with other values of constants, and what is predicted of it.

    Attributes:
        step: In no project; all its files are side by side in the cache.
        words: What differs, as it was asked for.
        texts: The files that differ, by name.
        changes: From the step as it is, on each shape.
        wrong: Why nothing is predicted.
    """

    step: Step
    words: str
    texts: Mapping[str, str]
    changes: tuple[PredictedChange, ...] = ()
    wrong: str = ""

    @property
    def change(self) -> float:
        """The mean over the shapes; infinite if nothing is predicted."""
        return math.inf if self.wrong else fmean(each.change for each in self.changes)


@dataclass(frozen=True)
class Tuning:
    """What was predicted of a step and of its variations, the best one first."""

    device: DeviceModel
    step: Step
    base: tuple[Prediction, ...]
    tried: tuple[Variation, ...]

    def best(self, number: int) -> list[Variation]:
        """What to measure: right ones whose schedule differs."""
        return [
            each for each in self.tried if {c.verdict for c in each.changes} - {"same schedule"}
        ][:number]

    def rows(self) -> list[Row]:
        """The step, then a row for each variation and shape; times in us, all of them predicted."""
        found = [("as it is", each.shape, f"{each.us:.1f}", "", "", "") for each in self.base]
        for each in self.tried:
            if each.wrong:
                found.append((each.words, "–", "–", "", "", each.wrong))
            for c in each.changes:
                said = f"{c.verdict}: {c.reason}" if c.reason else c.verdict
                change, spread = f"{100 * c.change:+.1f}%", f"±{100 * c.spread:.1f}"
                found.append((each.words, c.cand.shape, f"{c.cand.us:.1f}", change, spread, said))
        heads = "constants", "shape", "predicted µs", "predicted Δ", "90 % of Δ", "predicted"
        return [dict(zip(heads, cells, strict=True)) for cells in found]


def constants_of(step: Step) -> tuple[Constant, ...]:
    """The constants that a step's sources and those of its bases define, by file and line."""
    found = []
    for file, path in sources_of(step).items():
        text = path.read_text(encoding="utf-8")
        declared = (each.span("all") for each in _DECLARATION.finditer(text))
        for match in itertools.chain(*(_CONSTANT.finditer(text, *span) for span in declared)):
            line = text.count("\n", 0, match.start("name")) + 1
            value = " ".join(match["value"].split())
            place = f"{file}:{line}"
            found.append(Constant(match["name"], value, place, file, match.span("value")))
    return tuple(found)


def variations_of(step: Step, asked: Sequence[str]) -> list[Variation]:
    """Every combination of values, but for the one that the step has.

    Args:
        asked: ``NAME=VALUE,VALUE`` or, for one of several constants of a name, ``FILE:LINE=…``.

    Raises:
        UsageError: For a constant that the step has not, or has several times, or without values.
    """
    constants = constants_of(step)
    axes: dict[Constant, list[str]] = {}
    for each in asked:
        name, _, given = each.partition("=")
        named = [constant for constant in constants if name in (constant.name, constant.place)]
        if not named:
            known = dict.fromkeys(constant.name for constant in constants)
            raise UnknownNameError("constant", name, known, f" of {step.name}")
        if len(named) > 1:
            places = ", ".join(constant.place for constant in named)
            raise UsageError(f"{step.name} has {name} at {places}", "name it by its place")
        values = [value.strip() for value in given.split(",")]
        if not all(values):
            raise UsageError(f"{each}: expected {name}=VALUE,VALUE,…")
        axes.setdefault(replace(named[0], name=name), []).extend(values)
    if len({constant.place for constant in axes}) < len(axes):
        raise UsageError("a constant is named twice, by its name and by its place")
    combined = itertools.product(*map(dict.fromkeys, axes.values()))
    found = (
        [pair for pair in zip(axes, v, strict=True) if pair[0].value != pair[1]] for v in combined
    )
    return [_variation(step, other) for other in found if other]


def _variation(step: Step, other: list[tuple[Constant, str]]) -> Variation:
    sources = sources_of(step)
    entry = next(name for name, file in sources.items() if file == step.entry)
    texts: dict[str, str] = {}
    # From the end, so that the spans before it stay where they are.
    for constant, value in sorted(other, key=lambda pair: -pair[0].span[0]):
        text = texts.get(constant.file) or sources[constant.file].read_text(encoding="utf-8")
        start, end = constant.span
        texts[constant.file] = text[:start] + value + text[end:]
    parts = [step.name, *(f"{constant.name}-{value}" for constant, value in other)]
    name = re.sub(r"[^\w-]+", "_", "-".join(parts))
    written = {name: overlay.written_source(name, text) for name, text in texts.items()}
    entry_file = overlay.composed(sources | written) / entry
    return Variation(
        replace(step, name=name, parent=step.name, base=None, entry=entry_file),
        ", ".join(f"{constant.name} = {value}" for constant, value in other),
        texts,
    )


def tune(
    name: str,
    asked: Sequence[str],
    shapes: Names | None = None,
    *,
    on: str | None = None,
    observer: Observer | None = None,
) -> Tuning:
    """Predict a step with other values of its constants; each is checked on a small shape.

    Args:
        name: A compiled step.
        asked: See :func:`variations_of`.
        shapes, on: As for :func:`~kernelbench.predict.api.predict`.

    Raises:
        UsageError: For what does not exist, and for a step that the model does not cover.
        EnvironmentProblem: Without torch, which makes a call's data.
        KernelbenchError: If the step as it is cannot be built, or its call fails.
    """
    require_torch("predicting")
    observer = observer or Observer()
    context = Context.find()
    step = context.lineages.select_one(name, "tune takes one step")
    variations = variations_of(step, asked)
    (plan,) = plan_check(
        context, [name], names_of(shapes) or ("all",), (), Emulation(), warn=observer.warning
    )
    small = context.trial_shape(step) or plan.shapes[0].name
    trying = _Trying(
        context, plan, model_of([step], on), context.shapes_for(plan.problem, [small])[0]
    )
    observer.progress(f"{name}: traced on the emulator")
    base = trying.predictions(step)
    tried = []
    for each in variations:
        observer.progress(f"{each.words}: tried on the emulator")
        tried.append(trying.tried(each, base))
    return Tuning(trying.model, step, base, tuple(sorted(tried, key=lambda each: each.change)))


@dataclass
class _Trying:
    """How variations are tried, and how long one may take."""

    context: Context
    plan: StepRun
    model: DeviceModel
    small: Any
    limit_s: float = 0.0

    @property
    def sms(self) -> int:
        return int(self.model.costs["sms"].value)

    def predictions(self, step: Step) -> tuple[Prediction, ...]:
        """On each shape; the first step sets the limit."""
        found = []
        began = time.monotonic()
        for shape in self.plan.shapes:
            if shape.name not in self.plan.skip:
                inputs = traced_inputs(self.plan.problem, shape)
                traced = trace(step, self.plan.problem, inputs.data, self.sms, limit_s=self.limit_s)
                found.append(predicted(self.context, self.model, step, shape.name, traced))
        # What polls for ever never ends; the step as it is was built meanwhile, too.
        self.limit_s = self.limit_s or 10 * (time.monotonic() - began)
        return tuple(found)

    def tried(self, variation: Variation, ours: Sequence[Prediction]) -> Variation:
        """With what is predicted of it, or what is wrong."""
        try:
            if why := self._wrong(variation.step):
                return replace(variation, wrong=f"{self.small.name}: {why}")
            both = zip(ours, self.predictions(variation.step), strict=True)
        except KernelbenchError as error:
            return replace(variation, wrong=" ".join(error.message.split()))
        return replace(variation, changes=tuple(changed(self.model, *pair) for pair in both))

    def _wrong(self, step: Step) -> str:
        problem, of = judging(self.plan.problem, step), self.plan.problem.input_classes[0]
        inputs = traced_inputs(problem, self.small)
        reference = problem.reference(inputs, self.small, of)
        result = result_of(step, problem, inputs.data, self.sms, limit_s=self.limit_s)
        try:
            outputs = problem.outputs_of(result, inputs)
        except ValueError as error:
            return str(error)
        return problem.compare(outputs, reference, self.small, of).reason
