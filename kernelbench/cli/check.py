"""``kernelbench check``."""

from __future__ import annotations

from typing import Any

import click

from kernelbench.base import console, seeds
from kernelbench.base.errors import ExitCode
from kernelbench.checks import checker as checking
from kernelbench.checks.checker import CheckRecord, CheckRequest, ScheduleChecker, StepCheck
from kernelbench.cli import check_view, options
from kernelbench.emulator.settings import MAX_SMS, Emulation, Rounding
from kernelbench.machine.toolchain import cpu_count
from kernelbench.project.context import Context
from kernelbench.records import run_record
from kernelbench.runs.plan import plan_check


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Positive numbers with commas between."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers, each once, in the order given."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = [int(part) for part in str(value).split(",")]
        except ValueError:
            numbers = []
        if not numbers or not all(1 <= number <= MAX_SMS for number in numbers):
            self.fail(f"expected numbers from 1 to {MAX_SMS}, found {value!r}", param, ctx)
        return tuple(dict.fromkeys(numbers))


@click.command(
    "check",
    epilog="\b\nExamples:\n"
    "  kernelbench check v07\n"
    "  kernelbench check v01..v07 --schedules 200 --jobs 2\n"
    "  kernelbench check v07 --shape u1 --sms 3 --seed 1234   repeat what was found",
)
@options.steps_argument
@options.check_shape_option
@click.option(
    "--schedules",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Schedules for each shape, input class and number of SMs.",
)
@click.option(
    "--sms",
    type=_Numbers(),
    default="1,2,3,148",
    show_default=True,
    help="Numbers of SMs to emulate, with commas between.",
)
@click.option(
    "--inputs",
    multiple=True,
    metavar="CLASS|all",
    help="Input class, repeatable. Default: the problem's first.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=None,
    help="Seed of inputs and schedules; drawn anew if not given, and always shown.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=cpu_count,
    show_default="one per core",
    help="Shapes to check at the same time.",
)
@click.option(
    "--max-findings",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Different findings to keep and show per shape.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    help="Seconds after which one schedule counts as hung.",
)
@options.rounding_option
@options.json_option
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    schedules: int,
    sms: tuple[int, ...],
    inputs: tuple[str, ...],
    seed: int | None,
    jobs: int,
    max_findings: int,
    timeout: float,
    mma_rounding: Rounding,
    json_path: str | None,
) -> int:
    """Look for hangs, races and misused barriers in each compiled STEP, on the CPU.

    Runs the step in the emulator under many seeded schedules and compares the bits of every
    result. A shape ends at the first wrong result or finding that ends a launch. Leaves with 3 if
    anything was found. Also says which branches of the step no schedule has taken.
    """
    options.require_writable(json_path)
    context = Context.find()
    runs = plan_check(
        context, steps, shapes, inputs, Emulation(mma_rounding=mma_rounding), warn=console.warn
    )
    seed = seeds.new_seed() if seed is None else seed
    request = CheckRequest(sms, schedules, seed, timeout, max_findings, jobs)
    view = check_view.View(console.err if json_path == "-" else console.out)
    view.head(runs, request)
    done: list[StepCheck] = []
    with console.Status() as status:
        checker = ScheduleChecker(request, status)
        done.extend(checker.run(runs))
    view.results(done, max_findings)
    if json_path is not None:
        record = CheckRecord(
            schema=checking.CHECK_SCHEMA,
            created=run_record.now_iso(),
            command=options.command_line(),
            seed=seed,
            sms=sms,
            inputs=runs[0].classes,
            mma_rounding=mma_rounding,
            complete=not checker.interrupted,
            steps=tuple(done),
        )
        options.write_json_output(json_path, record)
    if checker.interrupted:
        raise KeyboardInterrupt
    return int(ExitCode.INCORRECT if checking.failed(done) else ExitCode.PASS)
