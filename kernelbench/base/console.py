"""The only importer of rich: two consoles, tables and a status line.

Results go to ``out`` (stdout); progress, warnings and errors to ``err`` (stderr), so that
``--json -`` leaves stdout to the machine. Colour follows the terminal and ``NO_COLOR``; every
meaning that a colour carries is also a word.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from rich.cells import cell_len
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from kernelbench.base.observer import Observer
from kernelbench.base.table import Row

# Of rich, for those that may not import it.
__all__ = ["Table", "Text", "escape"]

_PIPE_WIDTH = 160
_WORTH_SAYING_S = 2.0  # how long something lasts before its seconds are shown
_FOLDED_WIDTH = 24  # what prose is folded to before a column goes

#: Rich style of each status and verdict word.
STYLES = {
    "PASS": "bold green",
    "pass": "bold green",
    "FASTER": "bold green",
    "SAME": "bold",
    "same": "bold",
    "SLOWER": "bold red",
    "FAIL": "bold red",
    "wrong": "bold red",
    "hang": "bold red",
    "timeout": "bold red",
    "fault": "bold red",
    "problem": "bold magenta",
    "reference": "bold magenta",
    "machine": "bold magenta",
    "harness": "bold magenta",
    "AMBIGUOUS": "bold yellow",
    "NOT MEASURED": "bold yellow",
    "skipped": "yellow",
    "planned": "dim",
}


class Console(RichConsole):
    """Rich's, for texts that are whole lines, and tables."""

    def on_broken_pipe(self) -> None:
        """Leave it to the command line: rich would exit with 1, which means a regression here."""
        raise BrokenPipeError

    def say(self, text: str, style: str = "", **options: Any) -> None:
        """Print a text as it is, brackets included."""
        self.print(Text(text, style=style), **options)

    def print(self, *objects: Any, **options: Any) -> None:
        """On a terminal a long text ends between two words; in a file it stays one line."""
        if "width" not in options and all(isinstance(each, str | Text) for each in objects):
            words = [word for each in objects for word in str(each).split()]
            whole = bool(options.get("no_wrap") or not self.is_terminal)
            if not whole and max(map(len, words), default=0) > self.width:
                objects = tuple(self._around_paths(each) for each in objects)
                whole = True
            options["soft_wrap"] = whole
        super().print(*objects, **options)

    def _around_paths(self, text: str | Text) -> Text:
        """A text in lines, in which a path that is too long for one is whole, to be copied."""
        text = self.render_str(text) if isinstance(text, str) else text
        breaks: list[int] = []
        column = 0
        for word in re.finditer(r"\s*\S+\s*", text.plain):
            needed = cell_len(word[0].strip())
            if column and column + needed > self.width >= needed:
                breaks.append(word.start())
                column = 0
            column += cell_len(word[0])
        lines = text.divide(breaks)
        for line in lines:
            line.rstrip()
        return Text("\n").join(lines)


def _make(stderr: bool) -> Console:
    console = Console()
    _set_up(console, stderr)
    return console


def _set_up(console: Console, stderr: bool) -> None:
    """Have a console look at what stdout or stderr and the environment are now."""
    # A name between colons is a name, no emoji.
    options: dict[str, Any] = {
        "stderr": stderr, "highlight": False, "soft_wrap": False, "emoji": False
    }  # fmt: skip
    console.__init__(**options)  # type: ignore[misc]
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A pipe has no width: wrapping at 80 would break tables that a file can hold.
        console.__init__(**options, width=_PIPE_WIDTH)  # type: ignore[misc]


def renew() -> None:
    """Look at stdout, stderr and the environment again, in a process that now has others."""
    _set_up(out, stderr=False)
    _set_up(err, stderr=True)


def terminal_of_width(width: int, to: IO[str]) -> Console:
    """A console that prints to a text as a terminal without colours would show it."""
    return Console(
        file=to, width=width, force_terminal=True, color_system=None, highlight=False, emoji=False
    )


out = _make(stderr=False)
err = _make(stderr=True)


def styled(word: str) -> Text:
    """A status or verdict in the colour that stands for it."""
    return Text(word, style=STYLES.get(word.split(" ")[0], STYLES.get(word, "")))


def warn(message: str) -> None:
    """Print a one-line warning to stderr."""
    err.print(Text.assemble(("warning: ", "yellow"), message))


@dataclass(frozen=True)
class FittedTable:
    """A table as a terminal has room for it, and what went for that."""

    table: Table
    common: dict[str, str]  #: Headings and the value that all rows share, in place of a column.
    left_out: tuple[str, ...]  #: Headings that there is no room for.

    def show(self, to: Console | None = None) -> None:
        """Print the table, a line for what its rows share, and one for what is missing."""
        to = to or out
        to.print(self.table)
        if self.common:
            shared = (f"{_one_line(heading)} {cell}" for heading, cell in self.common.items())
            to.say("all: " + " · ".join(shared))
        if self.left_out:
            headings = ", ".join(map(_one_line, self.left_out))
            to.say(f"no room for: {headings}")


