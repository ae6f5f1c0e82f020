"""``kernelbench calibrate``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import click

from kernelbench.base import console
from kernelbench.base.errors import EnvironmentProblem, ExitCode, KernelbenchError, UsageError
from kernelbench.cli import options
from kernelbench.compare.calibration_samples import Collector
from kernelbench.project.context import Context, parse_results
from kernelbench.records import run_record
from kernelbench.records.calibration_record import CalibrationRecord, save_calibration
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import StepRun, warnings_of
from kernelbench.stats import calibration
from kernelbench.stats.calibration import AASample, PlantedSample
from kernelbench.stats.inference import ALPHA, MARGIN, estimate_change
from kernelbench.stats.significance import Floats
from kernelbench.worker.launcher import Launcher

_LEVELS = (0.005, 0.01, 0.02)


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
    default=200,
    show_default=True,
    help="A/A comparisons, spread over the sessions.",
)
@click.option(
    "--sessions",
    type=click.IntRange(min=2),
    default=40,
    show_default=True,
    help="Fresh processes for the A/A comparisons.",
)
@click.option(
    "--planted",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Trials of each planted slowdown: 0.5, 1, 2 % and margin + 2 MDE.",
)
@click.option(
    "--sequential",
    type=click.IntRange(min=0),
    default=200,
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
    measuring: options.Measuring,
) -> int:
    """Measure how far verdicts on this device can be trusted, with STEP as the test object.

    A/A comparisons give the false-positive rate and the spread between sessions, which `ab` and
    `gate` then use; planted slowdowns the power; sequential pairs show what interleaving is for.
    Every attempt is kept, also a failed or interrupted one. Leaves with 4 if the findings speak
    against trusting verdicts. With fewer comparisons, sessions or trials than by default the
    evidence is called partial.
    """
    context = Context.find()
    plans = plan(context, [step], shapes, "auto", [], measuring.device, warn=console.warn)
    if len(plans) != 1 or len(plans[0].shapes) != 1:
        raise UsageError(
            "calibrate takes one step and one shape", "give --shape NAME once and a single step"
        )
    chosen = plans[0]
    if chosen.target.gpu is None and (metric == "device" or planted):
        raise EnvironmentProblem(
            "device times and planted slowdowns need a GPU",
            "on a CPU: --metric call --planted 0",
        )
    folder = parse_results(measuring.results, context.project)
    options.require_results(folder)
    with Launcher() as launcher, console.Status() as status:
        collector = Collector(
            launcher,
            chosen.step,
            chosen.lineage,
            chosen.shapes[0],
            chosen.classes[0],
            chosen.target,
            measuring.timing(metric),
            measuring.seed,
            measuring.timeout,
            status,
        )
        a_a: list[AASample] = []
        found: list[PlantedSample] = []
        pairs: list[tuple[Floats, Floats]] = []
        failure: BaseException | None = None
        try:
            collector.a_a(a_a, sessions, -(-aa // sessions))
            if planted:
                estimates = [estimate_change([trial.samples], margin=margin) for trial in a_a]
                target_level = calibration.target_slowdown(estimates)
                base_us = sorted(e.base_us for e in estimates)[len(estimates) // 2]
                levels = dict.fromkeys((*_LEVELS, target_level), planted)
                collector.planted(found, levels, base_us, target_level)
            if sequential:
                per_session = max(1, sequential // max(1, min(sessions, sequential) // 4))
                runs = -(-sequential // per_session)
                collector.sequential(pairs, runs, per_session)
        except (KernelbenchError, KeyboardInterrupt) as error:
            failure = error
    record = _keep(folder, collector, chosen, a_a, found, pairs, metric, margin, failure)
    if failure is not None:
        raise failure
    if record is None:
        raise EnvironmentProblem("nothing was measured")
    return int(ExitCode.PASS if not record.findings() else ExitCode.AMBIGUOUS)


def _keep(
    folder: Path,
    collector: Collector,
    chosen: StepRun,
    a_a: list[AASample],
    found: list[PlantedSample],
    pairs: list[tuple[Floats, Floats]],
    metric: str,
    margin: float,
    failure: BaseException | None,
) -> CalibrationRecord | None:
    """Save and print what was measured; None if that was nothing."""
    environment = collector.environment
    if environment is None or not a_a:
        return None
    for warning in warnings_of(environment):
        console.warn(warning)
    timing = collector.timing
    record = calibration.analyze(
        a_a,
        found,
        pairs,
        device=environment.device,
        step=chosen.step.name,
        shape=chosen.shapes[0].name,
        metric=metric,
        margin=margin,
        alpha=ALPHA,
        complete=failure is None,
        protocol={
            "seed": collector.seed,
            "reps": timing.reps,
            "warmups": timing.warmups,
            "l2": timing.l2,
            "command": options.command_line(),
            "driver": environment.driver,
            "cuda": environment.cuda,
            "torch": environment.torch,
            "attempts": collector.attempts,
            "failure": "" if failure is None else str(failure) or type(failure).__name__,
        },
    )
    samples = f"{record.id}.samples.json.gz"
    device_folder = folder / run_record.device_slug(environment.device) / "calibration"
    run_record.write_samples(device_folder / samples, collector.raw)
    record = replace(record, samples_file=samples)
    path = save_calibration(record, folder)
    _print(record)
    console.out.print(console.Text(f"  saved {path.name}", style="dim"), soft_wrap=True)
    return record


def _print(record: CalibrationRecord) -> None:
    """The findings, conclusion first."""
    findings, gaps = record.findings(), record.gaps()
    if findings:
        verdict = "NOT to be trusted as they are"
    elif gaps:
        verdict = "verdicts: nothing found against them; the evidence is partial"
    else:
        verdict = "verdicts can be trusted"
    style = "bold yellow" if findings or gaps else "bold green"
    console.out.print(
        f"[bold]calibrate {record.step} {record.shape}[/bold]  {console.escape(record.device)}  "
        f"{record.metric} time  [{style}]{verdict}[/{style}]",
        soft_wrap=True,
    )
    fp = record.false_positives
    table = console.make_table([("", "left"), ("found", "right"), ("expected", "left")])
    table.add_row(
        "A/A rejections at α = .05",
        f"{fp.rejections.count}/{fp.rejections.total} ({100 * fp.rejections.rate:.1f}%)",
        f"{fp.band_lo} to {fp.band_hi} (97 % binomial band)",
    )
    if record.session_aware is not None:
        aware = record.session_aware
        table.add_row(
            "  … with the session spread",
            f"{aware.rejections.count}/{aware.rejections.total}",
            f"≤ {aware.band_hi}",
        )
    table.add_row(
        "A/A verdicts",
        ", ".join(f"{count} {label}" for label, count in sorted(fp.verdicts.items())),
        "SAME",
    )
    table.add_row("A/A p uniform (KS p)", f"{fp.ks_p:.3f}", "> .01")
    table.add_row("A/A signs positive", f"{fp.positive}/{fp.rejections.total}", "about half")
    for kind, powers in (("planted", record.planted), ("synthetic", record.synthetic)):
        for power in powers:
            name = "margin + 2 MDE = " if power.target else ""
            table.add_row(
                f"{kind} {name}{100 * power.level:+.2f}% "
                f"(really {100 * power.planted:+.2f}%, seen {100 * power.median_change:+.2f}%)",
                f"{power.slower.count}/{power.slower.total} SLOWER",
                "≥ 95%" if power.target else "power, stated",
            )
    if record.sequential is not None:
        control = record.sequential
        table.add_row(
            "sequential A…A B…B, Welch",
            f"{control.rejections.count}/{control.rejections.total} rejected",
            f"≤ {control.band_hi} if there were no drift",
        )
    for name, spread in (
        ("session SD of a comparison", record.comparison_spread),
        ("session SD of one arm's median", record.level_spread),
    ):
        if spread is not None:
            table.add_row(
                name,
                f"{100 * spread.sd:.3f}%",
                f"≤ {100 * spread.upper:.3f}% (95 %), {spread.sessions} sessions",
            )
    console.out.print(table)
    for line in findings:
        console.out.print(console.Text(f"→ {line}", style="bold yellow"), soft_wrap=True)
    for line in gaps:
        console.out.print(console.Text(f"  partial evidence: {line}"), soft_wrap=True)
    for line in record.remarks():
        console.out.print(console.Text(f"  {line}", style="dim"), soft_wrap=True)
