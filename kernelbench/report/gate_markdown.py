"""The gate's report in Markdown, for a terminal pager, a pull request or a job summary."""

from __future__ import annotations

from kernelbench.compare.gate_report import GateReport, GateRow

_SAID = {"ok": "unchanged"}
_ORDER = (
    "incorrect", "regression", "missing", "ambiguous", "faster", "ok", "new", "skipped",
)  # fmt: skip


def gate_markdown(report: GateReport) -> str:
    """Conclusion first, then what to do, then the table, failing rows on top."""
    lines = [f"## kernelbench gate: {_text(report.headline)}", ""]
    form = "stored tables" if report.form == "tables" else "live, interleaved"
    lines += [f"{_text(report.device)}, {form}; {_text(report.margin_note)}.", ""]
    lines += [f"* {_text(note)}" for note in report.notes]
    shown = (*report.failures, *(r for r in report.rows if r not in report.failures))
    lines += [
        f"* **{_text(row.name)}**: {_text(row.reason or row.status)}"
        + (f" → {_text(row.next_step)}" if row.next_step else "")
        for row in shown
        if row in report.failures or row.status == "ambiguous"
    ]
    if lines[-1]:
        lines.append("")
    if not report.rows:
        return "\n".join(lines)
    lines += [
        "| step | shape | metric | base µs | now µs | Δ | best µs | Δ best | margin | status |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    rank = {status: index for index, status in enumerate(_ORDER)}
    lines += [_row(row) for row in sorted(report.rows, key=lambda row: rank[row.status])]
    return "\n".join(lines) + "\n"


def _row(row: GateRow) -> str:
    shape = f"{row.shape} ({row.inputs})" if row.inputs else row.shape
    margins = [f"{100 * m:.2g}%" for m in (row.margin, row.margin_best) if m is not None]
    cells = [
        row.step,
        shape,
        row.metric or "–",
        _time(row.base),
        _time(row.current),
        _change(row.delta),
        _time(row.best),
        _change(row.delta_best),
        " / ".join(dict.fromkeys(margins)) or "–",
        _SAID.get(row.status, row.status),
    ]
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _time(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _change(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.2f}%"


def _text(value: str) -> str:
    """One line that cannot break out of a table cell."""
    flat = " ".join(value.split())
    return flat.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
