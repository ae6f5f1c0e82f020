"""The page: templates filled with a record.

Every figure goes through :func:`figure_cell`, which keeps the recorded value beside the rounded
one, so that a test can hold the page against ``kernelbench report --json``.
"""

from __future__ import annotations

import base64
import io
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from xml.etree import ElementTree

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.executors.targets import device_timed
from kernelbench.machine.arch import arch_named
from kernelbench.project.model import METRIC_NAMES, UNITS
from kernelbench.records.ledger import LedgerEntry
from kernelbench.report.drawing import (
    PAGE_PALETTE,
    Mark,
    Marks,
    can_draw,
    drawing_settings,
    page_colours,
)
from kernelbench.report.html.heads import steps_down
from kernelbench.report.html.record import (
    ComparisonPage,
    Distribution,
    LineagePage,
    PredictedPage,
    ReportRecord,
)
from kernelbench.report.ladder_plot import ladder_figure
from kernelbench.report.memory_map import memory_map_svg
from kernelbench.report.roofline_plot import roofline_figure
from kernelbench.report.schedule_plot import schedules_svg
from kernelbench.report.sweep_plot import sweep_figure
from kernelbench.report.wait_graph import wait_graph_svg

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
#: What matplotlib calls the parts of an axis: their figures are a scale's, nobody measured them.
_AXIS = re.compile(r"matplotlib\.axis_\d+")

#: A page that is sent by mail; where it would be longer it lacks its longest diffs.
MAX_BYTES = 1_250_000
#: Lines of the longest diff of a file that a page has, tried in this order.
_DIFF_LINES = (100_000, 250, 180, 130, 90, 60, 40, 20, 0)


def slug(name: str) -> str:
    """A name as part of an ``id``."""
    return re.sub(r"[^\w-]+", "-", name)


@dataclass
class StyleSheet:
    """The styles of a page's drawings, each written once: a drawing has a thousand elements."""

    names: dict[str, str] = field(default_factory=dict)

    def name(self, style: str) -> str:
        """The class of a style."""
        return self.names.setdefault(style, f"d{len(self.names)}")

    def css(self) -> str:
        """The rules, a class each, in the page's colours."""
        text = "\n".join(f".{name}{{{style}}}" for style, name in self.names.items())
        for colour, theirs in page_colours().items():
            text = text.replace(colour, theirs)
        return text


def inline_svg(figure: Any, marks: Marks, key: str, label: str, sheet: StyleSheet) -> str:
    """The SVG element of a figure drawn with :data:`~kernelbench.report.drawing.PAGE_PALETTE`.

    Args:
        marks: Each becomes a link to its step with a title, and its figures as ``data-values``.
        key: Unique in the page: it begins every ``id``.
        label: What the drawing shows, for those who do not see it.
        sheet: Takes the styles.
    """
    stream = io.StringIO()
    with drawing_settings():
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    width, height = (float(of.removesuffix("pt")) for of in re.findall(r"[\d.]+pt", text)[:2])
    root = ElementTree.fromstring(text)
    _tidy(root)
    _name(root, key)
    _link(root, marks.by_name)
    _shorten(root, sheet)
    while _unwrap(root):
        pass
    _join_lines(root)
    root.attrib.clear()
    root.attrib |= {
        "class": "plot", "viewBox": f"0 0 {width:.0f} {height:.0f}", "role": "group",
        "aria-label": label, "style": f"--w:{width:.0f}px",
    }  # fmt: skip
    return _text(root)


def _tidy(root: ElementTree.Element) -> None:
    """Take out what says nothing: metadata, the style of all elements, clips of what fits."""
    for parent in root.iter():
        for child in [*parent]:
            if _plain_name(child) in ("metadata", "style", "clipPath"):
                parent.remove(child)
    for element in root.iter():
        element.attrib.pop("clip-path", None)
        if "style" in element.attrib:
            element.attrib["style"] = _style(element.attrib["style"])


