"""One model of a table: rows with the same headings, and what renders them.

A :data:`Row` has a cell for each heading, in the order of the columns. :func:`markdown`,
:func:`csv_text` and :func:`html_table` render rows; ``console.show`` does it on a terminal.
"""

from __future__ import annotations

import csv
import html
import io
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

#: By heading: a str, int, float, bool, None or a list of str; for the terminal, styled text, too.
Row = dict[str, Any]


def markdown(rows: Sequence[Row], right: Collection[str] = ()) -> list[str]:
    """The lines of a Markdown table; columns with these headings are aligned to the right."""
    head = [*rows[0]] if rows else []
    rule = ["---:" if heading in right else "---" for heading in head]
    lines = (head, *(row.values() for row in rows))
    body = [[str(cell).replace("|", "\\|") for cell in cells] for cells in lines]
    return [f"| {' | '.join(cells)} |" for cells in (body[0], rule, *body[1:])]


def csv_text(rows: Sequence[Row], *, ragged: bool = False) -> str:
    """A CSV file with a header line; None is an empty cell.

    Args:
        rows: Cells by heading; the headings are those of all rows.
        ragged: Whether a row ends with its last cell that is not empty.
    """
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(rows[0] if rows else ())
    for row in rows:
        cells = [*row.values()]
        while ragged and cells[-1] == "":
            cells.pop()
        writer.writerow(cells)
    return stream.getvalue()


def html_table(rows: Sequence[Row], caption: str) -> str:
    """A table for a notebook; columns that no row fills are left out."""
    heads = [key for key in (rows[0] if rows else ()) if any(_said(row[key]) for row in rows)]
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{_html_cell(row[key])}</td>" for key in heads) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _said(value: Any) -> bool:
    return value is not None and value != "" and value != []


def _html_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return html.escape("; ".join(value) if isinstance(value, list) else str(value))


class RowTable(ABC):
    """A record that is a table to whoever looks at it.

    Fields of a dataclass come from its own body: this base has none.
    """

    def __repr__(self) -> str:
        """One line: a record's fields fill pages."""
        rows = self.rows()
        count = f"{len(rows)} row{'' if len(rows) == 1 else 's'}"
        return f"<{type(self).__name__}: {count}; {self._caption()}>"

    @abstractmethod
    def rows(self) -> list[Row]:
        """The rows as plain dicts of the same keys, for JSON, csv or ``pandas.DataFrame``."""

    @abstractmethod
    def _caption(self) -> str:
        """What the table is of, in one line."""

    def _repr_html_(self) -> str:
        return html_table(self.rows(), self._caption())
