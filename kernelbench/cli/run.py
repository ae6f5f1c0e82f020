"""``kernelbench run``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from kernelbench.base import console, schema
from kernelbench.base.errors import ExitCode, KernelbenchError
from kernelbench.cli import options, render
from kernelbench.emulator.settings import Emulation
from kernelbench.executors import targets
from kernelbench.machine.environment import read_environment
from kernelbench.project.context import Context, parse_results
from kernelbench.records import run_record, store
from kernelbench.records.run_record import Protocol, Result, RunRecord
from kernelbench.runs.peers import standings
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner, StepRun, warnings_of
from kernelbench.runs.shared_references import shared_folder
from kernelbench.worker.jobs import Timing
from kernelbench.worker.launcher import Launcher


@click.command(
    "run",
    epilog="\b\nExamples:\n"
    "  kernelbench run v00 --shape A\n"
    "  kernelbench run v01..v07 --shape all --inputs gpu-mode\n"
    "  kernelbench run mref --shape qwen35-m16 --json -\n"
    "  kernelbench run m02 --shape qwen35 --peers\n"
    "  kernelbench run path/to/submission.py --shape m=40,76:n=512:k=768",
)
@options.steps_argument
@options.shape_option
@click.option(
    "--executor",
    default="auto",
    show_default=True,
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
    show_default=True,
    help="Call time of single calls, or of 15 calls in one event pair.",
)
@click.option(
    "--peers", is_flag=True, help="Also run the lineage's peers, and compare with the best of them."
)
@options.emulation_options
@click.option("--check-only", is_flag=True, help="Check correctness, do not time.")
@click.option("--no-save", is_flag=True, help="Do not write to the results folder.")
@options.json_option
@options.measuring_options
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    executor: str,
    inputs: tuple[str, ...],
    call: Literal["single", "competition"],
    peers: bool,
    check_only: bool,
    no_save: bool,
    json_path: str | None,
    emulation: Emulation,
    measuring: options.Measuring,
) -> int:
    """Check each STEP for correctness, then time it.

    STEP is a step's name, a range (v01..v07), a lineage's name, a step's folder, or a Python file
    that defines custom_kernel(data).
    """
    options.require_writable(json_path)
    context = Context.find()
    folder = parse_results(measuring.results, context.project)
    if not no_save:
        options.require_results(folder, "choose another with --results, or give --no-save")
    plans = plan(
        context,
        steps,
        shapes,
        executor,
        inputs,
        measuring.device,
        warn=console.warn,
        emulation=emulation,
        peers=peers,
    )
    seed = measuring.seed
    timing = None
    if not check_only:
        timing = measuring.timing("call", "device", call=call)
    if not any(step_plan.target.timed for step_plan in plans):
        timing = None
    view = render.RunView(console.err if json_path == "-" else console.out)
    view.head(plans, seed, timing)
    rows: list[Result] = []
    failure: BaseException | None = None
    with shared_folder(plans) as shared, Launcher() as launcher, console.Status() as status:
        runner = Runner(
            launcher,
            seed=seed,
            timing=timing,
            call_limit_s=measuring.timeout,
            on_progress=status,
            references=shared,
        )
        try:
            for step_plan in plans:
                for row in runner.run(step_plan):
                    rows.append(row)
        except (KernelbenchError, KeyboardInterrupt) as error:
            failure = error
    if failure is not None and not rows:
        raise failure
    if runner.environment is None:
        # No worker was needed: every shape is beyond its step's limits.
        runner.environment = read_environment(plans[0].target.device, plans[0].target.gpu)
    for warning in warnings_of(runner.environment):
        console.warn(warning)
    record = RunRecord(
        schema=run_record.RUN_SCHEMA,
        id=run_record.new_id(),
        created=run_record.now_iso(),
        command=options.command_line(),
        device=runner.environment.device,
        environment=runner.environment,
        protocol=_protocol(plans, seed, timing, runner),
        results=tuple(rows),
        complete=failure is None,
        extra=_emulated(plans),
    )
    view.rows(rows)
    view.standings(standings(rows, context.lineages.lineages))
    render.reports(runner.reports)
    try:
        if not no_save:
            path = store.save_run(folder, record, runner.samples)
            view.saved(_relative(path))
    finally:
        # Whichever of the two cannot be written must not cost the other.
        if json_path is not None:
            options.write_json_output(json_path, record)
    if failure is not None:
        raise failure  # after the rows up to it were printed and saved
    return _exit_code(rows)


def _protocol(
    plans: Sequence[StepRun], seed: int, timing: Timing | None, runner: Runner
) -> Protocol:
    on_gpu = any(step_plan.target.gpu is not None for step_plan in plans)
    cold = timing is not None and timing.l2 == "cold" and on_gpu
    l2 = runner.environment.l2_bytes if runner.environment is not None else 0
    return Protocol(
        seed=seed,
        reps=timing.reps if timing else 0,
        warmups=timing.warmups if timing else 0,
        l2="none" if timing is None or not on_gpu else timing.l2,
        call=timing.call if timing else "single",
        flush_bytes=2 * l2 if cold else 0,
        time_budget_s=None if on_gpu or timing is None else timing.budget_s,
    )


def _emulated(plans: Sequence[StepRun]) -> dict[str, Any]:
    """What was emulated, for the record."""
    for step_plan in plans:
        if step_plan.target.emulation is not None:
            return {"emulation": schema.encode(step_plan.target.emulation)}
    return {}


def _exit_code(rows: Sequence[Result]) -> int:
    if any(row.status in run_record.FAILED for row in rows):
        return int(ExitCode.INCORRECT)
    return int(ExitCode.PASS)


def _relative(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
