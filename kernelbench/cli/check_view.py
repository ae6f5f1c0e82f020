"""How the results of ``kernelbench check`` look on the terminal."""

from __future__ import annotations

import functools
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kernelbench.base import console
from kernelbench.base.files import from_here
from kernelbench.checks.api import FILE_SMS, CheckPlan
from kernelbench.checks.replay import Look, Replayed, Shortened
from kernelbench.checks.rows import CheckRow, FileOptions, Seen, StepCheck
from kernelbench.emulator import diagnostics
from kernelbench.emulator.assumptions import ASSUMPTIONS, LAUNCH_ASSUMPTIONS
from kernelbench.emulator.decisions import in_words
from kernelbench.emulator.findings import Access, Waiting, first_cause
from kernelbench.emulator.identity import code_at
from kernelbench.machine import environment
from kernelbench.project.shipped import shipped_names, shipped_root

_STYLES = {"clean": "bold green", "finding": "bold red", "interrupted": "yellow"}

#: Of findings: blocks with excerpts, a line each, or a line each as GitHub annotates files by.
LAYOUTS = ("full", "concise", "github")

_SHOWN_BRANCHES = 40
_SHOWN_LINES = 6
_MOST_FOLDERS = 2_000
_SHOWN_DECISIONS = 12


class View(console.Watching):
    """Renders a check to one console."""

    def __init__(
        self, to: console.Console, max_findings: int, *, repeats: bool = True, layout: str = "full"
    ) -> None:
        """Render to ``to``.

        Args:
            max_findings: Blocks for each step.
            repeats: Whether a user can run again what is shown.
            layout: One of :data:`LAYOUTS`.
        """
        self._to = to
        self._repeats = repeats
        self._layout = layout
        self._max_findings = max_findings
        self._budget = False
        self._plan: CheckPlan | None = None

    def planned(self, plan: CheckPlan) -> None:
        """Say what is about to run."""
        self._plan = plan
        if self._layout != "full":
            return
        runs, request = plan.steps, plan.request
        self._budget = bool(request.budget_s or plan.files)
        names = [Path(name).name for name in plan.files] or [run.step.name for run in runs]
        label = ", ".join(names) if plan.files else names[0]
        if runs and len(names) > 1:
            label = f"{names[0]} … {names[-1]}"
        sms = ", ".join(map(str, request.sms))
        budget = f", {request.budget_s:g} s a step" if request.budget_s else ""
        count = f"{'up to ' if self._budget else ''}{request.schedules}"
        plural = "s" if request.schedules > 1 else ""
        parts = ["executor emulator, checking", environment.cpu_name()]
        if plan.files:
            parts += [f"{sms} SMs", f"{count} schedule{plural} of each launch"]
        else:
            parts += [
                f"SMs {sms}", f"{count} schedule{plural} each{budget}",
                ", ".join(runs[0].classes),
                *(["calls in sequence"] if request.sequence else []),
            ]  # fmt: skip
        self._print(label, " · ".join([*parts, f"seed {request.seed}"]))

    def results(self, steps: Sequence[StepCheck], unmatched: Sequence[str] = ()) -> None:
        """The table, findings and branches by step, what ``--allow`` missed, the conclusion."""
        rows = [row for step in steps for row in step.rows]
        if not rows:
            return
        if self._layout != "full":
            errors = sum(self._short(step) for step in steps)
            self._conclude(rows, errors)
            return
        shown = []
        of_steps = self._plan is None or self._plan.steps
        whose, which = ("step", "shape") if of_steps else ("file", "kernel")
        # A line below has all of a reason.
        for row in [row for row in rows if row.status != "skipped"] or rows:
            style = _STYLES.get(row.status, console.STYLES.get(row.status, ""))
            whole = row.schedules == row.asked or self._budget
            shown.append(
                {
                    whose: row.step,
                    which: row.shape,
                    "": console.Text(row.status, style=style),
                    "schedules": row.schedules if whole else f"{row.schedules} of {row.asked}",
                    "findings": _count_of(row.seen),
                    "seconds": f"{row.seconds:.1f}",
                }
            )
        figures = ("schedules", "findings", "seconds")
        spare = [[heading] for heading in reversed(figures)]
        console.show(shown, self._to, right=figures, prose=(whose, which), spare=spare)
        errors = sum(self._findings(step) for step in steps)
        self._assumptions(rows)
        self._cut_short(rows)
        for step in steps:
            for identity in step.unmatched:
                self._line(
                    f"{step.step}: step.toml allows {identity}, which was not found", "yellow"
                )
        for identity in unmatched:
            self._line(f"--allow {identity} matched nothing", "yellow")
        for step in steps:
            # A shape that ended early has left most branches alone.
            if all(row.status == "clean" for row in step.rows):
                self._branches(step)
            if step.not_reached and any(row.status == "clean" for row in step.rows):
                self._line(f"{step.step}: not reached: {'; '.join(step.not_reached)}", "bold")
        self._conclude(rows, errors)

    def _conclude(self, rows: Sequence[CheckRow], errors: int) -> None:
        counts = {"clean": 0} | Counter(row.status for row in rows)
        verdict = ", ".join(f"{count} {status}" for status, count in counts.items())
        found = f" ({errors} error{'' if errors == 1 else 's'})" if errors else ""
        self._to.print(f"→ {verdict} of {len(rows)}{found}")
        if self.path is not None:
            self._line(f"saved {from_here(self.path)}", "dim")

    def repeated(self, differences: Sequence[str]) -> None:
        """Whether a check that was repeated came out as it did."""
        for line in differences:
            self._line(f"otherwise than recorded: {line}", "bold red")
        if not differences:
            self._line("repeated: every row came out as recorded")

    def shortened(self, found: Shortened) -> None:
        """What came of looking for a shorter schedule."""
        head = f"{found.step} {found.shape}: {found.identity}"
        if found.file is None:
            self._line(f"{head}: no schedule: {found.why}", "yellow")
            return
        file = found.file
        how = f"in sequence, as the seed draws it ({file.calls})"
        if file.decisions is not None:
            how = (
                f"{file.made:,} decisions, {file.kept:,} of them not usual → "
                f"{len(file.decisions)} ({found.trials} trials)"
            )
        self._line(f"{head}: {how}: {found.path}")

    def replayed(self, found: Replayed) -> None:
        """The schedule of a file, and how often it has shown what it is of."""
        file = found.file
        count = "as drawn" if file.decisions is None else f"{len(file.decisions)} decisions"
        self._print(file.step, f"{file.shape} · {file.inputs} · SMs {file.sms} · replayed, {count}")
        for decision in (file.decisions or ())[:_SHOWN_DECISIONS]:
            self._line(f"  {in_words(decision)}", "dim")
        if found.runs:
            last = found.runs[-1]
            for style, line in diagnostics.report_lines(last.report, self._max_findings):
                self._line(f"  {line}", diagnostics.STYLES[style])
            if last.reason.startswith("wrong: "):
                self._line(f"  {last.reason}", "bold")
        times = f"{found.shown} of {len(found.runs)}"
        self._line(f"→ {file.identity} in {times}: {file.text}", "bold")

    def looked(self, found: Replayed | None, look: Look) -> None:
        """Where the trace is, and the state at the finding."""
        if found is None:
            self._line("no schedule was run: nothing to look at", "yellow")
            return
        if look.state:
            at = f"at {found.file.identity}" if found.file.identity else "nothing was found"
            self._line(f"{found.file.step} {found.file.shape}: {at}", "bold")
            missed = () if found.state or not found.file.identity else ("it was not seen again",)
            for line in found.state or missed:
                self._line(f"  {line}")
        if look.trace is not None:
            what = found.file.identity or "a schedule without a finding"
            self._line(f"trace of {what}: {look.trace} (open it at ui.perfetto.dev)")

    def _print(self, head: str, text: str) -> None:
        self._to.print(console.Text.assemble((f"{head}  ", "bold"), text))

    def _line(self, text: str, style: str = "", no_wrap: bool = False) -> None:
        self._to.say(text, style, no_wrap=no_wrap)

    def _findings(self, step: StepCheck) -> int:
        """A block for each cause, then what else ended a shape; returns the number of errors."""
        causes: dict[str, list[tuple[CheckRow, Seen]]] = {}
        for row in step.rows:
            for seen in row.seen:
                causes.setdefault(seen.finding.identity, []).append((row, seen))
        open_ones = [found for found in causes.values() if not all(s.allowed for _, s in found)]
        every = [found[0][1].finding for found in open_ones]
        open_ones.sort(key=lambda found: diagnostics.ranks(found[0][1].finding, every))
        blocks: dict[object, list[Sequence[tuple[CheckRow, Seen]]]] = {}
        for found in open_ones:
            row, seen = found[0]
            kernel = row.shape if self._plan is not None and self._plan.files else ""
            cause = diagnostics.cause_of(seen.finding, seen.waits, [s.finding for s in row.seen])
            launches = diagnostics.launches_of(seen.finding, kernel)
            blocks.setdefault(launches or (kernel, cause), []).append(found)
        for block in [*blocks.values()][: self._max_findings]:
            first, *others = sorted(block, key=lambda found: not _is_cause(*found[0]))
            self._cause(step, first, others)
        if len(blocks) > self._max_findings:
            self._line(f"… and {len(blocks) - self._max_findings} more findings", "dim")
        self._reasons(step, explained=bool(open_ones))
        for found in causes.values():
            row, seen = found[0]
            if found not in open_ones:
                head = diagnostics.headline_of(seen.finding, "allowed")
                where = f"{seen.finding.access.where}, " if seen.finding.access.where else ""
                self._line(f"{head} ({where}{seen.finding.identity})", "yellow")
                self._line(f"  = allowed: {seen.allowed}")
        return len(blocks)

    def _short(self, step: StepCheck) -> int:
        """A line for each cause and for what else ended a shape; returns the number of errors."""
        seen = {each.finding.identity: each for row in step.rows for each in row.seen}
        for each in seen.values():
            finding = each.finding
            access = finding.access
            if each.waits and not access.where:
                access = first_cause(each.waits).access
            name, _, number = access.where.rpartition(":")
            file = self._locate(access)
            line, column, _ = diagnostics.source_of(file, number)
            where = f"{from_here(file) if file else name}:{line}{column}" if name else step.step
            severity = "allowed" if each.allowed else "error"
            text = f"{finding.text} ({finding.identity})"
            self._short_line(where, severity, finding.kind, text)
        reasons = {(row.status, row.reason) for row in step.rows if row.reason and not row.seen}
        for status, reason in sorted(reasons):
            self._short_line(step.step, "error", status, reason.removeprefix(f"{status}: "))
        return sum(not each.allowed for each in seen.values())

    def _short_line(self, where: str, severity: str, kind: str, text: str) -> None:
        if self._layout == "concise":
            self._line(f"{where}: {severity}[{kind}]: {text}")
            return
        file, *at = where.split(":")
        keys = zip(("line", "col"), at, strict=False)
        place = f"file={file}," if at else ""
        place += "".join(f"{key}={number}," for key, number in keys)
        level = "error" if severity == "error" else "notice"
        text = text.replace("%", "%25").replace("\n", "%0A")
        said = f"::{level} {place}title={kind}::{text}"
        self._to.print(said, markup=False, highlight=False)

    def _cause(
        self,
        step: StepCheck,
        found: Sequence[tuple[CheckRow, Seen]],
        others: Sequence[Sequence[tuple[CheckRow, Seen]]],
    ) -> None:
        """A block, with a line for each other place where the cause shows."""
        row, seen = next(each for each in found if not each[1].allowed)
        again = f", in {seen.schedules} schedules" if seen.schedules > 1 else ""
        when = f"in sequence: {seen.calls}" if seen.calls else f"schedule {seen.index + 1}{again}"
        sms = f"{seen.sms} SM{'s' if seen.sms > 1 else ''}"
        names = " ".join(each.shape for each, _ in found)
        rows = (
            f"{step.step}, {len(found)} of {len(step.rows)}: {names}"
            if len(found) > 1
            else (f"{step.step}, {row.shape}")
        )
        notes = [*self._arrivals(step, first_cause(seen.waits))] if seen.waits else []
        for other in others:
            there = other[0][1]
            where = first_cause(there.waits).access if there.waits else there.finding.access
            shapes = " ".join(each.shape for each, _ in other)
            same = where == seen.finding.access
            what = (same and there.finding.buffer) or where
            notes.append(("also", f"{what}, in {shapes} ({there.finding.identity})"))
        notes += [("seen", f"{rows}; first with {seen.inputs}, {sms}, {when}")]
        if self._plan is not None and self._repeats:
            notes.append(("rerun", self._rerun(step, row, seen)))
            notes.append(("more", f"kernelbench explain {seen.finding.kind}"))
        self._to.print()
        for style, line in diagnostics.finding_lines(
            seen.finding, seen.waits, notes, locate=self._locate if self._repeats else None,
            width=min(self._to.width, diagnostics.WIDTH),
        ):  # fmt: skip
            # Notes are folded, but for a command to be copied.
            self._line(line, diagnostics.STYLES[style], no_wrap=style == "note")

    def _arrivals(self, step: StepCheck, cause: Waiting) -> Iterator[tuple[str, str]]:
        """Which lines arrive at a barrier that lacks something, and which of its parent's."""
        file = self._locate(cause.access)
        if file is None or not cause.needs or " " in cause.what:
            return
        here = diagnostics.arrivals_in(file, cause.what)
        yield from _noted("arrivals", file.name, here)
        runs = self._plan.steps if self._plan else ()
        for own in (each.step for each in runs if each.step.name == step.step):
            theirs = own.lineage_path / (own.parent or "") / file.name
            if own.parent and file.parent == own.path and theirs.is_file():
                lines = diagnostics.arrivals_in(theirs, cause.what).items()
                lost = {at: code for at, code in lines if code not in here.values()}
                yield from _noted(f"only in {own.parent}", file.name, lost)

    def _rerun(self, step: StepCheck, row: CheckRow, seen: Seen) -> str:
        """The options that show a finding again."""
        assert self._plan is not None
        plan = self._plan
        seed, count = (plan.request.seed, seen.index + 1) if seen.seed < 0 else (seen.seed, 1)
        schedule = ["--seed", str(seed), "--schedules", str(count)]
        if not plan.files:
            # A step outside of the project is found by its folder alone.
            folders = {Path(name).resolve(): name for name in plan.names if Path(name).is_dir()}
            paths = [run.step.path.resolve() for run in plan.steps if run.step.name == step.step]
            name = next((folders[path] for path in paths if path in folders), step.step)
            words = [name, "--shape", row.shape, "--sms", str(seen.sms), *schedule]
            return f"kernelbench check {shlex.join(words)}"
        from kernelbench.checks.files import programs_of

        files = next(
            [name, *others]
            for name, others in programs_of(plan.files)
            if Path(name).name == step.step
        )
        flags = ["--nvcc", shlex.join(plan.given.flags)] if plan.given.flags else []
        if plan.given.build:
            flags += ["--build", plan.given.build]
        if plan.given.arch != FileOptions.arch:
            flags += ["--arch", str(plan.given.arch)]
        if plan.given.gpus > 1:
            flags += ["--gpus", str(plan.given.gpus)]
        if (seen.sms,) != FILE_SMS:
            flags += ["--sms", str(seen.sms)]
        arguments = ["--", *plan.given.arguments] if plan.given.arguments else []
        return f"kernelbench check {shlex.join([*files, *flags, *schedule, *arguments])}"

    def _reasons(self, step: StepCheck, *, explained: bool) -> None:
        """What ended shapes early and is no finding, such as wrong results, each once."""
        reasons: dict[str, list[CheckRow]] = {}
        for row in step.rows:
            fatal = [seen for seen in row.seen if row.reason.startswith(f"{seen.finding.kind}: ")]
            if row.reason and not fatal:
                reasons.setdefault(f"{row.status}: {row.reason}", []).append(row)
        for rows in reasons.values():
            first = rows[0]
            self._to.print()
            why = first.reason.removeprefix(f"{first.status}: ")
            names = " ".join(row.shape for row in rows)
            why, ends_well, cause = why.partition("; it ends well ")
            self._line(f"{step.step} {names}: {first.status}: {why}", "bold")
            if ends_well:
                self._line(f"  = cause: it ends well {cause}")
            if explained and first.status == "wrong":
                self._line("  = note: most likely a consequence of the errors above")

    def _locate(self, access: Access) -> Path | None:
        """The file of an access, if its line says there what the finding quotes."""
        name, _, line = access.where.rpartition(":")
        if self._plan is None or not line.isdecimal():
            return None
        shipped = shipped_root()
        folders = [Path.cwd(), *(Path(file).absolute().parent for file in self._plan.files)]
        for run in self._plan.steps:
            folders += [run.step.path.parent, run.step.path]
        folders += [shipped / each for each in shipped_names()]
        for folder in folders:
            file = folder / name
            if code_at(file, int(line)) == access.code and access.code:
                return file
        # A program that was built elsewhere says no more than a source's name.
        below = _files_below(name) if self._plan.files else ()
        return next((each for each in below if code_at(each, int(line)) == access.code), None)

    def _assumptions(self, rows: Sequence[CheckRow]) -> None:
        """What verdicts rest on beyond PTX's text, and whose."""
        every = ASSUMPTIONS | LAUNCH_ASSUMPTIONS
        for name, sentence in every.items():
            resting = dict.fromkeys(row.step for row in rows if name in row.assumptions)
            if resting:
                self._line(f"assumed  {name}: {sentence} ({', '.join(resting)})", "yellow")

    def _cut_short(self, rows: Sequence[CheckRow]) -> None:
        """How many shapes the budget of time has ended within the first round."""
        if self._plan is None or not self._plan.steps:
            return
        request, runs = self._plan.request, self._plan.steps
        whole = len(request.sms) * len(runs[0].classes)
        count = sum(row.status == "clean" and row.schedules < whole for row in rows)
        if count:
            self._line(
                f"{count} of {len(rows)} shapes had no time for every number of SMs and call in "
                "sequence: --schedules 1 runs them all",
                "yellow",
            )

    def _branches(self, step: StepCheck) -> None:
        if step.coverage is None:
            if step.note:
                self._line(f"{step.step}: branches taken are unknown: {step.note}", "dim")
            return
        found = step.coverage
        self._line(
            f"{step.step}: {found.taken} of {found.sides} sides of branches taken"
            + (":" if found.missed else ""),
            "bold",
        )
        if not found.missed:
            return
        shown = [
            {
                "  not taken": f"  {line.file}:{line.line}",
                "sides": f"{line.sides - line.taken} of {line.sides}",
                "reached": f"{line.executions}×",
                "": line.text[:70],
            }
            for line in found.missed[:_SHOWN_BRANCHES]
        ]
        figures = ("sides", "reached")
        console.show(shown, self._to, right=figures, prose=("  not taken", ""), spare=[figures])
        if len(found.missed) > _SHOWN_BRANCHES:
            self._line(f"  … and {len(found.missed) - _SHOWN_BRANCHES} more lines", "dim")


def _is_cause(row: CheckRow, seen: Seen) -> bool:
    return diagnostics.is_cause(seen.finding, seen.waits, [each.finding for each in row.seen])


@functools.cache
def _files_below(name: str) -> tuple[Path, ...]:
    """Files of a name below the working folder, as far as they are soon found."""
    found: list[Path] = []
    for number, (folder, below, files) in enumerate(os.walk(Path.cwd())):
        below[:] = sorted(each for each in below if not each.startswith("."))
        found += [Path(folder, name)] if name in files else []
        if number == _MOST_FOLDERS:
            break
    return tuple(found)


def _noted(heading: str, name: str, lines: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    """A note with lines of a file."""
    if lines:
        shown = [f"{name}:{at} {code}" for at, code in lines.items()]
        yield heading, " · ".join(shown[:_SHOWN_LINES])


def _count_of(seen: Sequence[Seen]) -> str:
    """How many findings a row has; allowed ones beside it."""
    allowed = sum(bool(each.allowed) for each in seen)
    return f"{len(seen) - allowed}" + (f" + {allowed} allowed" if allowed else "")
