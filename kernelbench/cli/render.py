"""How results look on the terminal: one line per shape, units fixed, verdict last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from kernelbench.base import console
from kernelbench.cli.figure_texts import TimeUnit, error_text, unit_for
from kernelbench.emulator import findings
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.machine import environment
from kernelbench.problems.gpumode import TaskScore
from kernelbench.project.model import Lineage
from kernelbench.records.run_record import UNJUDGED, Result, RunRecord
from kernelbench.runs.api import RunPlan
from kernelbench.runs.peers import Standing, standings


class RunView:
    """Renders a run to one console."""

    def __init__(self, to: console.Console) -> None:
        self._to = to
        self._lineages: list[Lineage] = []
        self._reports: list[tuple[str, str, str, EmulatorReport]] = []
        self._path: Path | None = None
        self._shapes = 0

    def keep_report(self, step: str, shape: str, inputs: str, report: EmulatorReport) -> None:
        """Show a report of the emulator after the rows."""
        self._reports.append((step, shape, inputs, report))

    def keep_path(self, path: Path) -> None:
        """Say last where the record is."""
        self._path = path

    def finished(self, row: Result) -> None:
        """Say on stderr's terminal how a row ended, while others run; the table has it at the end.

        Of one shape the table follows at once. A log would have every row twice.
        """
        if self._shapes < 2 or not console.err.is_terminal:
            return
        times = [
            f"{name} {stats.median:,.2f} µs [{stats.p05:,.2f}–{stats.p95:,.2f}]"
            for name, stats in (("device", row.device_us), ("call", row.call_us))
            if stats is not None
        ]
        text = "  ".join([f"  {row.step} {row.shape}", _class_mark(row), *times])
        console.err.print(console.Text(text, style="dim"), soft_wrap=True)

    def head(self, plan: RunPlan) -> None:
        """Say which executor and device, and how it will be timed."""
        self._lineages = [run.lineage for run in plan.steps]
        self._shapes = sum(len(run.shapes) for run in plan.steps)
        timing, seed = plan.timing, plan.settings.seed
        for where, group in groupby(plan.steps, key=lambda run: run.target):
            names = [run.step.name for run in group]
            label = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
            device = where.gpu.name if where.gpu else environment.cpu_name()
            parts = [f"executor {where.executor.name}", device]
            if where.emulation is not None:
                parts.append(f"{where.emulation.sms} SMs emulated")
                if where.emulation.mma_rounding != "fp32":
                    parts.append(f"MMA rounding {where.emulation.mma_rounding}")
            if timing is None or not where.timed:
                parts.append("not timed")
            elif where.gpu is not None:
                parts += [f"{timing.l2} L2", f"{timing.reps} reps"]
            else:
                parts.append(f"≤ {timing.reps} reps in {timing.budget_s:g} s a shape")
            self._to.print(
                f"[bold]{console.escape(label)}[/bold]  "
                + console.escape(" · ".join([*parts, f"seed {seed}"])),
                soft_wrap=True,
            )

    def record(self, record: RunRecord) -> None:
        """Rows, how they stand against their peers, what the emulator found, where it is kept."""
        self.rows(record.results)
        self.standings(standings(record.results, self._lineages))
        _print_reports(self._reports)
        if self._path is not None:
            self._to.print(
                console.Text(f"  saved {_relative(self._path)}", style="dim"), soft_wrap=True
            )

    def rows(self, rows: Sequence[Result]) -> None:
        """The table, then every reason and note, then the conclusion."""
        groups = [
            (key, list(group)) for key, group in groupby(rows, key=lambda r: (r.step, r.shape))
        ]
        unit = unit_for(time for _, group in groups for time in _medians(group[0]))
        taken = {
            "device": any(group[0].device_us for _, group in groups),
            "call": any(group[0].call_us for _, group in groups),
            "SOL": any(group[0].sol_us is not None for _, group in groups),
        }
        times = _time_headings(taken, unit)
        columns = [
            ("step", "left"),
            ("shape", "left"),
            ("correct", "left"),
            ("max err", "right"),
            ("rel rms", "right"),
            *((heading, "right") for heading in times),
            ("", "left"),
        ]
        cells: list[tuple[str | console.Text, ...]] = []
        remarks: list[tuple[str, str, str]] = []
        counts: dict[str, int] = {}
        for (step, shape), group in groups:
            status = _worst(group)
            counts[status] = counts.get(status, 0) + 1
            skipped = all(row.status == "skipped" for row in group)
            cells.append(
                (
                    step,
                    shape,
                    "–" if skipped else " ".join(_class_mark(row) for row in group),
                    error_text(*(row.max_abs_err for row in group)),
                    error_text(*(row.rel_rms_err for row in group)),
                    *_times(group[0], taken, unit),
                    console.styled(status if status != "pass" else "PASS"),
                )
            )
            shared = len({(row.status, row.reason) for row in group}) == 1
            for row in group:
                if row.reason:
                    where = shape if shared else f"{shape} {row.inputs}"
                    remarks.append((step, where, f"{row.status}: {row.reason}"))
                remarks += [(step, shape, note) for note in row.notes]
        spare = [["rel rms"], [f"call p5–p95\n{unit.name}"], ["max err"], [f"SOL\n{unit.name}"]]
        spare += [["of SOL"], [f"p5–p95\n{unit.name}"]]
        console.fitted_table(
            columns, cells, prose="correct", spare=spare, width=self._to.width
        ).show(self._to)
        told: dict[tuple[str, str], list[str]] = {}
        for step, where, text in dict.fromkeys(remarks):
            told.setdefault((step, text), []).append(where)
        for (step, text), places in told.items():
            head = f"  {step} {', '.join(places)}: "
            self._to.print(console.Text.assemble((head, "bold"), text), soft_wrap=True)
        legend = "= every bit of the rounded reference · ≈ within the derived bound"
        if any(row.status == "pass" and row.exact is None for row in rows):
            legend = "✓ right by the task's own check, on data that no step has seen"
        self._to.print(console.Text(f"  {legend}", style="dim"))
        total = sum(counts.values())
        summary = ", ".join(
            f"{count} {'passed' if status == 'pass' else status}"
            for status, count in counts.items()
        )
        self._to.print(f"→ {summary} of {total}")

    def scores(self, found: Sequence[TaskScore]) -> None:
        """What a task's server would make one figure of."""
        for score in found:
            self._to.print(console.Text(f"  score of {score.step}: {score.text}"), soft_wrap=True)

    def standings(self, found: Sequence[Standing]) -> None:
        """Each step against the best peer and the measured floor; nothing if there is nothing."""
        if not found:
            return
        unit = unit_for(time for row in found for time in (row.us, row.floor_us))
        columns = [("step", "left"), ("shape", "left")]
        columns += [(f"{found[0].metric} {unit.name}", "right")]
        columns += [("best peer", "left"), ("vs best peer", "right")]
        columns += [(f"floor {unit.name}", "right"), ("of floor", "right")]
        table = console.make_table(columns)
        for row in found:
            table.add_row(
                console.escape(row.step),
                row.shape,
                unit.text(row.us),
                console.escape(row.best_peer) or "–",
                "–" if row.vs_best_peer is None else f"{row.vs_best_peer:.2f}×",
                unit.text(row.floor_us),
                "–" if row.of_floor is None else f"{100 * row.of_floor:.0f}%",
            )
        self._to.print()
        self._to.print(table)
        legend = (
            "vs best peer: its time over the step's, above 1 the step is ahead · "
            "floor: only reading the same bytes, measured after each step"
        )
        self._to.print(console.Text(f"  {legend}", style="dim"), soft_wrap=True)


