"""Markdown tables."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]], numeric: int = 0) -> list[str]:
    """The lines of a table whose last ``numeric`` columns are right-aligned."""
    rule = ["---"] * (len(head) - numeric) + ["---:"] * numeric
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