def fitted(
    rows: Sequence[Row],
    *,
    right: Collection[str] = (),
    center: Collection[str] = (),
    prose: str | Collection[str] | None = None,
    spare: Sequence[Collection[str]] = (),
    width: int | None = None,
    title: str | None = None,
) -> FittedTable:
    """A table of rows; one with ``prose`` keeps names and figures whole on a narrow terminal.

    Where that does not fit, a column in which all rows say the same goes first, into one line
    below; then columns that can be spared.

    Args:
        rows: A string is shown as it is, brackets included. The first column names the rows.
        right: Headings of columns that are aligned right; blanks at the end of a heading keep it
            apart from another and are not shown.
        center: Headings of columns that are centred.
        prose: Heading of the column that may be folded, or of several; without, every column may.
        spare: Headings to leave out, one set after the other, until the others fit.
        width: Of the terminal; that of ``out`` if None.
        title: Shown above the table.
    """
    headings = [*rows[0]] if rows else []
    common: dict[str, str] = {}
    left_out: list[str] = []
    widths: dict[str, int] = {}
    folded = {prose} if isinstance(prose, str) else {*(prose or ())}
    if prose is not None:
        widths = _widths(rows, headings, folded)
        room = width or out.width
        for heading in headings[1:]:
            if _fits(widths, room):
                break
            cells = {str(row[heading]) for row in rows}
            if len(rows) > 1 and len(cells) == 1 and heading and heading not in folded:
                common[heading] = cells.pop()
                del widths[heading]
        for group in spare:
            if _fits(widths, room):
                break
            left_out += [heading for heading in group if widths.pop(heading, None) is not None]
        headings = [*widths]
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        justify: Any = "right" if heading in right else "center" if heading in center else "left"
        whole = prose is not None and heading not in folded
        column_width = widths[heading] if whole else None
        table.add_column(
            heading.rstrip(" "), justify=justify, overflow="fold", no_wrap=whole, width=column_width
        )
    for row in rows:
        # Text, because a string would be read as markup.
        cells_of_row = (row[heading] for heading in headings)
        table.add_row(*(c if isinstance(c, Text) else Text(str(c)) for c in cells_of_row))
    return FittedTable(table, common, tuple(left_out))


def show(rows: Sequence[Row], to: Console | None = None, **how: Any) -> None:
    """Print rows, if there are any, as a table; ``how``: the arguments of :func:`fitted`."""
    if rows:
        fitted(rows, width=to.width if to else None, **how).show(to)


def _widths(
    rows: Sequence[Row], headings: Sequence[str], folded: Collection[str]
) -> dict[str, int]:
    widths = {}
    for heading in headings:
        texts = (heading, *(str(row[heading]) for row in rows))
        needed = max(cell_len(line) for text in texts for line in text.split("\n"))
        most = _FOLDED_WIDTH // len(folded) if heading in folded else needed
        widths[heading] = min(needed, most)
    return widths


def _fits(widths: Mapping[str, int], width: int) -> bool:
    return sum(widths.values()) + 2 * len(widths) - 2 <= width


def _one_line(heading: str) -> str:
    return heading.replace("\n", " ")


class Watching(Observer):
    """Shows on stderr what goes on, in a line that changes, and warnings; a context manager."""

    _status: Status | None = None
    path: Path | None = None

    def __enter__(self) -> Self:
        self._status = Status()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.__exit__()

    def progress(self, text: str) -> None:
        """Say what is going on now."""
        if self._status is not None:
            self._status(text)

    def saved(self, path: Path) -> None:
        """Keep where the record is, to say it last."""
        self.path = path

    def warning(self, text: str) -> None:
        """Print a warning on stderr."""
        warn(text)


class Status:
    """One changing line about what is going on and for how long, on stderr.

    On a terminal it is a spinner that goes away. Elsewhere a line comes every ``interval_s``
    seconds, also while the work itself says nothing, so that a log shows that it goes on. Nothing
    is shown before the first text, so that what is printed before it stands alone.
    """

    def __init__(self, interval_s: float = 10.0) -> None:
        self._interval_s = interval_s
        self._text = ""
        self._since = self._printed = time.monotonic()
        self._live = err.status("starting") if err.is_terminal else None
        self._ended = threading.Event()
        self._clock = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Status:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._clock.is_alive():
            self._clock.join()
        if self._live is not None:
            self._live.stop()

    def __call__(self, text: str) -> None:
        """Say what is going on now; an empty text: the same, while somebody else prints."""
        if not text:
            if self._live is not None and self._text:
                self._live.stop()
                self._print(self._text)
            return
        if text != self._text:
            self._text, self._since = text, time.monotonic()
        if self._live is not None:
            self._live.update(escape(text))
            self._live.start()
        elif time.monotonic() - self._printed > self._interval_s:
            self._print(text)
        if self._interval_s > 0 and self._clock.ident is None:
            self._clock.start()

    def _tick(self) -> None:
        """Say how long the same has been going on."""
        while not self._ended.wait(1.0 if self._live is not None else self._interval_s):
            seconds = time.monotonic() - self._since
            text = f"{self._text} · {seconds:.0f} s" if seconds >= _WORTH_SAYING_S else self._text
            if self._live is not None:
                self._live.update(escape(text))
            elif time.monotonic() - self._printed >= self._interval_s:
                self._print(text)

    def _print(self, text: str) -> None:
        self._printed = time.monotonic()
        err.say(text, "dim")
