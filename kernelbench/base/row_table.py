"""What a record shows of itself as rows: to a notebook, to a table of the reader's choice."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from typing import Any

#: A value that JSON can hold: str, int, float, bool, None, or a list of str.
Row = dict[str, Any]


class RowTable(ABC):
    """A record that is a table to whoever looks at it.

    Fields of a dataclass come from its own body: this base has none.
    """

    @abstractmethod
    def rows(self) -> list[Row]:
        """The rows as plain dicts of the same keys, for JSON, csv or ``pandas.DataFrame``."""

    @abstractmethod
    def _caption(self) -> str:
        """What the table is of, in one line."""

    def _repr_html_(self) -> str:
        """The table for a notebook; columns that no row fills are left out."""
        rows = self.rows()
        columns = [key for key in (rows[0] if rows else ()) if any(_said(row[key]) for row in rows)]
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(row[key])}</td>" for key in columns) + "</tr>"
            for row in rows
        )
        return (
            f"<table><caption>{html.escape(self._caption())}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def _said(value: Any) -> bool:
    return value is not None and value != "" and value != []


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.5g}"
    return html.escape("; ".join(value) if isinstance(value, list) else str(value))