def _medians(row: Result) -> tuple[float | None, ...]:
    times = (row.device_us, row.call_us)
    return (*(time.median if time else None for time in times), row.sol_us)


def _time_headings(taken: Mapping[str, bool], unit: TimeUnit) -> list[str]:
    """The columns of the times that any row has."""
    names = {"device": ("device", "p5–p95"), "call": ("call", "call p5–p95"), "SOL": ("SOL",)}
    found = [f"{name}\n{unit.name}" for kind in taken if taken[kind] for name in names[kind]]
    return [*found, *(["of SOL"] if taken["SOL"] else [])]


def _times(row: Result, taken: Mapping[str, bool], unit: TimeUnit) -> list[str]:
    """The cells of one row for :func:`_time_headings`."""
    cells: list[str] = []
    for name, stats in (("device", row.device_us), ("call", row.call_us)):
        if taken[name]:
            cells += [unit.median(stats), unit.spread(stats)]
    if not taken["SOL"]:
        return cells
    best = row.device_us or row.call_us
    return [
        *cells,
        unit.text(row.sol_us),
        f"{100 * row.sol_us / best.median:.0f}%" if row.sol_us and best else "–",
    ]


def _print_reports(found: Sequence[tuple[str, str, str, EmulatorReport]]) -> None:
    """What the emulator found, in full, on stderr."""
    for step, shape, input_class, report in found:
        console.err.print(console.Text(f"{step} {shape} {input_class}:", style="bold"))
        for line in findings.lines(report):
            console.err.print(console.Text("  " + line), soft_wrap=True)


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _worst(rows: Sequence[Result]) -> str:
    for status in (*reversed(UNJUDGED), "hang", "fault", "wrong", "skipped"):
        if any(row.status == status for row in rows):
            return status
    return "pass"


def _class_mark(row: Result) -> str:
    if row.status == "pass":
        return row.inputs + {True: "=", False: "≈", None: "✓"}[row.exact]
    return f"{row.inputs}:{row.status}"
