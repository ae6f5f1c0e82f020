"""``kernelbench run``."""

from __future__ import annotations

from typing import Literal

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, Interrupted, KernelbenchError
from kernelbench.cli import options, render
from kernelbench.emulator.settings import Emulation
from kernelbench.executors import targets
from kernelbench.measure.outcomes import error_of
from kernelbench.problems.gpumode import read_task, task_scores
from kernelbench.records.run_record import RunRecord
from kernelbench.runs import api
from kernelbench.runs.settings import MeasuringOptions


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
@options.task_option
@options.emulation_options
@click.option("--check-only", is_flag=True, help="Check correctness, do not time.")
@click.option("--no-save", is_flag=True, help="Do not write to the results folder.")
@options.fail_on_option("skipped")
@options.json_option
@options.measuring_options
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    executor: str,
    inputs: tuple[str, ...],
    call: Literal["single", "competition"],
    peers: bool,
    task: str | None,
    check_only: bool,
    no_save: bool,
    fail_on: tuple[str, ...],
    json_path: str | None,
    emulation: Emulation,
    results: str | None,
    measuring: MeasuringOptions,
) -> int:
    """Check each STEP for correctness, then time it.

    STEP is a step's name, a range (v01..v07), a lineage's name, a step's folder, or a Python file
    that defines custom_kernel(data). With --task it is such a file, or 'reference', the task's own;
    the task's tests are checked and its benchmarks timed, unless --shape names some. Leaves with 3
    if a step is not right, with 5 if every shape was skipped.
    """
    options.require_writable(json_path)
    view = render.RunView(console.err if json_path == "-" else console.out)
    try:
        with console.Status() as status:
            record = api.run(
                steps,
                shapes,
                executor=executor,
                inputs=inputs,
                call=call,
                timed=not check_only,
                peers=peers,
                task=task,
                emulation=emulation,
                save=not no_save,
                results=results,
                command=options.command_line(),
                on_plan=view.head,
                on_progress=status,
                on_row=view.finished,
                on_report=view.keep_report,
                on_saved=view.keep_path,
                on_warning=console.warn,
                **measuring,
            )
    except (KernelbenchError, Interrupted) as error:
        if isinstance(error.partial, RunRecord):
            _show(view, error.partial, json_path)
        raise
    _show(view, record, json_path)
    if task is not None and not check_only:
        view.scores(task_scores(read_task(task), record.results))
    return _exit_code(record, fail_on)


def _exit_code(record: RunRecord, fail_on: tuple[str, ...]) -> int:
    """What a script is told of a finished run.

    Raises:
        KernelbenchError: If something else than a step is at fault.
    """
    for blamed in ("harness", "problem", "reference", "machine"):
        for row in record.unjudged:
            if row.status == blamed:
                raise error_of(row.status, row.reason)
    if record.failures:
        return int(ExitCode.INCORRECT)
    return int(options.code_of_skipped(len(record.skipped), len(record.results), fail_on))


def _show(view: render.RunView, record: RunRecord, json_path: str | None) -> None:
    try:
        view.record(record)
    finally:
        # A reader of the terminal that goes away must not cost the file.
        if json_path is not None:
            options.write_json_output(json_path, record)
