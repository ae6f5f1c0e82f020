"""``kernelbench bringup``."""

from __future__ import annotations

from pathlib import Path

import click

from kernelbench.base import seeds
from kernelbench.base.console import Status, Text, out, show
from kernelbench.base.errors import UsageError
from kernelbench.bringup.bringup_record import (
    BringupRecord,
    Stage,
    bringup_exit_code,
    footnote,
    summary,
)
from kernelbench.bringup.stages import Bringup, BringupOptions, native_gpu
from kernelbench.cli import options
from kernelbench.cli.options import Seconds
from kernelbench.project.context import Context
from kernelbench.records import run_record

_STYLES = {
    "PASS": "green", "CONFIRMED": "green", "ok": "green", "DIFFERS": "bold red",
    "FAILED": "bold red", "TIMED OUT": "bold red", "REFUTED": "bold yellow", "missing": "red",
    "warn": "yellow", "NOT JUDGED": "bold yellow",
}  # fmt: skip


@click.command(
    "bringup",
    epilog="\b\nExamples:\n  kernelbench bringup\n  kernelbench bringup --quick --report b200.json",
)
@click.option("--quick", is_flag=True, help="One seed, the main line only, one shape timed.")
@click.option(
    "--planted",
    is_flag=True,
    help="Also run probes of open points with a fault planted, which they must refute.",
)
@click.option(
    "--report",
    metavar="FILE.json",
    help="The report; the same as Markdown goes beside it. Default: bringup-ID.json here.",
)
@click.option(
    "--timeout",
    type=Seconds(0.1),
    default=150.0,
    help="Seconds for one process of cases, and for one call of a step.",
)
@click.option(
    "--wait",
    metavar="SECONDS",
    type=Seconds(),
    default=60.0,
    help="Wait this long, before timing, for other processes to leave the GPU; 0: do not wait.",
)
@options.seed_option("the inputs")
def command(
    quick: bool, planted: bool, report: str | None, timeout: float, wait: float, seed: int | None
) -> int:
    """Try the first GPU that CUDA shows: functions, open points, every step, times.

    Compares each native function of the ptx layer with its emulation, bit by bit; settles what no
    document settles (CONFIRMED or REFUTED); checks every step that this GPU runs natively; times
    those that are right, beside the reported figures. The report is complete up to whatever
    fails, hangs or is interrupted. What is timed while other processes use the GPU is marked, and
    whether all of a step's work was timed is not judged then. Leaves with 3 if anything differs,
    fails or hangs, else with 5 if a stage or a function could not be run, or a step not be judged.
    """
    path = Path(report or f"bringup-{run_record.new_id()}.json").expanduser()
    if path.suffix != ".json":
        raise UsageError(
            f"--report {report}: the report is JSON", "name a .json file; .md goes beside it"
        )
    options.output_file(str(path))
    gpu, backend = native_gpu()
    chosen = seeds.new_seed() if seed is None else seed
    settings = BringupOptions(chosen, quick, timeout, wait, path, options.command_line(), planted)
    head = Text.assemble((f"{gpu.name}  ", "bold"), f"{backend} · seed {chosen} · report {path}")
    out.print(head)
    with Status() as status:
        bringup = Bringup(Context.find(), settings, status, _stage)
        bringup.run()
    _figures(bringup.record)
    out.say(f"report: {path} and {path.with_suffix('.md')}")
    return int(bringup_exit_code(bringup.record))


def _stage(stage: Stage) -> None:
    head = Text.assemble(
        (f"\n{stage.title}: ", "bold"), summary(stage), f" ({stage.seconds:.0f} s)"
    )
    out.print(head)
    width = max((len(line.name) for line in stage.lines), default=0)
    for line in stage.lines:
        outcome = Text(f"{line.outcome:<14}", style=_STYLES.get(line.outcome, ""))
        out.print(Text.assemble("  ", outcome, f"{line.name:<{width}}  {line.text}"))


def _figures(record: BringupRecord) -> None:
    if not record.figures:
        return
    head = ("step", "shape", "call µs", "device µs", "reported")
    rows = [
        dict(zip(head, (f.step, f.shape, *f.times, f.reported or "–"), strict=True))
        for f in record.figures
    ]
    show(rows, right=head[2:4], title=f"\nTimes measured on {record.device}")
    if note := footnote(record):
        out.say(note)
