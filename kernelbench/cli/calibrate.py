"""``kernelbench calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, Interrupted, KernelbenchError
from kernelbench.cli import calibrate_view, options
from kernelbench.compare import calibrator
from kernelbench.compare.calibrator import SIZE, CalibrationSize
from kernelbench.records.calibration_record import CalibrationRecord
from kernelbench.runs.settings import MeasuringOptions
from kernelbench.stats.defaults import MARGIN


@click.command(
    "calibrate",
    epilog="\b\nExamples:\n"
    "  kernelbench calibrate v00 --shape u1\n"
    "  kernelbench calibrate m05 --shape qwen35 --aa 200 --planted 40 --seed 1",
)
@options.step_argument("step")
@options.shape_option
@click.option(
    "--metric", type=click.Choice(["device", "call"]), default="device", show_default=True
)
@click.option(
    "--aa",
    type=click.IntRange(min=20),
    default=SIZE.aa,
    show_default=True,
    help="A/A comparisons, spread over the sessions.",
)
@click.option(
    "--sessions",
    type=click.IntRange(min=2),
    default=SIZE.sessions,
    show_default=True,
    help="Fresh processes for the A/A comparisons.",
)
@click.option(
    "--planted",
    type=click.IntRange(min=0),
    default=SIZE.planted,
    show_default=True,
    help="Trials of each planted slowdown: 0.5, 1, 2 % and margin + 2 MDE.",
)
@click.option(
    "--sequential",
    type=click.IntRange(min=0),
    default=SIZE.sequential,
    show_default=True,
    help="Sequential A…A B…B pairs, the negative control.",
)
@click.option("--margin", type=options.Percent(), default=MARGIN, show_default="0.5%")
@options.measuring_options
def command(
    step: str,
    shapes: tuple[str, ...],
    metric: Literal["device", "call"],
    aa: int,
    sessions: int,
    planted: int,
    sequential: int,
    margin: float,
    results: str | None,
    measuring: MeasuringOptions,
) -> int:
    """Measure how far verdicts on this device can be trusted, with STEP as the test object.

    A/A comparisons give the false-positive rate and the spread between sessions, which `ab` and
    `gate` then use; planted slowdowns the power; sequential pairs show what interleaving is for.
    Every attempt is kept, also a failed or interrupted one. Leaves with 4 if the findings speak
    against trusting verdicts. With fewer comparisons, sessions or trials than by default the
    evidence is called partial.
    """
    saved: list[Path] = []
    try:
        with console.Status() as status:
            record = calibrator.calibrate(
                step,
                shapes,
                metric=metric,
                size=CalibrationSize(aa, sessions, planted, sequential),
                margin=margin,
                results=results,
                command=options.command_line(),
                on_progress=status,
                on_saved=saved.append,
                on_warning=console.warn,
                **measuring,
            )
    except (KernelbenchError, Interrupted) as error:
        if isinstance(error.partial, CalibrationRecord):
            calibrate_view.calibrated(error.partial, *saved)
        raise
    calibrate_view.calibrated(record, *saved)
    return int(ExitCode.PASS if not record.findings() else ExitCode.AMBIGUOUS)