def _plain_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _style(text: str) -> str:
    """The style without the names of fonts, which are the page's."""
    kept = []
    for part in (part.strip() for part in text.split(";")):
        name, _, value = part.partition(":")
        if name == "font":
            weight = "font-weight:bold;" if re.search("bold|[67]00", value) else ""
            size = re.search(r"[\d.]+px", value)
            kept.append(f"{weight}font-size:{size[0] if size else '8px'}")
        elif part and name not in ("font-family", "stroke-linejoin", "stroke-linecap"):
            kept.append(f"{name}:{value.strip()}")
    return ";".join(kept)


def _name(root: ElementTree.Element, key: str) -> None:
    """Keep the names that something refers to, short and unique in the page, and those of marks."""
    links = [element.attrib[_LINK][1:] for element in root.iter() if _LINK in element.attrib]
    short = {name: f"{key}-{i}" for i, name in enumerate(dict.fromkeys(links))}
    for element in root.iter():
        own = element.attrib.pop("id", "")
        if _AXIS.fullmatch(own):
            element.attrib["class"] = "axis"
        if own in short or own.startswith("mark-"):
            element.attrib["id"] = short.get(own, own)
        if _LINK in element.attrib:
            element.attrib["href"] = "#" + short[element.attrib.pop(_LINK)[1:]]


def _link(root: ElementTree.Element, marks: Mapping[str, Mark]) -> None:
    """Make of each mark's group a link to its step, with a title that is shown when hovered."""
    for element in root.iter():
        mark = marks.get(element.attrib.get("id", ""))
        if mark is None:
            continue
        del element.attrib["id"]
        element.tag = f"{{{_SVG}}}a"
        element.attrib |= {"href": f"#step-{slug(mark.step)}", "class": "mark"}
        if mark.values:
            element.attrib["data-values"] = " ".join(f"{each:.9g}" for each in mark.values)
        if mark.told:
            title = ElementTree.Element(f"{{{_SVG}}}title")
            title.text = mark.told
            element.insert(0, title)


def _shorten(root: ElementTree.Element, sheet: StyleSheet) -> None:
    """A tenth of a point is fine enough; no turns by nothing; styles by name."""
    for element in root.iter():
        for name in ("d", "x", "y", "transform"):
            if name in element.attrib:
                value = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}", element.attrib[name])
                value = " ".join(re.sub(r"\.0\b", "", value).split())
                element.attrib[name] = re.sub(r" ?([A-Z]) ?", r"\1", value)
        if element.attrib.get("transform", "").startswith("rotate(-0 "):
            del element.attrib["transform"]
        style = element.attrib.pop("style", "")
        if style:
            element.attrib["class"] = sheet.name(style)


def _unwrap(root: ElementTree.Element) -> bool:
    """Put what groups without a name hold in their places; whether there was such a group."""
    found = False
    for parent in root.iter():
        for place, child in reversed([*enumerate(parent)]):
            if _plain_name(child) in ("g", "defs") and not child.attrib:
                if _plain_name(child) == "defs" and len(child):
                    continue
                parent[place : place + 1] = [*child]
                found = True
    return found


def _join_lines(root: ElementTree.Element) -> None:
    """Make one path of neighbours that are open lines of one style."""
    for parent in root.iter():
        last: ElementTree.Element | None = None
        for child in [*parent]:
            line = child.attrib.keys() == {"d", "class"} and "z" not in child.attrib["d"]
            if not line or len(child):
                last = None
            elif last is not None and last.attrib["class"] == child.attrib["class"]:
                last.attrib["d"] += child.attrib["d"]
                parent.remove(child)
            else:
                last = child


