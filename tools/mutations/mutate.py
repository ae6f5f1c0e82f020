"""Apply every mutation operator at every site of a lineage's steps; count what the checker finds.

python tools/mutations/mutate.py                     all steps; writes table.md and table.json.gz
python tools/mutations/mutate.py --lineage moe       those of the fused MoE; into the folder moe
python tools/mutations/mutate.py --part 1/3 --out /tmp/1
python tools/mutations/mutate.py --missing --seconds 500 --jobs 16 --out /tmp/1
python tools/mutations/mutate.py --merge /tmp/1 /tmp/2 /tmp/3 [--again /tmp/4]
python tools/mutations/mutate.py --steps m05 --only wait-dropped --out /tmp/x
python tools/mutations/mutate.py --sample 10 --seed 3 --out /tmp/x
python tools/mutations/mutate.py --details           of the record: what table.md leaves out
python tools/mutations/mutate.py --steps v07 --sample 10 --seed 3 --write kernels/mutants
kernelbench sweep mutants.yaml                       with the item  mutants: [kernels/mutants]

What has ended stands in rows.jsonl of the folder at once: the same command goes on there.
--write makes each mutant a step: a folder with a step.toml that has the step as its base, and the
file that differs. Remove the folder afterwards: until then its steps are steps of the lineage.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import os
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch: the process forks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

import operators_barriers  # noqa: E402, F401
import operators_bounds  # noqa: E402, F401
import operators_clusters  # noqa: E402, F401
import operators_copies  # noqa: E402, F401
import operators_handover  # noqa: E402, F401
import operators_host  # noqa: E402, F401
import operators_maps  # noqa: E402, F401
import operators_sync  # noqa: E402, F401
import operators_tensor  # noqa: E402, F401
import report  # noqa: E402
import trial  # noqa: E402
from campaign import (  # noqa: E402
    LIMIT_S,
    ROUNDS,
    ROUNDS_ITSELF,
    Campaign,
    Row,
    Trial,
    say,
)
from cases import SMS, cases, number_of_cases  # noqa: E402
from cpp_source import Source  # noqa: E402
from mutant import OPERATORS, Mutant, files_of, mutants  # noqa: E402
from planted_check import read_lines  # noqa: E402

from kernelbench.project.project_file import find_project  # noqa: E402
from kernelbench.project.step_files import read_lineage  # noqa: E402

#: The steps of each lineage whose campaign is recorded.
STEPS = {
    "kernels": tuple(f"v{number:02}" for number in range(1, 24)),
    "moe": tuple(f"m{number:02}" for number in range(8)),
}

#: The rows of a run that goes on, in the folder of its table.
PROGRESS = "rows.jsonl"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    try:
        return _obey(options)
    except ValueError as error:
        print(f"mutate.py: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lineage", choices=STEPS, default="kernels")
    parser.add_argument("--steps", default="", help="of one lineage; default: those of --lineage")
    parser.add_argument("--only", default="", help="operators or mutants, by name")
    parser.add_argument(
        "--part", default="", metavar="I/N", help="every N-th mutant, from the I-th"
    )
    parser.add_argument(
        "--missing", action="store_true", help="only what the lineage's table lacks"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="so many that should be found, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample and of a random order")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after the build")
    parser.add_argument(
        "--seconds", type=float, help="begin none after so many; in a random order, then"
    )
    parser.add_argument("--out", type=Path, help="folder of table.md and table.json.gz")
    parser.add_argument("--list", action="store_true", help="only list the sites")
    parser.add_argument("--write", type=Path, metavar="DIR", help="only write them as steps")
    parser.add_argument("--details", action="store_true", help="only print the record's lists")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="DIR", help="tables of all parts")
    parser.add_argument(
        "--again", type=Path, nargs="+", metavar="DIR", default=[], help="in place of rows merged"
    )
    return parser


def _obey(options: argparse.Namespace) -> int:
    steps = tuple(filter(None, options.steps.split(","))) or STEPS[options.lineage]
    lineage = _lineage_of(steps)
    table = table_folder(lineage.name)
    if options.details:
        print(report.details(report.read(options.out or table)))
        return 0
    if options.merge:
        given = [
            [report.read(folder) for folder in some] for some in (options.merge, options.again)
        ]
        return _write(report.merge(*given), options.out or table)
    some = options.only or options.part or options.sample or options.missing
    if not options.list and not options.write and options.out is None:
        if some or options.seconds is not None or steps != STEPS.get(lineage.name):
            raise ValueError("the table is of all mutants: give --out for a part of them")
        options.out = table
    wanted = _wanted(options, lineage, steps)
    if options.list:
        for mutant in wanted:
            print(f"{mutant.id}  {mutant.file}:{mutant.line}  {mutant.code}  {mutant.note}")
        return 0
    if options.write:
        wanted = [each for each in wanted if options.only or options.sample or not each.proof]
        for mutant in wanted:
            write_step(mutant, options.write / mutant.id)
        print(f"{len(wanted)} steps in {options.write}")
        return 0
    began = time.monotonic()
    rows = {row["id"]: row for row in _rows(options, lineage, wanted, began)}
    run = {
        # Where the table goes says nothing of how it came about.
        "command": re.sub(
            r" --out[ =]\S+", "", shlex.join(["python", "tools/mutations/mutate.py", *sys.argv[1:]])
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "jobs": options.jobs,
    }
    all_steps = STEPS.get(lineage.name, steps)
    record = {
        "schema": "kernelbench.mutations/2",
        "lineage": lineage.name,
        "runs": [run],
        "sites": sum(1 for step in all_steps for _ in mutants(lineage / step)),
        "cases": number_of_cases(read_lineage(lineage).problem),
        "sms": SMS,
        "limit_s": options.limit,
        "rounds": ROUNDS,
        "sources": {name: code_hash(lineage / name) for name in steps},
        "operators": {each.name: each.what for each in OPERATORS},
        "rows": [rows[mutant.id] for mutant in wanted if mutant.id in rows],
    }
    written = _write(record, options.out)
    if len(rows) == len(wanted):
        (options.out / PROGRESS).unlink(missing_ok=True)
    return written


def write_step(mutant: Mutant, folder: Path) -> None:
    """One mutant as a step whose base is the step that it was made of."""
    folder.mkdir(parents=True)
    # A building block too: the step's own folder is searched first.
    (folder / mutant.file).write_text(mutant.text, encoding="utf-8")
    fields = {
        "name": folder.name, "base": mutant.step, "parent": mutant.step,
        "title": f"{mutant.operator} at {mutant.file}:{mutant.line}",
        "technique": f"A planted fault, in place of: {mutant.code.strip()}",
        "hypothesis": "`check` finds it.", "status": "failed",
    }  # fmt: skip
    # A JSON string is a TOML string.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items()]
    (folder / "step.toml").write_text("".join(lines), encoding="utf-8")


def table_folder(lineage: str) -> Path:
    """Where the record of a lineage's campaign is."""
    return HERE if lineage == "kernels" else HERE / lineage


