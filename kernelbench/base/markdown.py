"""Markdown tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> list[str]:
    """The lines of a table; the columns of those numbers are aligned to the right."""
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    body = [[cell.replace("|", "\\|") for cell in cells] for cells in (head, *rows)]
    return [f"| {' | '.join(cells)} |" for cells in (body[0], rule, *body[1:])]
