"""The only importer of rich: two consoles, tables and a status line.

Results go to ``out`` (stdout); progress, warnings and errors to ``err`` (stderr), so that
``--json -`` leaves stdout to the machine. Colour follows the terminal and ``NO_COLOR``; every
meaning that a colour carries is also a word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

__all__ = [
    "Console",
    "FittedTable",
    "Status",
    "Table",
    "Text",
    "err",
    "escape",
    "fitted_table",
    "make_table",
    "out",
    "renew",
    "styled",
    "terminal_of_width",
    "warn",
]

_PIPE_WIDTH = 160
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


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line: rich would exit with 1, which means a regression here."""
        raise BrokenPipeError

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """On a terminal a long line ends between two words; in a file it stays one line."""
        super().print(*objects, soft_wrap=None if self.is_terminal else soft_wrap, **options)


def _make(stderr: bool) -> Console:
    console = _Console()
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
    return _Console(
        file=to, width=width, force_terminal=True, color_system=None, highlight=False, emoji=False
    )


out = _make(stderr=False)
err = _make(stderr=True)


def styled(word: str) -> Text:
    """``word`` in the style of its meaning."""
    return Text(word, style=STYLES.get(word.split(" ")[0], STYLES.get(word, "")))


def warn(message: str) -> None:
    """Print a one-line warning to stderr."""
    err.print(Text.assemble(("warning: ", "yellow"), message), soft_wrap=True)


def make_table(columns: Sequence[tuple[str, str]], title: str | None = None) -> Table:
    """A table with ``(heading, justify)`` columns in the house style."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading, justify in columns:
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    return table


@dataclass(frozen=True)
class FittedTable:
    """A table that fits the terminal, and what went for that.

    Attributes:
        common: Headings and the value that all rows share, in place of a column.
        left_out: Headings that there is no room for.
    """

    table: Table
    common: dict[str, str]
    left_out: tuple[str, ...]

    def show(self, to: Console | None = None) -> None:
        """Print the table, a line for what its rows share, and one for what is missing."""
        to = to or out
        to.print(self.table)
        if self.common:
            shared = (f"{_one_line(heading)} {cell}" for heading, cell in self.common.items())
            to.print(Text("all: " + " · ".join(shared)), soft_wrap=True)
        if self.left_out:
            headings = ", ".join(map(_one_line, self.left_out))
            to.print(Text(f"no room for: {headings}"), soft_wrap=True)


def fitted_table(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str | Text]],
    *,
    prose: str,
    spare: Sequence[Collection[str]],
    width: int | None = None,
) -> FittedTable:
    """A table whose names and figures stay whole on a narrow terminal.

    Where it does not fit, a column in which all rows say the same goes first, into one line below;
    then columns that can be spared.

    Args:
        columns: As for :func:`make_table`; the first names the rows.
        rows: A string is shown as it is, brackets included.
        prose: Heading of the column that may be folded.
        spare: Headings to leave out, one set after the other, until the others fit.
        width: Of the terminal; that of ``out`` if None.
    """
    width = width or out.width
    widths = {}
    for i, (heading, _) in enumerate(columns):
        texts = (heading, *(str(row[i]) for row in rows))
        needed = max(cell_len(line) for text in texts for line in text.split("\n"))
        widths[heading] = min(needed, _FOLDED_WIDTH) if heading == prose else needed
    common: dict[str, str] = {}
    for i, (heading, _) in enumerate(columns[1:], 1):
        if _fits(widths, width):
            break
        cells = {str(row[i]) for row in rows}
        if len(rows) > 1 and len(cells) == 1 and heading and heading != prose:
            common[heading] = cells.pop()
            del widths[heading]
    left_out: list[str] = []
    for group in spare:
        if _fits(widths, width):
            break
        left_out += [heading for heading in group if widths.pop(heading, None) is not None]
    kept = [i for i, (heading, _) in enumerate(columns) if heading in widths]
    table = make_table([columns[i] for i in kept])
    for column in table.columns:
        if column.header != prose:
            column.no_wrap, column.width = True, widths[str(column.header)]
    for row in rows:
        # Text, because a string would be read as markup.
        table.add_row(*(Text(cell) if isinstance(cell := row[i], str) else cell for i in kept))
    return FittedTable(table, common, tuple(left_out))


def _fits(widths: Mapping[str, int], width: int) -> bool:
    return sum(widths.values()) + 2 * len(widths) - 2 <= width


def _one_line(heading: str) -> str:
    return heading.replace("\n", " ")


class Status:
    """One changing line about what is going on, on stderr.

    On a terminal it is a spinner that goes away; elsewhere a line at most every ``interval_s``
    seconds, so that a log shows that work goes on without being flooded. Nothing is shown before
    the first text, so that what is printed before it stands alone.
    """

    def __init__(self, interval_s: float = 10.0) -> None:
        self._interval_s = interval_s
        self._printed = time.monotonic()
        self._live = err.status("starting") if err.is_terminal else None

    def __enter__(self) -> Status:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, text: str) -> None:
        """Say what is going on now."""
        if self._live is not None:
            self._live.update(escape(text))
            self._live.start()
        elif time.monotonic() - self._printed > self._interval_s:
            self._printed = time.monotonic()
            err.print(Text(text, style="dim"), soft_wrap=True)
