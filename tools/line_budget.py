"""Hold every package of ``kernelbench/`` and ``tools/`` to a budget of lines.

``python tools/line_budget.py`` prints lines and budget of each, and leaves with 1 if one is over.
The budgets stand in ``pyproject.toml``, table ``tool.line-budget``: who raises one says why there.
Lines are those of Python files; of ``tools`` those of every file that git tracks and that is text.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "kernelbench"
_PACKED = (".gz",)


def lines_of(folder: str) -> int:
    """Lines of a folder: of a package's Python files, or of all text that ``tools`` has."""
    pattern = folder if folder == "tools" else f":(glob){folder}/**/*.py"
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--", pattern],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    files = [ROOT / name for name in listed if not name.endswith(_PACKED)]
    return sum(len(file.read_bytes().splitlines()) for file in files if file.is_file())


def main() -> int:
    """Print the table; 1 if a package is over its budget."""
    budgets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["line-budget"]
    over = []
    for folder, budget in budgets.items():
        lines = lines_of(folder)
        print(f"{folder:28}{lines:7,} of {budget:7,}")
        if lines > budget:
            over.append(f"{folder} has {lines - budget:,} lines more than its budget")
    packages = {f"kernelbench/{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")}
    over += [f"{each} has no budget" for each in sorted(packages - budgets.keys())]
    for line in over:
        print(f"line_budget: {line}; see pyproject.toml, tool.line-budget", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
