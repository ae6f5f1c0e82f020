"""``kernelbench run``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode
from kernelbench.base.files import from_here
from kernelbench.base.table import Row
from kernelbench.cli import options
from kernelbench.cli.figure_texts import TimeUnit, error_text, unit_for, unit_of
from kernelbench.emulator import diagnostics
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.executors import targets
from kernelbench.machine import environment
from kernelbench.measure.results import error_of
from kernelbench.problems.task_folder import TaskScore, read_task, task_scores
from kernelbench.project.model import Lineage
from kernelbench.records.metrics import METRICS, TIMES, Metric, Metrics, Summary, is_time
from kernelbench.records.run_record import UNJUDGED, Result, RunRecord
from kernelbench.runs import api
from kernelbench.runs.api import RunPlan
from kernelbench.runs.peers import Standing, standings


class RunView(console.Watching):
    """Renders a run to one console."""

    def __init__(self, to: console.Console) -> None:
        self._to = to
        self._lineages: list[Lineage] = []
        self._reports: list[tuple[str, str, str, EmulatorReport]] = []
        self._shapes = 0
        self._kernels: list[str] = []

    def reported(self, step: str, shape: str, inputs: str, report: EmulatorReport) -> None:
        """Show a report of the emulator after the rows."""
        self._reports.append((step, shape, inputs, report))

    def row(self, row: Result) -> None:
        """Say on stderr's terminal how a row ended, while others run; the table has it at the end.

        Of one shape the table follows at once. A log would have every row twice.
        """
        if self._shapes < 2 or not console.err.is_terminal:
            return
        times = [
            f"{name} {stats.median:,.2f} {METRICS[name].symbol} [{stats.p05:,.2f}–{stats.p95:,.2f}]"
            for name, stats in _shown(row.metrics)
        ]
        text = "  ".join([f"  {row.step} {row.shape}", _class_mark(row), *times])
        console.err.say(text, "dim")

    def planned(self, plan: RunPlan) -> None:
        """Say which executor and device, and how it will be timed."""
        self._lineages = [run.lineage for run in plan.steps]
        self._shapes = sum(len(run.shapes) for run in plan.steps)
        timing, seed = plan.timing, plan.settings.seed
        self._kernels = [run.step.name for run in plan.steps if run.step.kind != "python"]
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
            said = " · ".join([*parts, f"seed {seed}"])
            self._to.print(console.Text.assemble((f"{label}  ", "bold"), said))

    def record(self, record: RunRecord) -> None:
        """Rows, how they stand against their peers, what the emulator found, where it is kept."""
        self.rows(record.results)
        self.standings(standings(record.results, self._lineages))
        _print_reports(self._reports)
        if self.path is not None:
            self._to.say(f"  saved {from_here(self.path)}", "dim")

    def rows(self, rows: Sequence[Result]) -> None:
        """The table, then every reason and note, then the conclusion."""
        groups = [
            (key, list(group)) for key, group in groupby(rows, key=lambda r: (r.step, r.shape))
        ]
        unit = unit_for(time for _, group in groups for time in _medians(group[0]))
        taken = [m for m in METRICS if any(m in group[0].metrics for _, group in groups)]
        with_sol = any(group[0].sol_us is not None for _, group in groups)
        shown: list[Row] = []
        remarks: list[tuple[str, str, str]] = []
        counts: dict[str, int] = {}
        for (step, shape), group in groups:
            status = _worst(group)
            counts[status] = counts.get(status, 0) + 1
            skipped = all(row.status == "skipped" for row in group)
            marks = "–" if skipped else " ".join(_class_mark(row) for row in group)
            shown.append(
                {
                    "step": step,
                    "shape": shape,
                    "correct": marks,
                    "max err": error_text(*(row.max_abs_err for row in group)),
                    "rel rms": error_text(*(row.rel_rms_err for row in group)),
                    **_measured(group[0], taken, with_sol, unit),
                    "": console.styled(status if status != "pass" else "PASS"),
                }
            )
            shared = len({(row.status, row.reason) for row in group}) == 1
            for row in group:
                if row.reason:
                    where = shape if shared else f"{shape} {row.inputs}"
                    remarks.append((step, where, f"{row.status}: {row.reason}"))
                remarks += [(step, shape, note) for note in row.notes]
        spare = [["rel rms"], [f"call p5–p95\n{unit.name}"], ["max err"], [f"SOL\n{unit.name}"]]
        spare += [["of SOL"], [f"p5–p95\n{unit.name}"]]
        left = ("step", "shape", "correct", "")
        right = [heading for heading in (shown[0] if shown else ()) if heading not in left]
        console.show(shown, self._to, right=right, prose="correct", spare=spare)
        told: dict[tuple[str, str], list[str]] = {}
        for step, where, text in dict.fromkeys(remarks):
            told.setdefault((step, text), []).append(where)
        for (step, text), places in told.items():
            head = f"  {step} {', '.join(places)}: "
            self._to.print(console.Text.assemble((head, "bold"), text))
        legend = "= every bit of the rounded reference · ≈ within the problem's bound"
        if any(row.status == "pass" and row.exact is None for row in rows):
            legend = "✓ right by the task's own check, on data that no step has seen"
        self._to.say(f"  {legend}", "dim")
        words = [f"{count} {status}".replace("pass", "passed") for status, count in counts.items()]
        self._to.print(f"→ {', '.join(words)} of {len(groups)}")
        if self._kernels:
            which = " ".join(self._kernels) if len(self._kernels) < 4 else "STEP"
            self._to.print(f"  [dim]races were not looked for: kernelbench check {which}[/dim]")

    def scores(self, found: Sequence[TaskScore]) -> None:
        """What a task's server would make one figure of."""
        for score in found:
            self._to.say(f"  score of {score.step}: {score.text}")

    def standings(self, found: Sequence[Standing]) -> None:
        """Each step against the best peer and the measured floor; nothing if there is nothing."""
        if not found:
            return
        unit = unit_for(time for row in found for time in (row.us, row.floor_us))
        rows: list[Row] = [
            {
                "step": row.step,
                "shape": row.shape,
                f"{row.metric} {unit.name}": unit.text(row.us),
                "best peer": row.best_peer or "–",
                "vs best peer": "–" if row.vs_best_peer is None else f"{row.vs_best_peer:.2f}×",
                f"floor {unit.name}": unit.text(row.floor_us),
                "of floor": "–" if row.of_floor is None else f"{100 * row.of_floor:.0f}%",
            }
            for row in found
        ]
        self._to.print()
        console.show(rows, self._to, right={*rows[0]} - {"step", "shape", "best peer"})
        legend = (
            "vs best peer: its time over the step's, above 1 the step is ahead · "
            "floor: only reading the same bytes, measured after each step"
        )
        self._to.say(f"  {legend}", "dim")


