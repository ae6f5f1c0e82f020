"""How the results of ``kernelbench check`` look on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from kernelbench.base import console
from kernelbench.checks.api import CheckPlan
from kernelbench.checks.replay import Look, Replayed, Shortened
from kernelbench.checks.rows import CheckRequest, CheckRow, Seen, StepCheck
from kernelbench.emulator import findings
from kernelbench.emulator.assumptions import ASSUMPTIONS, LAUNCH_ASSUMPTIONS
from kernelbench.emulator.decisions import in_words
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.machine import environment

_STYLES = {"clean": "bold green", "finding": "bold red", "interrupted": "yellow"}
_SHOWN_BRANCHES = 40
_SHOWN_DECISIONS = 12


class View:
    """Renders a check to one console."""

    def __init__(self, to: console.Console, max_findings: int) -> None:
        self._to = to
        self._max_findings = max_findings
        self._budget = False
        self._path: Path | None = None

    def keep_path(self, path: Path) -> None:
        """Say last where the record is."""
        self._path = path

    def head(self, plan: CheckPlan) -> None:
        """Say what is about to run."""
        runs, request = plan.steps, plan.request
        self._budget = bool(request.budget_s)
        names = [run.step.name for run in runs]
        label = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        sms = ", ".join(map(str, request.sms))
        budget = f", {request.budget_s:g} s a step" if request.budget_s else ""
        count = f"{'up to ' if request.budget_s else ''}{request.schedules}"
        parts = [
            "executor emulator, checking", environment.cpu_name(), f"SMs {sms}",
            f"{count} schedule{'s' if request.schedules > 1 else ''} each{budget}",
            ", ".join(runs[0].classes),
            *(["calls in sequence"] if request.sequence else []),
            f"seed {request.seed}",
        ]  # fmt: skip
        self._print(label, " · ".join(parts))

    def file_head(self, names: Sequence[str], request: CheckRequest) -> None:
        """The same of files that are no steps."""
        count, sms = request.schedules, request.sms[0]
        parts = [
            "executor emulator, checking", environment.cpu_name(), f"{sms} SMs",
            f"{count} schedule{'s' if count > 1 else ''} of each launch", f"seed {request.seed}",
        ]  # fmt: skip
        self._budget = True
        self._print(", ".join(names), " · ".join(parts))

    def results(self, steps: Sequence[StepCheck], unmatched: Sequence[str] = ()) -> None:
        """The table, then findings and branches step by step, then the conclusion.

        Args:
            unmatched: What the command allows and no step has.
        """
        rows = [row for step in steps for row in step.rows]
        if not rows:
            return
        table = console.make_table(
            [
                ("step", "left"),
                ("shape", "left"),
                ("", "left"),
                ("schedules", "right"),
                ("findings", "right"),
                ("seconds", "right"),
            ]
        )
        for row in rows:
            style = _STYLES.get(row.status, console.STYLES.get(row.status, ""))
            count = str(row.schedules)
            table.add_row(
                console.escape(row.step),
                row.shape,
                console.Text(row.status, style=style),
                count if row.schedules == row.asked or self._budget else f"{count} of {row.asked}",
                str(len(row.seen)),
                f"{row.seconds:.1f}",
            )
        self._to.print(table)
        for step in steps:
            for row in step.rows:
                self._row(row)
        self._assumptions(rows)
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
        counts = {"clean": 0} | Counter(row.status for row in rows)
        verdict = ", ".join(f"{count} {status}" for status, count in counts.items())
        self._to.print(f"→ {verdict} of {len(rows)}")
        if self._path is not None:
            self._line(f"saved {self._path}", "dim")

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
            for line in findings.lines(last.report, self._max_findings):
                self._line("  " + line)
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
        self._to.print(console.Text.assemble((f"{head}  ", "bold"), text), soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        self._to.print(console.Text(text, style=style), soft_wrap=True)

    def _row(self, row: CheckRow) -> None:
        fatal = [seen for seen in row.seen if row.reason.startswith(f"{seen.finding.kind}: ")]
        if row.reason and not fatal:
            why = row.reason.removeprefix(f"{row.status}: ")
            self._line(f"{row.step} {row.shape}: {row.status}: {why}", "bold")
        for seen in row.seen[: self._max_findings]:
            self._seen(row, seen)
        if len(row.seen) > self._max_findings:
            self._line(f"  … and {len(row.seen) - self._max_findings} more", "dim")

    def _seen(self, row: CheckRow, seen: Seen) -> None:
        self._line(f"{row.step} {row.shape}:" + (" allowed" if seen.allowed else ""), "bold")
        for line in findings.lines(EmulatorReport((seen.finding,), seen.waits)):
            self._line("  " + line)
        again = f"; in {seen.schedules} schedules" if seen.schedules > 1 else ""
        when = f"in sequence: {seen.calls}" if seen.calls else f"schedule {seen.index + 1}{again}"
        sms = f"{seen.sms} SM{'s' if seen.sms > 1 else ''}"
        self._line(f"    seen     {seen.inputs}, {sms}, {when}")
        if seen.allowed:
            self._line(f"    allowed  {seen.allowed}")

    def _assumptions(self, rows: Sequence[CheckRow]) -> None:
        """What verdicts rest on beyond PTX's text, and whose."""
        every = ASSUMPTIONS | LAUNCH_ASSUMPTIONS
        for name, sentence in every.items():
            resting = dict.fromkeys(row.step for row in rows if name in row.assumptions)
            if resting:
                self._line(f"assumed  {name}: {sentence} ({', '.join(resting)})", "yellow")

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
        table = console.make_table(
            [("  not taken", "left"), ("sides", "right"), ("reached", "right"), ("", "left")]
        )
        for line in found.missed[:_SHOWN_BRANCHES]:
            table.add_row(
                f"  {console.escape(line.file)}:{line.line}",
                f"{line.sides - line.taken} of {line.sides}",
                f"{line.executions}×",
                console.Text(line.text[:70]),
            )
        self._to.print(table)
        if len(found.missed) > _SHOWN_BRANCHES:
            self._line(f"  … and {len(found.missed) - _SHOWN_BRANCHES} more lines", "dim")
