"""The gate's report as JUnit XML, which CI systems show as a test result.

One test case per row. Regressions, missing rows and, where asked, ambiguous rows are failures;
incorrect rows are errors; skipped rows, and ambiguous rows that do not fail, are skipped.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

from kernelbench.compare.gate_report import GateReport, GateRow

# XML 1.0 section 2.2: characters that no document may hold, not even escaped.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(report: GateReport) -> str:
    """The XML document, with its declaration."""
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
        ElementTree.SubElement(properties, "property", {"name": name, "value": _text(value)})
    suite.extend(cases)
    if report.notes:
        ElementTree.SubElement(suite, "system-out").text = _text("\n".join(report.notes))
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
    case = ElementTree.Element("testcase", {k: _text(v) for k, v in attributes.items()})
    message = _text(row.reason or row.status)
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
        detail.text = _text(f"{row.name}: {row.reason}\n{row.next_step}".rstrip())
    return case


def _text(value: str) -> str:
    return _FORBIDDEN.sub("\ufffd", value)
