"""What a report takes from a project's own documents: lessons of steps, tables of trials."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from kernelbench.report.html.record import MarkdownTable

#: Where a project that plants mutants keeps what became of them, below its root.
MUTATIONS = "tools/mutations/table.md"
_GENERATED = re.compile(r"<!-- ([\w-]+):begin -->.*?<!-- \1:end -->", re.DOTALL)


def project_name(root: Path) -> str:
    """As its pyproject.toml has it, or the folder's."""
    try:
        table = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return root.name
    name = table.get("project", {}).get("name")
    return name if isinstance(name, str) else root.name


def lesson_of(folder: Path) -> tuple[str, ...]:
    """The blocks of prose in a step's README, without its title and what is generated."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    blocks = re.split(r"\n\s*\n", _GENERATED.sub("", text))
    return tuple(
        block.strip()
        for block in blocks
        if block.strip() and not block.lstrip().startswith(("# ", "|", "!["))
    )


def tables_of(file: Path) -> tuple[MarkdownTable, ...]:
    """The tables of a Markdown file, each with the heading above it; none if there is no file."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ()
    found: list[MarkdownTable] = []
    heading, rows = "", list[tuple[str, ...]]()
    for line in [*lines, ""]:
        if line.startswith("|"):
            rows.append(tuple(cell.strip() for cell in line.strip().strip("|").split("|")))
            continue
        if len(rows) > 2:
            found.append(MarkdownTable(heading, rows[0], tuple(rows[2:])))
        rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
    return tuple(found)
