"""``kernelbench ab``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, KernelbenchError, UsageError
from kernelbench.cli import ab_view, options
from kernelbench.compare import comparer as compare
from kernelbench.compare.comparer import ArmFailure, Collected, Comparer
from kernelbench.compare.verdicts import ComparisonLine, append_to_ledger, judge
from kernelbench.project.context import Context, parse_results
from kernelbench.project.registry import Step, require_runnable
from kernelbench.records import run_record
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner, StepRun, warnings_of
from kernelbench.stats.inference import ALPHA, MARGIN
from kernelbench.worker.launcher import Launcher

_DEFAULT_SESSIONS = 3


@click.command(
    "ab",
    epilog="\b\nExamples:\n"
    '  kernelbench ab v15 v16 --why "two accumulators hide the epilogue"\n'
    "  kernelbench ab v00 my_v00.py --shape D --sessions 5\n"
    "  kernelbench ab v21 v22 --metric call --fail-on slower\n"
    "  kernelbench ab v00 v00 --shape D          an A/A comparison of this device",
)
@options.step_argument("base")
@options.step_argument("cand")
@options.shape_option
@click.option(
    "--sessions",
    type=click.IntRange(min=1),
    default=_DEFAULT_SESSIONS,
    show_default=True,
    help="Fresh processes per shape; 5 for figures to publish.",
)
@click.option(
    "--metric",
    type=click.Choice(["device", "call"]),
    default="device",
    show_default=True,
    help="The time that decides; both are shown on a GPU.",
)
@click.option(
    "--alpha", type=click.FloatRange(0, 0.5, True, True), default=ALPHA, show_default=True
)
@click.option(
    "--margin",
    type=options.Percent(),
    default=MARGIN,
    show_default="0.5%",
    help="Change below which nobody cares.",
)
@click.option("--why", default="", help="The hypothesis, kept in the ledger.")
@click.option(
    "--fail-on", type=click.Choice(["slower"]), default=None, help="Exit 1 if a verdict is SLOWER."
)
@click.option(
    "--ambiguous",
    type=click.Choice(["pass", "fail"]),
    default="pass",
    show_default=True,
    help="Whether AMBIGUOUS leaves with exit code 4.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Device replays per event pair, for kernels of a few microseconds.",
)
@click.option(
    "--inputs",
    default=None,
    metavar="CLASS",
    help="Input class to check and time (default: check all, time the first).",
)
@click.option("--executor", default="auto", show_default=True, metavar="NAME")
@click.option("--explain", is_flag=True, help="Also print the details behind each verdict.")
@options.measuring_options
def command(
    base: str,
    cand: str,
    shapes: tuple[str, ...],
    sessions: int,
    metric: Literal["device", "call"],
    alpha: float,
    margin: float,
    why: str,
    fail_on: str | None,
    ambiguous: str,
    batch: int,
    inputs: str | None,
    executor: str,
    explain: bool,
    measuring: options.Measuring,
) -> int:
    """Say whether CAND is really faster or slower than BASE.

    Both run interleaved in randomized ABBA quads; the verdict comes from paired block differences,
    corrected for the number of comparisons. Naming one step twice times it against itself.
    """
    context = Context.find()
    folder = parse_results(measuring.results, context.project)
    arms = [_one_step(context, spec) for spec in (base, cand)]
    for step in arms:
        require_runnable(step)
    classes = [inputs] if inputs else []
    plans = plan(
        context, [base, cand], shapes, executor, classes, measuring.device, warn=console.warn
    )
    first, second = plans[0], plans[-1]
    if first.problem.name != second.problem.name:
        raise UsageError(
            f"{first.step.name} and {second.step.name} solve different problems "
            f"({first.problem.name}, {second.problem.name})"
        )
    seed = measuring.seed
    on_gpu = first.target.gpu is not None and second.target.gpu is not None
    metrics: tuple[Literal["call", "device"], ...] = ("device", "call") if on_gpu else ("call",)
    timing = measuring.timing(*metrics, batch=batch)
    view = ab_view.View(first.step, second.step)
    same_code = compare.identical(first.step, second.step)
    if same_code and base != cand:
        view.same_code()
        return int(ExitCode.PASS)
    why_not = _cannot_time(first, second, metric)
    if not why_not:
        options.require_results(folder)
    with Launcher() as launcher, console.Status() as status:
        if why_not:
            return _without_times(view, launcher, first, second, why_not, measuring, status)
        comparer = Comparer(
            launcher,
            first.step,
            second.step,
            first.lineage,
            first.target,
            first.classes,
            timing,
            seed,
            measuring.timeout,
            status,
        )
        shapes_left = [shape for shape in first.shapes if not _skipped(shape.name, first, second)]
        view.skipped(first, second)
        everything: list[Collected] = []
        failure: BaseException | None = None
        try:
            for shape in shapes_left:
                everything.append(Collected(shape))
                comparer.collect(everything[-1], sessions)
        except ArmFailure as error:
            failure = error
            everything.pop()
        except (KernelbenchError, KeyboardInterrupt) as error:
            failure = error
            everything = [c for c in everything if set(timing.metrics) <= c.sessions.keys()]
    environment = comparer.environment
    if environment is None or not everything:
        raise failure or UsageError("no shape is left that both steps can run")
    for warning in warnings_of(environment):
        console.warn(warning)
    lines = judge(everything, environment.device, folder, timing, alpha, margin, seed)
    view.lines(lines, environment.device, sessions, timing, metric, same_code, explain)
    append_to_ledger(
        folder,
        lines,
        environment.device,
        first.step,
        second.step,
        command=options.command_line(),
        why=why,
        timing=timing,
        sessions=sessions,
        seed=seed,
    )
    view.footer(everything, why, seed)
    if failure is not None:
        raise failure  # what was measured before it is printed and in the ledger
    return _exit_code(lines, metric, fail_on, ambiguous, same_code)


def _one_step(context: Context, spec: str) -> Step:
    chosen = context.lineages.select([spec])
    if len(chosen) != 1:
        raise UsageError(f"{spec!r} is {len(chosen)} steps", "ab compares one step with one step")
    return chosen[0]


def _skipped(shape: str, *plans: StepRun) -> bool:
    return any(shape in step_plan.skip for step_plan in plans)


def _cannot_time(first: StepRun, second: StepRun, metric: str) -> str:
    """Why the deciding metric cannot be measured for both arms here; empty if it can."""
    for step_plan in (first, second):
        if not step_plan.target.timed:
            return (
                f"{step_plan.step.name} runs on the {step_plan.target.executor.name} here, "
                "whose times stand for no device"
            )
    if first.target != second.target:
        return f"the steps run on different devices ({first.target.device}, {second.target.device})"
    if first.target.gpu is None and metric == "device":
        return "device time needs a GPU (--metric call compares wall-clock times on this CPU)"
    return ""


def _without_times(
    view: ab_view.View,
    launcher: Launcher,
    first: StepRun,
    second: StepRun,
    why_not: str,
    measuring: options.Measuring,
    status: console.Status,
) -> int:
    """Correctness of both arms, source delta and reported difference; exit 5 (or 3)."""
    runner = Runner(
        launcher,
        seed=measuring.seed,
        timing=None,
        call_limit_s=measuring.timeout,
        on_progress=status,
    )
    plans = [first] if first.step is second.step else [first, second]
    rows = [row for step_plan in plans for row in runner.run(step_plan)]
    view.not_measured(rows, why_not, [shape.name for shape in first.shapes])
    if any(row.status in run_record.FAILED for row in rows):
        return int(ExitCode.INCORRECT)
    return int(ExitCode.ENVIRONMENT)


def _exit_code(
    lines: Sequence[ComparisonLine],
    metric: str,
    fail_on: str | None,
    ambiguous: str,
    same_code: bool,
) -> int:
    labels = {line.verdict.label for line in lines if line.metric == metric}
    if same_code:
        return int(ExitCode.PASS)
    if fail_on == "slower" and "SLOWER" in labels:
        return int(ExitCode.REGRESSION)
    if ambiguous == "fail" and "AMBIGUOUS" in labels:
        return int(ExitCode.AMBIGUOUS)
    return int(ExitCode.PASS)
