"""What launches of a PTX kernel found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kernelbench.base.errors import IncorrectError
from kernelbench.emulator import findings
from kernelbench.emulator.diagnostics import finding_lines
from kernelbench.emulator.findings import (
    WHICH_STAYS,
    EmulatorReport,
    Finding,
    Waiting,
    first_cause,
)
from kernelbench.ptx.severity import Lines, Severity, severity_of
from kernelbench.ptx.sources import PtxSymbols


@dataclass(frozen=True)
class PtxFinding:
    """A finding with its source."""

    finding: Finding
    severity: Severity
    #: ``file:line`` of the compiler's source, innermost first; empty without ``.loc``.
    source: tuple[str, ...]
    other_source: tuple[str, ...]  #: The same of what it conflicts with.
    seed: int  #: Of the schedule that showed it first.
    schedules: int = 1  #: In how many it was seen.

    @property
    def identity(self) -> str:
        """Equal for the same fault found again."""
        return self.finding.identity


#: How findings begin of launches that take longer than they may.
OVERDUE = "the kernel has not ended after"


@dataclass(frozen=True)
class PtxReport:
    """What a launch found, in all its schedules."""

    kernel: str  #: Its name.
    findings: tuple[PtxFinding, ...]
    waits: tuple[Waiting, ...]
    schedules: int
    seconds: float  #: Spent in the emulator.
    error: str = ""  #: Why the launch ended early, in one line; empty if it did not.
    #: What it rests on, keys of :data:`kernelbench.emulator.assumptions.ASSUMPTIONS` and
    #: ``LAUNCH_ASSUMPTIONS``.
    assumptions: tuple[str, ...] = ()
    #: What may explain that it ends early, or that its program fails.
    notes: tuple[PtxFinding, ...] = ()
    #: Whether the memory that it writes holds the same bytes behind each schedule, and would behind
    #: each again; not known of launches that others run beside.
    leaves_the_same: bool = False

    @property
    def errors(self) -> tuple[PtxFinding, ...]:
        """The findings that are not formal."""
        return tuple(each for each in self.findings if each.severity == "error")

    @property
    def clean(self) -> bool:
        """Whether the launch ended, without an error."""
        return not self.errors and not self.error

    @property
    def never_ends(self) -> bool:
        """Whether it hangs in every schedule, or was ended after the time that it was given."""
        hangs = (each for each in self.findings if each.finding.kind == "hang")
        return any(
            each.schedules == self.schedules or each.finding.text.startswith(OVERDUE)
            for each in hangs
        )

    def require_clean(self) -> None:
        """Raise IncorrectError with the first error, in one line, unless it is clean."""
        if not self.clean:
            report = EmulatorReport(tuple(each.finding for each in self.errors), self.waits)
            raise IncorrectError(f"{self.kernel}: {report.headline() or self.error}")

    def lines(self) -> Iterator[str]:
        """The report in words."""
        for each in self.findings:
            chains = (("source", each.source), ("other source", each.other_source))
            notes = [(name, " in ".join(chain)) for name, chain in chains if chain]
            notes.append(("seen", f"in {each.schedules} of {self.schedules} schedules"))
            severity = "error" if each.severity == "error" else "allowed"
            waits = self.waits if each.finding.kind == "hang" else ()
            for _, text in finding_lines(each.finding, waits, notes, severity=severity):
                yield text


@dataclass(frozen=True)
class Launched:
    """A launch of a kernel and what was found in it."""

    form: str  #: Its extents in words.
    seed: int  #: Of its first schedule.
    report: PtxReport
    run: int = -1  #: The seed of main's run in single schedules of which it is; -1 for no such run.

    def resting_on(self, assumption: str) -> Launched:
        """The same, if that is so."""
        assumed = (*self.report.assumptions, assumption)
        return replace(self, report=replace(self.report, assumptions=assumed))

    def told_of_leftovers(self, memory: str) -> Launched:
        """The same, with what it has found there of earlier launches first."""
        left = (each for each in self.report.notes if each.finding.kind == "not-reset")
        return self.with_first(each for each in left if memory_named(each) == memory)

    def with_first(self, first: Iterable[PtxFinding]) -> Launched:
        """The same, with these ahead of what was found: first those at which a hang's cause is."""
        found = [*first]
        if self.report.waits:
            where = first_cause(self.report.waits).access.where
            found.sort(key=lambda each: each.finding.access.where != where)
        return replace(self, report=replace(self.report, findings=(*found, *self.report.findings)))


