"""The gate's report in Markdown, for a pager, a pull request or a job summary; and as JUnit XML."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from kernelbench.base.table import Row, markdown
from kernelbench.compare.gate_report import GateReport, GateRow

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
    rows = [_row(row) for row in sorted(report.rows, key=lambda row: _ORDER.index(row.status))]
    lines += markdown(rows, {*rows[0]} - {"step", "shape", "metric", "status"})
    return "\n".join(lines) + "\n"


def _row(row: GateRow) -> Row:
    margins = [f"{100 * m:.2g}%" for m in (row.margin, row.margin_best) if m is not None]
    return {
        "step": _flat(row.step),
        "shape": _flat(f"{row.shape} ({row.inputs})" if row.inputs else row.shape),
        "metric": row.metric or "–",
        "base µs": _shown(row.base, ".2f"),
        "now µs": _shown(row.current, ".2f"),
        "Δ": _shown(row.delta, "+.2%"),
        "best µs": _shown(row.best, ".2f"),
        "Δ best": _shown(row.delta_best, "+.2%"),
        "margin": " / ".join(dict.fromkeys(margins)) or "–",
        "status": "unchanged" if row.status == "ok" else row.status,
    }


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _text(value: str) -> str:
    """One line that cannot break out of a list or a table cell."""
    return _flat(value).replace("|", "\\|")


def _flat(value: str) -> str:
    """The same for :func:`markdown`, which escapes bars."""
    return " ".join(value.split()).replace("\\", "\\\\").replace("<", "&lt;")


# XML 1.0 section 2.2: characters that no document may hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: GateReport) -> str:
    """The report as JUnit XML, which CI systems show as a test result: one test case per row.

    Regressions, missing rows and, where asked, ambiguous rows are failures; incorrect rows are
    errors; skipped rows, and ambiguous rows that do not fail, are skipped.
    """
    failing = set(report.failures)
    cases = [_case(row, row in failing) for row in report.rows]
    counts = {
        tag: str(sum(case.find(kind) is not None for case in cases))
        for tag, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    suite = ElementTree.Element(
        "testsuite", {"name": "kernelbench gate", "tests": str(len(cases)), **counts}
    )
    properties = ElementTree.SubElement(suite, "properties")
    facts = {
        "device": report.device,
        "form": report.form,
        "margin": report.margin_note,
        "conclusion": report.headline,
    }
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": _one_line(value)})
    suite.extend(cases)
    if report.notes:
        ElementTree.SubElement(suite, "system-out").text = _one_line("\n".join(report.notes))
    root = ElementTree.Element("testsuites", {"tests": str(len(cases)), **counts})
    root.append(suite)
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _case(row: GateRow, failing: bool) -> ElementTree.Element:
    shape = f"{row.shape} ({row.inputs})" if row.inputs else row.shape
    attributes = {
        "classname": f"kernelbench.gate.{row.step}",
        "name": f"{shape} {row.metric}".rstrip(),
    }
    if row.current is not None:
        attributes["time"] = f"{row.current * 1e-6:.9f}"
    case = ElementTree.Element("testcase", {k: _one_line(v) for k, v in attributes.items()})
    message = _one_line(row.reason or row.status)
    if row.status == "incorrect":
        kind = "error"
    elif failing:
        kind = "failure"
    elif row.status in ("ambiguous", "skipped"):
        kind = "skipped"
    else:
        return case
    detail = ElementTree.SubElement(case, kind, {"type": row.status, "message": message})
    if kind != "skipped":
        detail.text = _one_line(f"{row.name}: {row.reason}\n{row.next_step}".rstrip())
    return case


def _one_line(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
