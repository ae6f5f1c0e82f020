"""Kernels of published packages on the emulator: tests/ptx_users/packages says what to expect.

python tools/ptx/others/packages.py FOLDER [--page] [NAME …]

FOLDER holds each package as NAME-VERSION: a wheel by ``pip install --no-deps --target``, or an
sdist unpacked. Nothing is fetched, and packages that are not there are left out. All programs write
a table of docs/evidence-packages.md, those named with --page another. Leaves with 1 if one was not
as expected.
"""

from __future__ import annotations

import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from kernelbench.machine.environment import cpu_name
from kernelbench.report.readme_tables import replace_between

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "tests" / "ptx_users" / "packages"
PAGE = ROOT / "docs" / "evidence-packages.md"
ASKED = ("--seed", "1", "--schedules", "4", "--no-save")


def place(folder: Path, name: str, version: str = "") -> Path | None:
    """Where a package lies: of this version, or else of any."""
    return next(iter([*folder.glob(f"{name}-{version}"), *folder.glob(f"{name}-[0-9]*")]), None)


def filled(text: str, folder: Path, package: Path) -> str:
    """Flags with their folders."""
    torch = importlib.util.find_spec("torch")
    places = {"": package, "here": PROGRAMS}
    if torch is not None and torch.origin is not None:
        places["torch"] = Path(torch.origin).parent / "include"
    names = set(re.findall(r"\{([^}]*)\}", text)) - set(places)
    places.update({name: place(folder, name) or folder / name for name in names})
    return re.sub(r"\{([^}]*)\}", lambda found: str(places[found[1]]), text)


def check(name: str, package: dict[str, Any], where: Path) -> tuple[dict[str, Any], float]:
    """The report of a check, and its seconds."""
    flags = filled(package["flags"], where.parent, where).split()
    library = filled(package.get("library", ""), where.parent, where)
    arch = "100" if name.endswith("_sm100") else str(package.get("arch", 90))
    command = [
        sys.executable, "-m", "kernelbench", "check", f"{name}.cu", *ASKED, "--json", "-",
        "--arch", arch, "--nvcc", " ".join(["-I.", *flags]),
    ]  # fmt: skip
    begin = time.perf_counter()
    ended = subprocess.run(
        command, cwd=PROGRAMS, stdout=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": library},
    )  # fmt: skip
    return json.loads(ended.stdout or "{}"), time.perf_counter() - begin


def summary(report: dict[str, Any]) -> tuple[str, int, set[str]]:
    """The verdict in words, how many kernels were clean, and the classes of open findings."""
    rows = [row for step in report.get("steps", ()) for row in step["rows"]]
    rows = [row for row in rows if row["shape"] != "write_pieces"]
    open_ones = {
        each["finding"]["kind"] for row in rows for each in row["seen"] if not each["allowed"]
    }
    clean = sum(row["status"] == "clean" for row in rows)
    wrong = any(row["status"] == "wrong" for row in rows)
    said = "refused" if not rows else "finding" if open_ones else "wrong" if wrong else "clean"
    return said, clean, open_ones


def main(arguments: list[str]) -> int:
    """See the file's head."""
    folder = Path(arguments[0]).resolve()
    names = [each for each in arguments[1:] if each != "--page"]
    known = tomllib.loads((PROGRAMS / "packages.toml").read_text())
    table, unexpected = [], 0
    for name, (of, *expected) in known["program"].items():
        package = known["package"][of]
        where = place(folder, package.get("name", of), package["version"])
        if where is None or (names and name not in names):
            continue
        _, cold = check(name, package, where)
        report, warm = check(name, package, where)
        said, clean, found = summary(report)
        unexpected += found != set(expected) or said == "refused"
        kinds = ", ".join(f"`{kind}`" for kind in sorted(found)) or "none"
        first = (PROGRAMS / f"{name}.cu").read_text().partition("\n\n")[0]
        what = re.search(r"^// (.*?)(?=\n[^/]|\Z)", first, re.S)
        text = " ".join(what[1].replace("//", " ").split()) if what else ""
        cells = [where.name, f"`{name}`", text, clean, said, kinds, f"{cold:.0f} / {warm:.0f}"]
        row = f"| {' | '.join(map(str, cells))} |"
        table.append(row)
        print(row, flush=True)
    if not names or "--page" in arguments:
        write(table, "added" if names else "packages")
    return int(unexpected > 0)


def write(table: list[str], which: str) -> None:
    """A table of the page."""
    made = f"`python tools/ptx/others/packages.py FOLDER`, `check {' '.join(ASKED)}`"
    head = [
        f"({made}, {cpu_name()}, {datetime.date.today()})",
        "",
        "| package | program | what | kernels clean | verdict | findings | seconds, cold / warm |",
        "| --- | --- | --- | ---: | --- | --- | ---: |",
    ]
    text, markers = "\n".join([*head, *table]), (f"<!-- {which}:begin -->", f"<!-- {which}:end -->")
    PAGE.write_text(replace_between(PAGE.read_text(), markers, text))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