def memory_named(note: PtxFinding) -> str:
    """The allocation or variable, whichever argument points there."""
    return note.finding.buffer.partition(" (")[0]


def found_in(raw: Mapping[str, Any], symbols: PtxSymbols, seed: int) -> tuple[PtxFinding, ...]:
    """The findings of one schedule, from what the runtime reported."""
    resolved = findings.resolve_report(raw, symbols)
    places = [
        (symbols.line(each.get("pc")), symbols.line(each.get("other_pc")))
        for each in raw["findings"]
    ]
    # Lines that are in several places of the code are one finding.
    benign: dict[tuple[str, Lines], _Seen] = {}
    lines: dict[tuple[str, ...], list[Lines]] = {}
    in_time = findings.findings_in_time(raw, symbols, resolved.waits)
    for each, both, finding in zip(raw["findings"], places, in_time, strict=True):
        lines.setdefault(_key(finding), []).append(both)
        seen = _Seen(
            bool(each.get("one_warp")), bool(each.get("same_value")), bool(each.get("formal")),
            frozenset(each.get("readers") or ()),
        )  # fmt: skip
        known = benign.get((finding.kind, both))
        benign[finding.kind, both] = seen if known is None else known.and_then(seen)
    out, own = [], []
    for finding in resolved.findings:
        all_lines = lines.get(_key(finding), [(None, None)])
        severities = {
            severity_of(finding.kind, both, symbols, *benign.get((finding.kind, both), _Seen()))
            for both in all_lines
        }
        severity: Severity = "error" if "error" in severities else "formal"
        here, there = all_lines[-1]
        seen = benign.get((finding.kind, (here, there)), _Seen())
        stays = severity == "formal" and here == there and seen.one_stays(finding)
        words = replace(finding, text=finding.text + WHICH_STAYS) if stays else finding
        made = PtxFinding(words, severity, symbols.chain(here), symbols.chain(there), seed)
        out.append(made)
        own += [made] if finding in in_time else []
    faults = [each.finding for each in own if each.severity == "error"]
    return tuple(out if findings.have_causes(faults) else own)


def notes_in(raw: Mapping[str, Any], symbols: PtxSymbols, seed: int) -> tuple[PtxFinding, ...]:
    """What may explain that a program fails, from the same; no finding by itself."""
    return found_in({"findings": raw["notes"]}, symbols, seed)


class _Seen(NamedTuple):
    """What :func:`severity_of` asks of a finding, each time that it was seen."""

    one_warp: bool = False
    same_value: bool = False
    formal: bool = False
    readers: frozenset[int] = frozenset()

    def one_stays(self, of: Finding) -> bool:
        """Whether lanes of a warp stored different values."""
        return self.one_warp and not self.same_value and of.text.startswith("a store writes")

    def and_then(self, other: _Seen) -> _Seen:
        """What holds of both sightings of a finding."""
        both = self.readers and other.readers
        return _Seen(
            self.one_warp and other.one_warp, self.same_value and other.same_value,
            self.formal and other.formal,
            self.readers | other.readers if both else frozenset(),
        )  # fmt: skip


def _key(finding: Finding) -> tuple[str, ...]:
    """Of findings of one identity, those of other lines are others."""
    return finding.identity, finding.access.where, finding.other.where if finding.other else ""


def each_once(all_findings: Iterable[PtxFinding]) -> tuple[PtxFinding, ...]:
    """Findings of several schedules, each once, in the order in which they were seen."""
    seen: dict[str, PtxFinding] = {}
    seeds: dict[str, set[int]] = {}
    for each in all_findings:
        first = seen.setdefault(each.identity, each)
        seeds.setdefault(each.identity, set()).add(each.seed)
        if each.severity == "error" != first.severity:
            seen[each.identity] = each  # why it is one
    order = findings.causes_first([each.finding for each in seen.values()])
    each_of = {each.finding: each for each in seen.values()}
    return tuple(
        replace(each_of[each], schedules=len(seeds[each_of[each].identity])) for each in order
    )
