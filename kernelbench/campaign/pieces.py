"""The pieces of a campaign: single commands, made one after another and never all at once."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from kernelbench.base.errors import UsageError
from kernelbench.campaign.campaign_file import Campaign, CampaignItem, ShapeRange
from kernelbench.project.building_blocks import source_sha
from kernelbench.project.context import Context
from kernelbench.project.problem import Problem
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.registry import Lineage, Step, require_runnable
from kernelbench.project.shipped import shipped_root
from kernelbench.runs.plan import with_problem


@dataclass(frozen=True, slots=True)
class Piece:
    """One command that needs no other."""

    #: Hash (hex) of what its result depends on: command, options, sources, shape, repetition and
    #: kernelbench itself.
    key: str
    arguments: tuple[str, ...]  #: Of the command line, ``kernelbench`` and ``--results`` left out.
    like: str  #: What pieces that take about as long have in common: the command and its steps.
    #: Whether it runs on a GPU where the campaign is one of GPUs; ``check`` never does.
    on_gpu: bool
    mutant: bool = False  #: Whether its step has a planted fault, which is to be found.

    def in_words(self) -> str:
        """The command, as it is typed."""
        return " ".join(("kernelbench", *self.arguments))


@dataclass
class PieceMaker:
    """Makes the pieces of a campaign."""

    context: Context
    campaign: Campaign
    code_sha: str
    #: Why combinations made no piece, with their number, after :meth:`pieces` has ended.
    left_out: dict[str, int] = field(default_factory=dict)

    def pieces(self) -> Iterator[Piece]:
        """Every piece, in the file's order; UsageError, with ``FILE:LINE``, for unknown names."""
        self.left_out = {}
        for item in self.campaign.items:
            for steps in self._arms(item):
                yield from self._of_steps(item, steps)

    def _arms(self, item: CampaignItem) -> list[tuple[Step, ...]]:
        """The steps of each command: one, or the two that are compared."""
        with _placed(item.place):
            chosen = self.context.lineages.select(item.steps)
            if item.command == "ab":
                arms = []
                for spec in item.steps:
                    arms.append(self.context.lineages.select_one(spec, "ab compares one with one"))
                    require_runnable(arms[-1])
                return [tuple(arms)]
            if item.peers:
                chosen += self.context.lineages.peers_of(chosen)
        if item.command == "check":
            chosen = [step for step in chosen if step.compiled]
        runnable = [step for step in chosen if step.status != "planned"]
        if not runnable:
            raise UsageError(f"{item.place}: none of these steps can be given to {item.command}")
        return [(step,) for step in runnable]

    def _of_steps(self, item: CampaignItem, steps: tuple[Step, ...]) -> Iterator[Piece]:
        names = [self._name(item, step) for step in steps]
        sources = [source_sha(step) for step in steps]
        lineages = self._lineages(item, steps)
        problem = load_problem(lineages[0])
        settings = [_settings_sha(lineage.path) for lineage in lineages]
        machines: list[tuple[str, ...]] = [("--sms", str(number)) for number in item.sms] or [()]
        for name, shape in self._shapes(item, problem):
            reason = next((r for s in steps if (r := problem.broken_limit(shape, s.limits))), "")
            if reason:
                line = f"{' and '.join(names)}: {reason}"
                self.left_out[line] = self.left_out.get(line, 0) + 1
                continue
            for sms in machines:
                arguments = (item.command, *names, "--shape", name, *sms, *item.options)
                for turn in range(item.repeat):
                    parts = [self.code_sha, arguments, sources, settings, repr(shape), turn]
                    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
                    like = " ".join((item.command, *names))
                    yield Piece(digest, arguments, like, item.command != "check", item.mutants)

    def _name(self, item: CampaignItem, step: Step) -> str:
        """How a worker calls a step, in its copy of the project."""
        if not step.submission:
            return step.name
        root = self.context.project.root
        file = (step.path / (step.entry or "")).resolve()
        if not file.is_relative_to(root.resolve()):
            raise UsageError(
                f"{item.place}: {step.title} is outside the project", f"put it below {root}"
            )
        return file.relative_to(root.resolve()).as_posix()

    def _lineages(self, item: CampaignItem, steps: Sequence[Step]) -> list[Lineage]:
        """The lineage whose problem each step solves; the problem is the same."""
        named = [each.name for each in item.shapes if each.name]
        with _placed(item.place):
            found = [
                self.context.lineage_for(with_problem(self.context, step, named)) for step in steps
            ]
            problems = [load_problem(lineage).name for lineage in found]
        if problems[0] != problems[-1]:
            raise UsageError(
                f"{item.place}: {steps[0].name} and {steps[-1].name} solve different problems"
            )
        return found

    def _shapes(self, item: CampaignItem, problem: Problem) -> Iterator[tuple[str, Any]]:
        """The shapes of an item with what each is called on the command line."""
        if not item.shapes:
            small = self.context.check_shapes(problem) if item.command == "check" else []
            yield from self._named(item.place, problem, small)
        for each in item.shapes:
            if each.fields:
                yield from self._ranged(each, problem)
            else:
                yield from self._named(each.place, problem, [each.name])

    def _named(self, place: str, problem: Problem, names: Sequence[str]) -> Iterator[Any]:
        with _placed(place):
            chosen = self.context.shapes_for(problem, names)
        yield from ((shape.name, shape) for shape in chosen)

    def _ranged(self, asked: ShapeRange, problem: Problem) -> Iterator[tuple[str, Any]]:
        base = self._fields_of(asked, problem) if asked.name else {}
        known = {
            _without_name(shape): name for name, shape in self.context.shapes_here(problem).items()
        }
        ways = [[*itertools.chain(*parts)] for parts in asked.fields.values()]
        for values in itertools.product(*ways):
            given = base | dict(zip(asked.fields, values, strict=True))
            text = ":".join(f"{name}={_in_words(value)}" for name, value in given.items())
            try:
                shape: Any = problem.parse_shape(text, given)
            except ValueError as error:
                raise UsageError(f"{asked.place}: {error}") from None
            # A shape that has a name goes by it: its rows are those of every other run of it.
            name = known.get(_without_name(shape), text)
            yield name, self.context.shapes_here(problem).get(name, shape)

    def _fields_of(self, asked: ShapeRange, problem: Problem) -> dict[str, Any]:
        """A named shape's fields as they stand in the file."""
        for file in (self.context.project.shapes_file, shipped_root() / "shapes.yaml"):
            found = _shapes_file(file).get(problem.name, {}).get(asked.name)
            if found is not None:
                return dict(found)
        raise UsageError(
            f"{asked.place}: no shape {asked.name!r} of {problem.name}",
            f"there are {', '.join(self.context.shapes_here(problem))}",
        )


@contextlib.contextmanager
def _placed(place: str) -> Iterator[None]:
    """Have a UsageError begin with the file and line that it is about."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{place}: {error.message}", error.hint) from None


@functools.cache
def _shapes_file(file: Path) -> dict[str, Any]:
    """What a shapes file holds; it has been read and found right."""
    if not file.is_file():
        return {}
    found = yaml.safe_load(file.read_text(encoding="utf-8"))
    return dict(found or {})


@functools.cache
def _settings_sha(lineage: Path) -> str:
    """Hash of what a lineage has beside its steps: ``lineage.toml`` and a problem of its own."""
    digest = hashlib.sha256()
    for file in sorted([*lineage.glob("*.toml"), *lineage.glob("*.py")]):
        content = file.read_bytes()
        digest.update(f"{file.name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _without_name(shape: Any) -> str:
    if not is_dataclass(shape):
        return repr(shape)
    return repr([(f.name, getattr(shape, f.name)) for f in fields(shape) if f.name != "name"])


def _in_words(value: Any) -> str:
    """A value as ``--shape`` takes it."""
    if isinstance(value, list):
        return ",".join(_in_words(each) for each in value)
    return str(value).lower() if isinstance(value, bool) else str(value)
