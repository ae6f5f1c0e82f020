"""Reads a page as a browser does: elements with attributes, texts with where they stand."""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import dataclass, field
from html.parser import HTMLParser

#: Elements of HTML that have no end.
_VOID = {"meta", "link", "img", "input", "br", "hr"}


@dataclass(frozen=True, eq=False)
class Element:
    """A start of an element; ``path`` are the elements that it is in, the outermost first."""

    tag: str
    attributes: dict[str, str]
    path: tuple[Element, ...] = field(repr=False)

    def within(self, tag: str, kind: str = "") -> bool:
        """Whether it, or one that it is in, is such an element, of such a class if one is named."""
        return any(
            each.tag == tag and (not kind or kind in each.attributes.get("class", "").split())
            for each in (*self.path, self)
        )


@dataclass
class Page(HTMLParser):
    """What a page holds; ``mistakes`` are ends that fit no start."""

    elements: list[Element] = field(default_factory=list)
    texts: list[tuple[Element, str]] = field(default_factory=list)
    mistakes: list[str] = field(default_factory=list)
    open: list[Element] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if len(given) != len(attrs):
            self.mistakes.append(f"<{tag}> has an attribute twice, {self.getpos()}")
        element = Element(tag, given, tuple(self.open))
        self.elements.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(
            Element(tag, {name: value or "" for name, value in attrs}, tuple(self.open))
        )

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].tag != tag:
            self.mistakes.append(f"</{tag}> at {self.getpos()}")
            return
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if data.strip() and self.open:
            self.texts.append((self.open[-1], data))


def unpacked(text: str) -> str:
    """A page's text with all that it shows when it is opened."""
    found = re.search(r'id="packed">([^<]*)<', text)
    pieces = json.loads(zlib.decompress(base64.b64decode(found[1]))) if found else []
    return re.sub(
        r'<p [^>]*data-packed="(\d+)">[^<]*</p>', lambda place: pieces[int(place[1])], text
    )


def read_page(text: str) -> Page:
    """The page of a text."""
    page = Page()
    page.feed(unpacked(text))
    page.close()
    return page
