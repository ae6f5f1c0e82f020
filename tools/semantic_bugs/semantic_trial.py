"""Plant semantic bugs in the steps, and correct variants, and see what ``kernelbench check`` says.

Each entry of the TOML files beside this file is an edit of one step (or of a building block that it
uses). The trial applies it to a copy of the lineages, runs ``kernelbench check STEP`` with its
defaults in a process of its own, and writes a line to the record. Entries that the record holds are
not run again.

``--list`` shows the entries, ``--compile`` only builds them, ``--budget 20s -j 1`` checks them,
``--table`` prints the record as tables. ``--record`` names another record than the first run's.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import statistics
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from planted_check import (  # noqa: E402
    CLEAN,
    FOUND,
    Cores,
    check,
    environment,
    first_findings,
    make_project,
    read_lines,
    record_all,
)

RECORD = FOLDER / "record.jsonl.gz"
VARIANTS = "variants"
WORDS = "words"


@dataclass(frozen=True)
class Entry:
    """A bug, or a correct variant: ``edits`` are (file, old text, new text)."""

    id: str
    family: str
    step: str
    edits: tuple[tuple[str, str, str], ...]
    text: str
    subtle: bool = False
    expected: str = ""
    objects: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def is_bug(self) -> bool:
        return self.family != VARIANTS

    @property
    def digest(self) -> str:
        """Of what is planted: another edit is another entry."""
        return hashlib.sha256(repr((self.step, self.edits)).encode()).hexdigest()[:12]


def read_entries() -> list[Entry]:
    """All entries, file by file.

    Raises:
        SystemExit: If two have one id.
    """
    kinds = _table(FOLDER / f"{WORDS}.toml.gz")
    entries = []
    for file in sorted(FOLDER.glob("*.toml.gz")):
        family = file.name.partition(".")[0]
        if family == WORDS:
            continue
        table = _table(file)
        for each in table.get("bug", []):
            entries.append(_bug(each, family, kinds))
        for each in table.get("variant", []):
            entries.append(Entry(each["id"], VARIANTS, each["step"], _edits(each), each["why"]))
    ids = [entry.id for entry in entries]
    if twice := {each for each in ids if ids.count(each) > 1}:
        sys.exit(f"two entries have one id: {', '.join(sorted(twice))}")
    return entries


def _table(file: Path) -> dict[str, Any]:
    return tomllib.loads(gzip.decompress(file.read_bytes()).decode())


def _bug(each: dict[str, Any], family: str, kinds: dict[str, list[str]]) -> Entry:
    return Entry(
        each["id"],
        family,
        each["step"],
        _edits(each),
        each["bug"],
        subtle=each.get("subtle", False),
        expected=each["expected"],
        objects=_spelled(each["object"], kinds),
        causes=_spelled(each["cause"], kinds),
        equivalent=each.get("equivalent", ""),
    )


def _edits(each: dict[str, Any]) -> tuple[tuple[str, str, str], ...]:
    return tuple((file, old, new) for file, old, new in each["edits"])


def _spelled(words: list[str], kinds: dict[str, list[str]]) -> tuple[str, ...]:
    return tuple(w for word in words for w in (kinds[word[1:]] if word[0] == "@" else [word]))


def origin_of(file: str, root: Path) -> Path:
    """Where a step's file is: in its folder, or in that of the base that it has it from."""
    path = root / file
    while not path.exists():
        toml = path.parent / "step.toml"
        base = tomllib.loads(toml.read_text()).get("base") if toml.exists() else None
        if base is None:
            sys.exit(f"{file} is in no folder of {root}")
        path = path.parent.parent / base / path.name
    return path


def plant(entry: Entry, folder: Path) -> None:
    """A project in ``folder``: the lineages with the entry's edits.

    Raises:
        SystemExit: If a text that is to be replaced is not there exactly once.
    """
    make_project(folder)
    for file, old, new in entry.edits:
        text = origin_of(file, folder).read_text()
        if text.count(old) != 1:
            sys.exit(f"{entry.id}: {file} has {text.count(old)} of {old!r}, not one")
        (folder / file).write_text(text.replace(old, new))


def run_entry(entry: Entry, options: list[str], cores: Cores) -> dict[str, Any]:
    """Check one entry; a line of the record."""
    with tempfile.TemporaryDirectory(prefix="semantic_") as temporary:
        folder = Path(temporary)
        plant(entry, folder)
        checked = check(folder, entry.step, options, cores)
    findings = first_findings(checked.report)
    return {
        "id": entry.id,
        "digest": entry.digest,
        "class": entry.family,
        "step": entry.step,
        "subtle": entry.subtle,
        "exit": checked.exit,
        "seconds": checked.seconds,
        "findings": findings,
        "right": right_cause(entry, findings[0]) if entry.is_bug and findings else None,
        "error": checked.error,
        "options": options,
    }


def right_cause(entry: Entry, finding: str) -> bool:
    """Whether the finding names one of the entry's objects and one of its causes."""
    low = finding.lower()
    return any(word in low for word in entry.objects) and any(w in low for w in entry.causes)


