"""How a calibration looks on the terminal."""

from __future__ import annotations

from pathlib import Path

from kernelbench.base import console
from kernelbench.records.calibration_record import CalibrationRecord


def calibrated(record: CalibrationRecord, path: Path) -> None:
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
        f"{record.metric} time  [{style}]{verdict}[/{style}]",
        soft_wrap=True,
    )
    console.out.print(_table(record))
    for line in findings:
        console.out.print(console.Text(f"→ {line}", style="bold yellow"), soft_wrap=True)
    for line in gaps:
        console.out.print(console.Text(f"  partial evidence: {line}"), soft_wrap=True)
    for line in record.remarks():
        console.out.print(console.Text(f"  {line}", style="dim"), soft_wrap=True)
    console.out.print(console.Text(f"  saved {path.name}", style="dim"), soft_wrap=True)


def _table(record: CalibrationRecord) -> console.Table:
    table = console.make_table([("", "left"), ("found", "right"), ("expected", "left")])
    _add_false_positives(table, record)
    _add_power(table, record)
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
    return table


def _add_false_positives(table: console.Table, record: CalibrationRecord) -> None:
    fp = record.false_positives
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


def _add_power(table: console.Table, record: CalibrationRecord) -> None:
    for kind, powers in (("planted", record.planted), ("synthetic", record.synthetic)):
        for power in powers:
            name = "margin + 2 MDE = " if power.target else ""
            table.add_row(
                f"{kind} {name}{100 * power.level:+.2f}% "
                f"(really {100 * power.planted:+.2f}%, seen {100 * power.median_change:+.2f}%)",
                f"{power.slower.count}/{power.slower.total} SLOWER",
                "≥ 95%" if power.target else "power, stated",
            )
