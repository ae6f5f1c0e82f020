"""The directive ``house-table``: modules and lines of each package, before and now, with budgets.

*Now* is counted when the pages are built, so that it cannot be out of date. *Before* is commit
803e6409, counted by ``git ls-tree`` and ``git show``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
#: Modules and lines of Python; of packages that did not exist there is none.
BEFORE = {
    "base": (18, 1144), "bringup": (11, 2101), "build": (7, 952), "campaign": (15, 2277),
    "checks": (16, 2051), "cli": (40, 5276), "compare": (14, 2785), "emulator": (12, 2003),
    "executors": (25, 2857), "inspection": (22, 4674), "lineages": (22, 2549),
    "machine": (5, 741), "measure": (16, 2757), "problems": (52, 6856), "project": (18, 2754),
    "ptx": (58, 7675), "records": (12, 1945), "report": (21, 3150), "runs": (13, 1328),
    "stats": (8, 1092), "testing": (2, 181), "worker": (27, 5207), "(no package)": (2, 88),
}  # fmt: skip


def counted(package: str) -> tuple[int, int]:
    """Modules and lines of a package, or of what lies beside the packages."""
    folder = ROOT / "kernelbench"
    files = [*folder.glob("*.py")] if "(" in package else [*(folder / package).rglob("*.py")]
    return len(files), sum(len(file.read_bytes().splitlines()) for file in files)


def table() -> list[str]:
    """The rows, the sum last."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["line-budget"]
    names = sorted({*BEFORE, *(p.parent.name for p in ROOT.glob("kernelbench/*/__init__.py"))})
    rows = [(name, *BEFORE.get(name, (0, 0)), *counted(name)) for name in names]
    sums = [sum(int(row[at]) for row in rows) for at in range(1, 5)]
    lines = ["| package | modules then | now | lines then | now | budget |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for row in [*rows, ("**all**", *sums)]:
        name, modules, old, now, new = row
        figures = [modules, now, old, new, budgets.get(f"kernelbench/{name}", 0)]
        lines.append(f"| {name} | {' | '.join(f'{each:,}' if each else '–' for each in figures)} |")
    return lines


class HouseTable(SphinxDirective):
    """``.. house-table::``: the table."""

    def run(self) -> list[nodes.Node]:
        """A table."""
        return list(self.parse_text_to_nodes("\n".join(table())))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("house-table", HouseTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
