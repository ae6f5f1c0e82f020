"""Apply every mutation operator at every site of the steps, and count what the checker finds.

python tools/mutations/mutate.py                     all steps; writes table.md and table.json.gz
python tools/mutations/mutate.py --part 1/3 --out /tmp/1
python tools/mutations/mutate.py --merge /tmp/1 /tmp/2 /tmp/3 [--again /tmp/4]
python tools/mutations/mutate.py --steps v07 --only wait-dropped --out /tmp/x
python tools/mutations/mutate.py --sample 10 --seed 3 --out /tmp/x
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
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
sys.path[:0] = [str(HERE), str(ROOT)]

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
from campaign import LIMIT_S, ROUNDS, ROUNDS_ITSELF, Campaign, Row, say  # noqa: E402
from cpp_source import Source  # noqa: E402
from mutant import OPERATORS, Mutant, files_of, mutants  # noqa: E402

STEPS = tuple(f"v{number:02}" for number in range(1, 24))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--only", default="", help="operators or mutants, by name")
    parser.add_argument(
        "--part", default="", metavar="I/N", help="every N-th mutant, from the I-th"
    )
    parser.add_argument(
        "--sample", type=int, default=0, help="so many that should be found, drawn at random"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after the build")
    parser.add_argument(
        "--out", type=Path, default=HERE, help="folder of table.md and table.json.gz"
    )
    parser.add_argument("--list", action="store_true", help="only list the sites")
    parser.add_argument("--merge", type=Path, nargs="+", metavar="DIR", help="tables of all parts")
    parser.add_argument(
        "--again", type=Path, nargs="+", metavar="DIR", default=[], help="in place of rows merged"
    )
    options = parser.parse_args(arguments)
    if options.merge:
        try:
            tables = [
                [report.read(folder) for folder in some] for some in (options.merge, options.again)
            ]
            return _write(report.merge(*tables), options.out)
        except ValueError as error:
            parser.error(str(error))
    some = options.only or options.part or options.sample or options.steps != ",".join(STEPS)
    if some and options.out == HERE and not options.list:
        parser.error("the table is of all mutants: give --out for a part of them")
    if options.part and not re.fullmatch(r"[1-9]\d*/[1-9]\d*", options.part):
        parser.error(f"--part {options.part}: expected a part and their number, such as 2/3")
    wanted = list(_wanted(options))
    if options.list:
        for mutant in wanted:
            print(f"{mutant.id}  {mutant.file}:{mutant.line}  {mutant.code}  {mutant.note}")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        rounds = 1 if options.sample else ROUNDS_ITSELF
        campaign = Campaign(options.jobs, options.limit, rounds, Path(folder))
        order = {mutant.id: index for index, mutant in enumerate(wanted)}
        rows = sorted(_all(campaign, wanted), key=lambda row: order[row.mutant.id])
    run = {
        # Where the table goes says nothing of how it came about.
        "command": re.sub(
            r" --out[ =]\S+", "", shlex.join(["python", "tools/mutations/mutate.py", *sys.argv[1:]])
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began),
        "jobs": options.jobs,
    }
    record = {
        "schema": "kernelbench.mutations/2",
        "runs": [run],
        "sites": sum(1 for step in STEPS for _ in mutants(ROOT / "kernels" / step)),
        "cases": len(trial.SHAPES_AND_CLASSES),
        "sms": trial.SMS,
        "limit_s": options.limit,
        "rounds": ROUNDS,
        "sources": {name: code_hash(ROOT / "kernels" / name) for name in options.steps.split(",")},
        "operators": {each.name: each.what for each in OPERATORS},
        "rows": [row.plain() for row in rows],
    }
    return _write(record, options.out)


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


def _wanted(options: argparse.Namespace) -> Iterator[Mutant]:
    only = set(filter(None, options.only.split(",")))
    found = [
        mutant
        for step in options.steps.split(",")
        for mutant in mutants(ROOT / "kernels" / step)
        if not only or mutant.operator in only or mutant.id in only
    ]
    if options.part:
        first, parts = map(int, options.part.split("/"))
        found = found[first - 1 :: parts]
    if options.sample:
        real = [mutant for mutant in found if not mutant.proof and not mutant.gap]
        found = random.Random(options.seed).sample(real, options.sample)
    yield from found


def _all(campaign: Campaign, wanted: Sequence[Mutant]) -> Iterator[Row]:
    for name in sorted({mutant.step for mutant in wanted}):
        step = campaign.step(name)
        given = trial.cases(step)
        campaign.require_right(step, given)
        own = [mutant for mutant in wanted if mutant.step == name]
        say(f"{name}: right itself; {len(own)} mutants")
        for count, row in enumerate(campaign.run(step, given, own), 1):
            found, kind, place = trial.judge(row.mutant, row.outcome)
            marks = "".join("x" if each else "-" for each in (found, kind, place))
            marks = "eq " + marks if row.mutant.proof else marks
            it = row.outcome
            say(
                f"{count}/{len(own)} {marks} {row.mutant.id} {row.mutant.file}:{row.mutant.line}"
                f" {it.status} {it.kind} {','.join(it.objects)} [{','.join(it.roles)}]"
                f" {it.runs} runs {it.build_s:.1f}+{it.run_s:.1f}s | {it.text[:160]}"
            )
            yield row


if __name__ == "__main__":
    raise SystemExit(main())
