"""The page: templates filled with a record.

Every figure goes through :func:`figure_cell`, which keeps the recorded value beside the rounded
one, so that a test can hold the page against ``kernelbench report --json``.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.executors.targets import device_timed
from kernelbench.project.reported_figures import METRIC_NAMES, UNITS
from kernelbench.report.drawing import PAGE_PALETTE, Marks, drawing_settings
from kernelbench.report.html.inline_svg import StyleSheet, inline_svg, slug
from kernelbench.report.html.record import Distribution, LineagePage, ReportRecord
from kernelbench.report.ladder_plot import ladder_figure
from kernelbench.report.roofline_plot import roofline_figure
from kernelbench.report.sweep_plot import sweep_figure

#: A page that is sent by mail; where it would be longer it lacks diffs, first those of experiments.
MAX_BYTES = 1_500_000


def page_text(record: ReportRecord, on_progress: Callable[[str], None] = lambda _text: None) -> str:
    """The page as HTML, at most :data:`MAX_BYTES` long as far as leaving out diffs makes it so.

    Raises:
        EnvironmentProblem: If Jinja2 or matplotlib is missing.
    """
    template = _environment().get_template("page.html.j2")
    drawings, sheet = {}, StyleSheet()
    for lineage in record.lineages:
        on_progress(f"{lineage.name}: drawing")
        drawings[lineage.name] = _drawings(lineage, sheet)
    on_progress("writing the page")
    known = {step.name for lineage in record.lineages for step in lineage.steps}
    text = ""
    for shown, experiments in ((record.lineages, True), (record.lineages, False), ((), False)):
        packed, diffs = packed_diffs(shown, experiments=experiments)
        text = template.render(
            report=record, drawings=drawings, sheet=sheet.css(), known=known, packed=packed,
            diffs=diffs,
        )  # fmt: skip
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise EnvironmentProblem("reports need Jinja2", "`pip install jinja2`") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kernelbench.report.html"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "figure": figure_cell, "prose": prose, "slug": slug,
    }  # fmt: skip
    environment.globals |= {
        "unit_names": UNITS, "metric_names": METRIC_NAMES, "executor_in_words": _executor_in_words,
        "bars": histogram_bars,
    }  # fmt: skip
    return environment


def figure_cell(value: float | None, form: str = ".2f", scale: float = 1.0) -> Any:
    """A figure as ``<data value="as recorded">as shown</data>``; a dash for None.

    Args:
        scale: The shown figure is this many times the recorded one, as 100 for percent.
    """
    from markupsafe import Markup, escape

    if value is None:
        return "–"
    shown = format(value if scale == 1 else value * scale, form).replace("-", "−")
    return Markup('<data value="{}">{}</data>').format(repr(value), escape(shown))


_INLINE = re.compile(r"`([^`]+)`|\*\*(.+?)\*\*|\[([^\]]+)\]\([^)]*\)")


def prose(block: str) -> Any:
    """A block of Markdown as HTML: code, bold, lists and paragraphs; links become their text."""
    from markupsafe import Markup, escape

    if block.startswith("```"):
        body = "\n".join(line for line in block.splitlines() if not line.startswith("```"))
        return Markup("<pre>{}</pre>").format(body)
    if re.match(r"[*-] ", block):
        items = re.split(r"\n[*-] ", block[2:])
        lines = Markup("").join(Markup("<li>{}</li>").format(_inline(item)) for item in items)
        return Markup("<ul>{}</ul>").format(lines)
    if block.startswith("#"):
        return Markup("<p><strong>{}</strong></p>").format(escape(block.lstrip("# ")))
    return Markup("<p>{}</p>").format(_inline(block))


def _inline(text: str) -> Any:
    from markupsafe import Markup, escape

    found, end = Markup(""), 0
    for match in _INLINE.finditer(text):
        found += escape(text[end : match.start()])
        code, bold, link = match.groups()
        if code is not None:
            found += Markup("<code>{}</code>").format(code)
        elif bold is not None:
            found += Markup("<strong>{}</strong>").format(_inline(bold))
        else:
            found += _inline(link)
        end = match.end()
    return found + escape(text[end:])


def packed_diffs(lineages: Iterable[LineagePage], *, experiments: bool) -> tuple[str, set[str]]:
    """The texts of diffs: JSON, a list of lines per file by step, deflated, as base64.

    Returns:
        The text, empty without diffs, and the names of the steps that it has.
    """
    texts = {
        step.name: [file.text for file in step.source.files]
        for lineage in lineages
        for step in lineage.steps
        if step.source is not None and (experiments or not step.experiment)
    }
    if not texts:
        return "", set()
    packed = zlib.compress(json.dumps(texts, ensure_ascii=False).encode(), 9)
    return base64.b64encode(packed).decode(), {*texts}


def histogram_bars(distribution: Distribution, width: int, height: int) -> dict[str, Any]:
    """What the picture of a histogram is made of, in its units: a path, and a scale for marks."""
    step, most = width / len(distribution.counts), max(distribution.counts)
    path = "".join(
        f"M{i * step:.1f} {height}v{-height * count / most:.1f}h{step - 0.6:.1f}V{height}"
        for i, count in enumerate(distribution.counts)
        if count
    )

    def place(value: float) -> float:
        whole = distribution.high - distribution.low
        return round(min(max((value - distribution.low) / whole, 0), 1) * width, 1)

    return {"path": path, "place": place}


def _executor_in_words(name: str) -> str:
    return "a GPU of the step's arch" if device_timed(name) else f"{name} (no times)"


def _drawings(lineage: LineagePage, sheet: StyleSheet) -> Mapping[str, Any]:
    """The SVG elements of one lineage, by kind, in the order of the record."""
    key = slug(lineage.name)
    found: dict[str, list[str]] = {"ladders": [], "sweeps": [], "rooflines": []}
    with drawing_settings():
        for i, ladder in enumerate(lineage.ladders):
            marks = Marks()
            drawn = ladder_figure(ladder, PAGE_PALETTE, marks)
            label = f"Ladder of {ladder.title}"
            found["ladders"].append(inline_svg(drawn, marks, f"{key}-l{i}", label, sheet))
        for i, sweep in enumerate(lineage.sweeps):
            marks = Marks()
            drawn = sweep_figure(sweep, PAGE_PALETTE, marks)
            found["sweeps"].append(inline_svg(drawn, marks, f"{key}-s{i}", sweep.title, sheet))
        for i, roofline in enumerate(lineage.rooflines):
            marks = Marks()
            drawn = roofline_figure(roofline, lineage.peers, PAGE_PALETTE, marks)
            label = f"Roofline of {lineage.name} on {roofline.device.name}"
            found["rooflines"].append(inline_svg(drawn, marks, f"{key}-r{i}", label, sheet))
    return found