def _medians(row: Result) -> tuple[float | None, ...]:
    times = (stats.median for name, stats in row.metrics.items() if is_time(name))
    return (*times, row.sol_us)


def _shown(metrics: Metrics) -> list[tuple[Metric, Summary]]:
    return [(name, metrics[name]) for name in METRICS if name in metrics]


def _measured(
    row: Result, taken: Sequence[Metric], with_sol: bool, unit: TimeUnit
) -> dict[str, str]:
    """The cells of one row for the metrics that any row has, and for the speed of light."""
    cells: dict[str, str] = {}
    for name in taken:
        of, stats = unit_of(name, unit), row.metrics.get(name)
        cells[f"{name}\n{of.name}"] = of.median(stats)
        spread = "p5–p95" if name == "device" else f"{name} p5–p95"
        cells[f"{spread}\n{of.name}"] = of.spread(stats)
    if with_sol:
        cells[f"SOL\n{unit.name}"] = unit.text(row.sol_us)
        reached = row.sol_us and row.time and row.sol_us / row.time.median
        cells["of SOL"] = f"{100 * reached:.0f}%" if reached else "–"
    return cells


def _print_reports(found: Sequence[tuple[str, str, str, EmulatorReport]]) -> None:
    """What the emulator found, in full, on stderr."""
    for step, shape, input_class, report in found:
        console.err.say(f"{step} {shape} {input_class}:", "bold")
        for style, line in diagnostics.report_lines(report):
            console.err.say(f"  {line}", diagnostics.STYLES[style])


