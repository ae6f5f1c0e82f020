"""Drawings inside a page: small, in the page's colours, with links, titles and figures as data."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

from kernelbench.report.drawing import Mark, Marks, drawing_settings, page_colours

_SVG = "http://www.w3.org/2000/svg"
_LINK = "{http://www.w3.org/1999/xlink}href"
#: What matplotlib calls the parts of an axis: their figures are a scale's, nobody measured them.
_AXIS = re.compile(r"matplotlib\.axis_\d+")


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
            element.attrib["data-values"] = " ".join(map(repr, mark.values))
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
                element.attrib[name] = " ".join(value.split())
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


def _text(root: ElementTree.Element) -> str:
    text = ElementTree.tostring(root, encoding="unicode")
    # In a page the names of SVG need no prefix.
    text = re.sub(r"(</?)ns\d+:", r"\1", text)
    text = re.sub(r'\sxmlns:ns\d+="[^"]*"', "", text)
    return re.sub(r">\s+<", "><", text).replace(" />", "/>")
