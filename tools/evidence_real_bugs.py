"""Check what published kernels got wrong, rewritten small, and write the table of the docs.

``python tools/evidence_real_bugs.py`` runs ``kernelbench check`` on each right program and each
wrong version of it (``tests/ptx_users/real_bugs.py``), and writes docs/evidence-real-bugs.md's
table; ``--only NAME`` prints the rows of some bugs instead.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
USERS = ROOT / "tests" / "ptx_users"
PAGE = ROOT / "docs" / "evidence-real-bugs.md"
MARKERS = ("<!-- real-bugs:begin -->", "<!-- real-bugs:end -->")
ASKED = ("--arch", "90", "--seed", "1", "--schedules", "4", "--no-save")
sys.path.insert(0, str(USERS))

from planted_check import Cores, check  # noqa: E402
from real_bugs import ELSEWHERE, REAL_BUGS, RealBug  # noqa: E402  beside the tests

from kernelbench.report.readme_tables import replace_between  # noqa: E402


def checked(
    program: str, replaced: tuple[tuple[str, str], ...], options: tuple[str, ...]
) -> dict[str, Any]:
    """Check a program with some of its text replaced; the report."""
    with tempfile.TemporaryDirectory(prefix="real_bugs_") as folder:
        for each in (USERS / "programs" / program, *(USERS / "programs").glob("*.h")):
            shutil.copy(each, folder)
        file = Path(folder) / program
        text = file.read_text()
        for old, new in replaced:
            assert old in text, old
            text = text.replace(old, new, 1)
        file.write_text(text)
        asked = [*ASKED, *options]
        return check(Path(folder), str(file), asked, Cores(1, 0), here=True).report


@functools.cache
def right_one(program: str, options: tuple[str, ...]) -> bool:
    """Whether the right program is clean."""
    rows = [row for step in checked(program, (), options)["steps"] for row in step["rows"]]
    return all(row["status"] == "clean" for row in rows)


def findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Errors in order; formal ones if there are none."""
    rows = [row for step in report["steps"] for row in step["rows"]]
    seen = [each for row in rows for each in row["seen"]]
    errors = [each["finding"] for each in seen if not each["allowed"]]
    return errors or [each["finding"] for each in seen if "formal" in each["allowed"]]


def row_of(name: str, bug: RealBug) -> str:
    """Its row of the table."""
    seen = findings(checked(bug.program, bug.replaced, (*bug.options, *bug.only)))
    first = seen[0] if seen else None
    text = "" if first is None else first["text"].removeprefix("deadlock: ").partition("; ")[0]
    said = "–" if first is None else f"`{first['kind']}`: {text.split(': ')[0]}"
    found = "formally" if bug.formal else "yes"
    cells = (
        name, bug.what, f"`{bug.program}`", found if seen else "**no**",
        "yes" if first is not None and first["kind"] == bug.kind else "**no**", said,
        "yes" if right_one(bug.program, bug.options) else "**no**",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", help="names of bugs: print their rows")
    names = parser.parse_args().only
    rows = []
    for name, bug in REAL_BUGS.items():
        if names is None or name in names:
            rows.append(row_of(name, bug))
            print(rows[-1], flush=True)
    if names is not None:
        return
    rows += [f"| {name} | {why} | – | – | – | – | – |" for name, why in ELSEWHERE.items()]
    head = "| bug | what | program | found | right cause first | first finding | right one clean |"
    asked = f"(`kernelbench check PROGRAM {' '.join(ASKED[:-1])}`, {datetime.date.today()})"
    table = "\n".join([asked, "", head, "| --- " * 7 + "|", *rows])
    PAGE.write_text(replace_between(PAGE.read_text(), MARKERS, table))


if __name__ == "__main__":
    main()