def compile_entry(entry: Entry, arch: bool) -> str:
    """Build one entry for the emulator, as a check does, or for its arch; what went wrong."""
    with tempfile.TemporaryDirectory(prefix="semantic_") as temporary:
        folder = Path(temporary)
        plant(entry, folder)
        done = subprocess.run(
            [sys.executable, "-c", _BUILD, entry.step, "arch" if arch else "emulator"],
            cwd=folder,
            env=environment(folder),
            capture_output=True,
            text=True,
        )
        return "" if done.returncode == 0 else done.stderr[-3000:]


_BUILD = """
import sys
from kernelbench.executors.emulated import EmulatorExecutor
from kernelbench.inspection.cubin import compile_cubin
from kernelbench.project.context import Context
(step,) = Context.find().lineages.select([sys.argv[1]])
if sys.argv[2] == "arch":
    compile_cubin(step)
else:
    EmulatorExecutor().library(step, check=True)
"""


# ---- The record and its tables


def read_record(file: Path) -> dict[str, dict[str, Any]]:
    """The last line of each entry; those of other edits are left out."""
    digests = {entry.id: entry.digest for entry in read_entries()}
    record = {}
    for row in read_lines(file):
        if digests.get(row["id"]) == row["digest"]:
            record[row["id"]] = row
    return record


def print_tables(entries: list[Entry], record: dict[str, dict[str, Any]]) -> None:
    """A line for each class, and one for each entry whose outcome is not the right one."""
    print("| class | bugs | found | right cause | subtle | subtle found | seconds, median |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    families = sorted({entry.family for entry in entries if entry.is_bug})
    bugs = [entry for entry in entries if entry.is_bug and not entry.equivalent]
    for family in [*families, "all"]:
        of = [b for b in bugs if family in (b.family, "all") and b.id in record]
        if not of:
            continue
        found = [b for b in of if record[b.id]["exit"] == FOUND]
        right = [b for b in found if record[b.id]["right"]]
        subtle = [b for b in of if b.subtle]
        hit = [b for b in subtle if b in found]
        middle = statistics.median(record[b.id]["seconds"] for b in of)
        print(
            f"| {family} | {len(of)} | {len(found)} | {len(right)} | {len(subtle)} | {len(hit)} "
            f"| {middle:.0f} |"
        )
    variants = [e for e in entries if not e.is_bug and e.id in record]
    clean = sum(record[e.id]["exit"] == CLEAN for e in variants)
    print(f"\n{clean} of {len(variants)} correct variants are clean.\n")
    print("| entry | step | subtle | result | cause | seconds | first finding |")
    print("| --- | --- | --- | --- | --- | ---: | --- |")
    for entry in entries:
        row = record.get(entry.id)
        if row is None or row["right"] or (row["exit"] == CLEAN and not entry.is_bug):
            continue
        says = {CLEAN: "clean", FOUND: "found"}.get(row["exit"], f"exit {row['exit']}")
        says = f"{says}, equivalent: {entry.equivalent}" if entry.equivalent else says
        cause = {True: "right", False: "other", None: ""}[row["right"]]
        first = row["findings"][0] if row["findings"] else row["error"][-200:]
        first = first.replace("|", "/").replace("\n", " ")
        print(
            f"| {entry.id} | {entry.step} | {'yes' if entry.subtle else ''} | {says} | {cause} "
            f"| {row['seconds']:.0f} | {textwrap.shorten(first, 200)} |"
        )


# ---- Command line


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("ids", nargs="*", help="entries, or starts of their names; default: all")
    parser.add_argument("--list", action="store_true", help="show the entries")
    parser.add_argument("--compile", choices=("emulator", "arch"), help="only build them")
    parser.add_argument("--table", action="store_true", help="print the record as tables")
    parser.add_argument("--record", type=Path, default=RECORD, help="another record")
    parser.add_argument("--budget", help="passed to check")
    parser.add_argument("-j", type=int, default=1, help="entries at the same time")
    parser.add_argument("--cores", type=int, default=0, help="of each; default: all for all")
    arguments = parser.parse_args()
    entries = read_entries()
    if arguments.ids:
        entries = [e for e in entries if any(e.id.startswith(start) for start in arguments.ids)]
    if arguments.list:
        for entry in entries:
            print(f"{entry.id:42} {entry.step:4} {'subtle' if entry.subtle else '':6} {entry.text}")
    elif arguments.compile:
        _compile_all(entries, arguments.compile == "arch", arguments.j)
    elif arguments.table:
        print_tables(entries, read_record(arguments.record))
    else:
        options = ["--budget", arguments.budget] if arguments.budget else []
        cores = Cores(arguments.j, arguments.cores)
        _run_all(entries, options, cores, arguments.j, arguments.record)


def _compile_all(entries: list[Entry], arch: bool, jobs: int) -> None:
    failed = 0
    with ThreadPoolExecutor(jobs) as pool:
        errors = pool.map(lambda entry: compile_entry(entry, arch), entries)
        for entry, error in zip(entries, errors, strict=True):
            failed += bool(error)
            print(f"{entry.id}: {error or 'built'}", flush=True)
    sys.exit(failed != 0)


def _run_all(entries: list[Entry], options: list[str], cores: Cores, jobs: int, file: Path) -> None:
    done = read_record(file)
    left = [entry for entry in entries if entry.id not in done]
    for row in record_all(
        file, jobs, [partial(run_entry, entry, options, cores) for entry in left]
    ):
        print(f"{row['id']}: exit {row['exit']}, {row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