def _worst(rows: Sequence[Result]) -> str:
    for status in (*reversed(UNJUDGED), "hang", "fault", "wrong", "skipped"):
        if any(row.status == status for row in rows):
            return status
    return "pass"


def _class_mark(row: Result) -> str:
    if row.status == "pass":
        return row.inputs + {True: "=", False: "≈", None: "✓"}[row.exact]
    return f"{row.inputs}:{row.status}"


@click.command(
    "run",
    epilog="\b\nExamples:\n"
    "  kernelbench run v00 --shape A\n"
    "  kernelbench run v01..v07 --shape all --inputs gpu-mode\n"
    "  kernelbench run mref --shape qwen35-m16 --json -\n"
    "  kernelbench run m02 --shape qwen35 --peers\n"
    "  kernelbench run path/to/submission.py --shape m=40,76:n=512:k=768\n"
    "  kernelbench run submission.py --task path/to/gpu-mode-task",
)
@options.steps_argument
@options.shape_option()
@click.option(
    "--executor",
    default="auto",
    metavar="|".join(("auto", *(executor.name for executor in targets.executors()))),
    help="What runs the step; auto picks the best that this machine has.",
)
@click.option(
    "--inputs",
    multiple=True,
    metavar="CLASS|all",
    help="Input class to check, repeatable; the first one is timed. Default: all.",
)
@click.option(
    "--call",
    type=click.Choice(["single", "competition"]),
    default="single",
    help="Call time of single calls, or of 15 calls in one event pair.",
)
@click.option(
    "--metrics",
    type=options.some_of(METRICS),
    default=",".join(TIMES),
    metavar=",".join(METRICS),
    help="What to measure on a GPU, with commas between.",
)
@click.option(
    "--peers", is_flag=True, help="Also run the lineage's peers, and compare with the best of them."
)
@options.task_option
@options.emulation_options
@options.predict_option
@click.option("--check-only", is_flag=True, help="Check correctness, do not time.")
@click.option("--no-save", is_flag=True, help="Do not write to the results folder.")
@options.fail_on_option("skipped")
@options.json_option
@options.measuring_options
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    task: str | None,
    check_only: bool,
    no_save: bool,
    fail_on: tuple[str, ...],
    json: options.RecordOutput,
    predict: bool,
    predict_on: str | None,
    predict_plot: str | None,
    predict_save: bool,
    **asked: Any,
) -> int:
    """Check each STEP for correctness, then time it.

    STEP is a step's name, a range (v01..v07), a lineage's name, a step's folder, or a Python file
    that defines custom_kernel(data). With --task it is such a file, or 'reference', the task's own;
    the task's tests are checked and its benchmarks timed, unless --shape names some. With --predict
    nothing is checked or timed: a model says what the GPU would take. Leaves with 3
    if a step is not right, with 5 if every shape was skipped.
    """
    if predict or predict_on or predict_plot or predict_save:
        from kernelbench.cli import predict_view

        kept = predict_view.Kept(predict_plot, predict_save, shapes)
        predict_view.refuse_others("steps", "shapes", "json")
        return predict_view.show_run(steps, shapes, predict_on, kept, json)
    view = RunView(json.people)

    def show(record: RunRecord) -> None:
        try:
            view.record(record)
        finally:
            # A reader of the terminal that goes away must not cost the file.
            json.write(record)

    with options.showing_partial(RunRecord, show), view:
        record = api.run(
            steps, shapes, task=task, timed=not check_only, save=not no_save,
            command=options.command_line(), observer=view, **asked,
        )  # fmt: skip
    show(record)
    if task is not None and not check_only:
        view.scores(task_scores(read_task(task), record.results))
    return _exit_code(record, fail_on)


def _exit_code(record: RunRecord, fail_on: tuple[str, ...]) -> int:
    """What a script is told of a finished run; raises if something else than a step is at fault."""
    for blamed in ("harness", "problem", "reference", "machine"):
        for row in record.unjudged:
            if row.status == blamed:
                raise error_of(row.status, row.reason)
    if record.failures:
        return int(ExitCode.INCORRECT)
    return int(options.code_of_skipped(len(record.skipped), len(record.results), fail_on))