def _lineage_of(steps: Sequence[str]) -> Path:
    """The folder of the lineage that has all of the steps.

    Raises:
        ValueError: If none has.
    """
    for lineage in find_project(ROOT).lineages:
        if all((lineage / step / "step.toml").is_file() for step in steps):
            return lineage
    raise ValueError(f"no lineage has all of {', '.join(steps)}; give steps of one lineage")


def _write(record: dict[str, Any], out: Path) -> int:
    report.write(record, out)
    real = report.judged(record["rows"])
    say(
        f"{len(real)} mutants: {report.share(real, 'found'):.1%} found, "
        f"{report.share(real, 'object_right'):.1%} with the right class and object"
    )
    return 0


def code_hash(step: Path) -> str:
    """Hash of a step's code and its building blocks'; comments and formatting do not count."""
    digest = hashlib.sha256()
    for name, path in files_of(step).items():
        code = Source(name, path.read_text(encoding="utf-8")).code
        digest.update(" ".join(code.split()).encode())
    return digest.hexdigest()[:16]


def _wanted(options: argparse.Namespace, lineage: Path, steps: Sequence[str]) -> list[Mutant]:
    """The mutants to run, in the order of steps, operators and sites.

    Raises:
        ValueError: If ``--part`` is none.
    """
    only = set(filter(None, options.only.split(",")))
    found = [
        mutant
        for step in steps
        for mutant in mutants(lineage / step)
        if not only or mutant.operator in only or mutant.id in only
    ]
    if options.part:
        if not re.fullmatch(r"[1-9]\d*/[1-9]\d*", options.part):
            raise ValueError(f"--part {options.part}: expected a part and their number, as in 2/3")
        first, parts = map(int, options.part.split("/"))
        found = found[first - 1 :: parts]
    if options.missing and (table_folder(lineage.name) / report.RECORD).is_file():
        known = {row["id"] for row in report.read(table_folder(lineage.name))["rows"]}
        found = [mutant for mutant in found if mutant.id not in known]
    if options.sample:
        real = [mutant for mutant in found if not mutant.proof and not mutant.gap]
        found = random.Random(options.seed).sample(real, options.sample)
    return found


def _rows(
    options: argparse.Namespace, lineage: Path, wanted: Sequence[Mutant], began: float
) -> Iterator[dict[str, Any]]:
    """The rows of the mutants: those that ``rows.jsonl`` has, then each as it ends."""
    sources = {name: code_hash(lineage / name) for name in {mutant.step for mutant in wanted}}
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / PROGRESS
    done = {
        row["id"]: row for row in read_lines(file) if row.pop("source") == sources.get(row["step"])
    }
    yield from done.values()
    left = [mutant for mutant in wanted if mutant.id not in done]
    if options.seconds is not None:
        random.Random(options.seed).shuffle(left)
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder, file.open("a") as record:
        rounds = 1 if options.sample else ROUNDS_ITSELF
        campaign = Campaign(lineage, options.jobs, options.limit, rounds, Path(folder))
        steps = {name: campaign.step(name) for name in sorted({each.step for each in left})}
        given = {name: cases(step) for name, step in steps.items()}
        campaign.require_right(Trial(step, given[name], None) for name, step in steps.items())
        in_time = itertools.takewhile(
            lambda _: options.seconds is None or time.monotonic() - began < options.seconds, left
        )
        trials = (Trial(steps[each.step], given[each.step], each) for each in in_time)
        for count, row in enumerate(campaign.run(trials), 1):
            _say(f"{count}/{len(left)}", row)
            plain = row.plain()
            record.write(json.dumps({"source": sources[plain["step"]]} | plain) + "\n")
            record.flush()
            yield plain


def _say(count: str, row: Row) -> None:
    mutant, it = row.mutant, row.outcome
    marks = "".join("x" if each else "-" for each in trial.judge(mutant, it))
    marks = "eq " + marks if mutant.proof else marks
    say(
        f"{count} {marks} {mutant.id} {mutant.file}:{mutant.line}"
        f" {it.status} {it.kind} {','.join(it.objects)} [{','.join(it.roles)}]"
        f" {it.runs} runs {it.build_s:.1f}+{it.run_s:.1f}s | {it.text[:160]}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
