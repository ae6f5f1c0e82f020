"""``kernelbench calibrate``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode
from kernelbench.base.table import Row
from kernelbench.cli import options
from kernelbench.compare import calibrator
from kernelbench.compare.calibrator import SIZE, CalibrationSize
from kernelbench.records.calibration_record import CalibrationRecord
from kernelbench.records.metrics import TIMES
from kernelbench.stats.defaults import MARGIN


def _model_written(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is None:
        return
    from kernelbench.base.files import write_text
    from kernelbench.predict.device_probes import probed_file

    write_text(Path(options.output_file(path)), probed_file())
    console.err.say(f"wrote {path}")
    context.exit()


@click.command(
    "calibrate",
    epilog="\b\nExamples:\n"
    "  kernelbench calibrate v00 --shape u1\n"
    "  kernelbench calibrate m05 --shape qwen35 --aa 200 --planted 40 --seed 1\n"
    "  kernelbench calibrate --model mine.toml      then: run m05 --predict-on mine.toml",
)
@options.step_argument("step")
@options.shape_option()
@options.metric_option(choices=TIMES)
@options.count_option(
    "--aa", "A/A comparisons, spread over the sessions.", least=20, default=SIZE.aa
)
@options.count_option(
    "--sessions", "Fresh processes for the A/A comparisons.", least=2, default=SIZE.sessions
)
@options.count_option(
    "--planted",
    "Trials of each planted slowdown: 0.5, 1, 2 % and margin + 2 MDE.",
    least=0,
    default=SIZE.planted,
)
@options.count_option(
    "--sequential",
    "Sequential A…A B…B pairs, the negative control.",
    least=0,
    default=SIZE.sequential,
)
@click.option("--margin", type=options.Percent(), default=f"{MARGIN:.1%}")
@click.option(
    "--model",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_model_written,
    help="Calibrate no verdicts: write what probes of this GPU find, for --predict-on.",
)
@options.measuring_options
def command(step: str, shapes: tuple[str, ...], **asked: Any) -> int:
    """Measure how far verdicts on this device can be trusted, with STEP as the test object.

    A/A comparisons give the false-positive rate and the spread between sessions, which `ab` and
    `gate` then use; planted slowdowns the power; sequential pairs show what interleaving is for.
    Every attempt is kept, also a failed or interrupted one. Leaves with 4 if the findings speak
    against trusting verdicts. With fewer comparisons, sessions or trials than by default the
    evidence is called partial.
    """
    observer = console.Watching()
    size = CalibrationSize(**{each.name: asked.pop(each.name) for each in fields(CalibrationSize)})

    def show(record: CalibrationRecord) -> None:
        _calibrated(record, observer.path)

    with options.showing_partial(CalibrationRecord, show), observer:
        record = calibrator.calibrate(
            step, shapes, size=size, command=options.command_line(), observer=observer, **asked
        )
    show(record)
    return int(ExitCode.PASS if not record.findings() else ExitCode.AMBIGUOUS)


def _calibrated(record: CalibrationRecord, path: Path | None) -> None:
    """The findings, conclusion first; then where they are kept."""
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
        f"{record.metric} time  [{style}]{verdict}[/{style}]"
    )
    console.show(_rows(record), right=["found"])
    for line in findings:
        console.out.say(f"→ {line}", "bold yellow")
    for line in gaps:
        console.out.say(f"  partial evidence: {line}")
    for line in record.remarks():
        console.out.say(f"  {line}", "dim")
    console.out.say(f"  saved {path and path.name}", "dim")


def _rows(record: CalibrationRecord) -> list[Row]:
    found = [*_false_positives(record), *_power(record)]
    if record.sequential is not None:
        control = record.sequential
        rejected = f"{control.rejections.count}/{control.rejections.total} rejected"
        expected = f"≤ {control.band_hi} if there were no drift"
        found.append(("sequential A…A B…B, Welch", rejected, expected))
    for name, spread in (
        ("session SD of a comparison", record.comparison_spread),
        ("session SD of one arm's median", record.level_spread),
    ):
        if spread is not None:
            upper = f"≤ {100 * spread.upper:.3f}% (95 %), {spread.sessions} sessions"
            found.append((name, f"{100 * spread.sd:.3f}%", upper))
    return [dict(zip(("", "found", "expected"), cells, strict=True)) for cells in found]


def _false_positives(record: CalibrationRecord) -> Iterator[tuple[str, str, str]]:
    fp = record.false_positives
    total = fp.rejections.total
    rejected = f"{fp.rejections.count}/{total} ({100 * fp.rejections.rate:.1f}%)"
    yield (
        "A/A rejections at α = .05", rejected, f"{fp.band_lo} to {fp.band_hi} (97 % binomial band)"
    )  # fmt: skip
    if record.session_aware is not None:
        aware = record.session_aware
        of = f"{aware.rejections.count}/{aware.rejections.total}"
        yield "  … with the session spread", of, f"≤ {aware.band_hi}"
    verdicts = ", ".join(f"{count} {label}" for label, count in sorted(fp.verdicts.items()))
    yield "A/A verdicts", verdicts, "SAME"
    yield "A/A p uniform (KS p)", f"{fp.ks_p:.3f}", "> .01"
    yield "A/A signs positive", f"{fp.positive}/{total}", "about half"


def _power(record: CalibrationRecord) -> Iterator[tuple[str, str, str]]:
    for kind, powers in (("planted", record.planted), ("synthetic", record.synthetic)):
        for power in powers:
            name = "margin + 2 MDE = " if power.target else ""
            seen = f"really {100 * power.planted:+.2f}%, seen {100 * power.median_change:+.2f}%"
            yield (
                f"{kind} {name}{100 * power.level:+.2f}% ({seen})",
                f"{power.slower.count}/{power.slower.total} SLOWER",
                "≥ 95%" if power.target else "power, stated",
            )
