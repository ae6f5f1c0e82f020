"""``kernelbench explain``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from kernelbench.base import console
from kernelbench.base.errors import UnknownNameError
from kernelbench.emulator.assumptions import ASSUMPTIONS, LAUNCH_ASSUMPTIONS
from kernelbench.emulator.findings import CLASSES
from kernelbench.project.shipped import shipped_root

#: What else stands in the place of findings.
_STATUSES = {
    "wrong": "The result is not the reference's, or the program's own check of it fails: main "
    "returns another value than 0, or a script asserts. A finding above it is its cause; without "
    "one the line below the table has all that is known.",
    "fault": "It did not come to its end: a crash, an exception, a build that fails, or a launch "
    "that is refused and that the program does not ask about. The line below the table says which.",
    "skipped": "It was not checked: the step does not take this shape, as the reason says.",
}


@click.command("explain")
@click.argument("name", metavar="[CLASS]", default="")
def command(name: str) -> None:
    """Print what a class of findings means: wrong code, right code, and why.

    Without CLASS, list all classes. An identity such as race-03307ec162 stands for its class;
    names behind `assumed` are explained, too.

    \b
    Examples:
      kernelbench explain
      kernelbench explain proxy-fence
    """
    if not name:
        rows = [{"class": each, "meaning": meaning} for each, meaning in CLASSES.items()]
        console.show(rows, console.out)
        return
    kind = re.sub(r"-[0-9a-f]{10}$", "", name)
    assumed = ASSUMPTIONS | LAUNCH_ASSUMPTIONS
    others = _STATUSES | {each: f"Assumed: {text}." for each, text in assumed.items()}
    if kind in others:
        console.out.say(others[kind], width=min(console.out.width, 80))
        return
    if kind not in CLASSES:
        raise UnknownNameError("class of findings", name, [*CLASSES, *others])
    page = shipped_root() / "docs" / "findings" / f"{kind}.md"
    for style, line in _lines(page.read_text(encoding="utf-8")):
        console.out.say(line, style, width=None if style else min(console.out.width, 80))


def _lines(page: str) -> Iterator[tuple[str, str]]:
    """The page as a terminal shows it: style and text of each line or paragraph."""
    for number, part in enumerate(re.split(r"^```.*\n", page, flags=re.MULTILINE)):
        if number % 2:
            yield from (("cyan", f"    {line}".rstrip()) for line in part.splitlines())
            continue
        part = re.sub(r"^\(.*\)=\n", "", part, flags=re.MULTILINE)
        for line in re.sub(r"(?<=[^\n])\n(?=[^\n*#])", " ", part).splitlines():
            words = re.sub(r"\[([^\]]+)\]\([^)]*\)|\*([^*]+)\*|`([^`]+)`", _plain, line)
            yield "bold" if line.startswith("#") else "", words.lstrip("# ")


def _plain(match: re.Match[str]) -> str:
    """The words of a link, of emphasis or of code."""
    link, emphasis, code = match.groups()
    return str(link or emphasis or code)