def _text(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode")
    # In a page the names of SVG need no prefix.
    text = re.sub(r"(</?)ns\d+:", r"\1", text)
    text = re.sub(r'\sxmlns:ns\d+="[^"]*"', "", text)
    return re.sub(r">\s+<", "><", text).replace(" />", "/>")


def page_text(record: ReportRecord, on_progress: Callable[[str], None] = lambda _text: None) -> str:
    """The page as HTML, within :data:`MAX_BYTES` without its longest diffs; it needs Jinja2."""
    template = _environment().get_template("page.html.j2")
    drawings, sheet = {}, StyleSheet()
    for lineage in record.lineages:
        on_progress(f"{lineage.name}: drawing")
        drawings[lineage.name] = _drawings(lineage, sheet)
    on_progress("writing the page")
    known = {step.name for lineage in record.lineages for step in lineage.steps}
    text = ""
    for longest in _DIFF_LINES:
        text = template.render(
            report=record, drawings=drawings, sheet=sheet.css(), known=known, packed=Packed(),
            longest=longest,
        )  # fmt: skip
        if len(text.encode()) <= MAX_BYTES:
            break
    return text


class Packed:
    """What a page shows when it is opened: pieces of HTML, deflated together."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def __call__(self, caller: Callable[[], str]) -> Any:
        """Keep the text of a template's block; what stands in its place."""
        from markupsafe import Markup

        self._pieces.append(caller())
        place = Markup('<p class="small muted" data-packed="{}">To open this takes scripts.</p>')
        return place.format(len(self._pieces) - 1)

    def text(self) -> str:
        """A JSON list of the pieces, deflated, as base64."""
        packed = zlib.compress(json.dumps(self._pieces, ensure_ascii=False).encode(), 9)
        return base64.b64encode(packed).decode()


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
    environment.filters |= {"figure": figure_cell, "prose": prose, "slug": slug}
    environment.globals |= {
        "unit_names": UNITS, "metric_names": METRIC_NAMES, "executor_in_words": _executor_in_words,
        "bars": histogram_bars, "steps_down": steps_down, "by_pair": by_pair,
        "wait_graph": wait_graph_svg, "memory_map": memory_map_svg, "arch_named": arch_named,
        "schedules": _schedules,
    }  # fmt: skip
    return environment


def figure_cell(value: float | None, form: str = ".2f", scale: float = 1.0) -> Any:
    """A figure as ``<data value="to nine digits">as shown</data>``; a dash for None.

    Args:
        scale: The shown figure is this many times the recorded one, as 100 for percent.
    """
    from markupsafe import Markup, escape

    if value is None:
        return "–"
    shown = format(value if scale == 1 else value * scale, form).replace("-", "−")
    return Markup('<data value="{}">{}</data>').format(f"{value:.9g}", escape(shown))


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


def by_pair(comparisons: Iterable[ComparisonPage]) -> list[list[LedgerEntry]]:
    """The newest entry of each shape and metric, by pair of steps; the newest pair first."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], LedgerEntry]] = {}
    for entry in (page.entry for page in reversed([*comparisons])):
        pair = found.setdefault((entry.device, entry.base.step, entry.cand.step), {})
        pair.setdefault((entry.shape, entry.metric, str(entry.protocol.get("l2"))), entry)
    return [[*pair.values()] for pair in found.values()]


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


def _schedules(found: PredictedPage) -> str:
    gone = {(each.bubble.cause, each.bubble.where) for each in found.removed}
    return schedules_svg(found.schedules, gone, page=True)


def _drawings(lineage: LineagePage, sheet: StyleSheet) -> Mapping[str, Any]:
    """The SVG elements of a lineage, by kind, in the order of the record; none if nothing draws."""
    key = slug(lineage.name)
    found: dict[str, list[str]] = {"ladders": [], "sweeps": [], "rooflines": []}
    if not can_draw():
        return found

    def add(kind: str, label: str, draw: Callable[[Marks], Any]) -> None:
        marks, place = Marks(), f"{key}-{kind[0]}{len(found[kind])}"
        found[kind].append(inline_svg(draw(marks), marks, place, label, sheet))

    with drawing_settings():
        for ladder in lineage.ladders:
            add(
                "ladders", f"Ladder of {ladder.title}", partial(ladder_figure, ladder, PAGE_PALETTE)
            )
        for sweep in lineage.sweeps:
            add("sweeps", sweep.title, partial(sweep_figure, sweep, PAGE_PALETTE))
        for roofline in lineage.rooflines:
            label = f"Roofline of {lineage.name} on {roofline.device.name}"
            draw = partial(roofline_figure, roofline, lineage.peers, PAGE_PALETTE)
            add("rooflines", label, draw)
    return found
