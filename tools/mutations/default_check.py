"""What ``kernelbench check STEP`` finds of mutants, with the defaults that a user gets.

``table.md`` says what shapes and numbers of SMs chosen for the campaign find. This draws mutants
that should be found, as many of each step, plants each in a copy of the lineages and runs the
command as a user types it.

python tools/mutations/default_check.py --sample 600 -j 2 --cores 1   goes on where it ended
python tools/mutations/default_check.py --table                       the record as tables
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent.parent)]

import mutate  # noqa: E402, F401
from equivalents import LATE  # noqa: E402
from mutant import FAILED, MOE_BLOCKS, UNWRITTEN, WRONG, Mutant, mutants  # noqa: E402
from planted_check import (  # noqa: E402
    FOUND,
    ROOT,
    Cores,
    check,
    first_findings,
    make_project,
    read_lines,
    record_all,
)

from kernelbench.base.seeds import derive  # noqa: E402

RECORD = HERE / "default_check.jsonl.gz"
STEPS = {
    **{f"v{number:02}": "kernels" for number in range(1, 24)},
    **{f"m{number:02}": "moe" for number in range(8)},
}


def draw(count: int, seed: int, before: Collection[str] = ()) -> list[Mutant]:
    """So many mutants that should be found, each step in turn, in an order of the seed's.

    The order is each mutant's own, so that a step that changes keeps the others' places. Those of
    ``before``, ids drawn earlier, come first.
    """
    piles = []
    for step, lineage in STEPS.items():
        # Drawn before the building blocks of the fused MoE were mutated, too, and before some
        # equivalents were known.
        real = [
            each
            for each in mutants(ROOT / lineage / step)
            if (not each.proof or each.proof in LATE)
            and not each.gap
            and each.file not in MOE_BLOCKS
        ]
        real.sort(key=lambda each: (each.id not in before, derive(seed, each.id)), reverse=True)
        piles.append(real)
    drawn: list[Mutant] = []
    while len(drawn) < count and any(piles):
        drawn += [pile.pop() for pile in piles if pile]
    return drawn[:count]


def attempt(mutant: Mutant, options: list[str], cores: Cores) -> dict[str, Any]:
    """Check one mutant; a line of the record."""
    with tempfile.TemporaryDirectory(prefix="mutant_") as temporary:
        folder = Path(temporary)
        make_project(folder)
        step = folder / STEPS[mutant.step] / mutant.step
        # A building block too: the step's own folder is searched first.
        (step / mutant.file).write_text(mutant.text, encoding="utf-8")
        checked = check(folder, mutant.step, options, cores)
    rows = [row for each in checked.report.get("steps", []) for row in each["rows"]]
    wrong = [row for row in rows if row["status"] not in ("clean", "skipped")]
    schedules = sum(row["schedules"] for row in rows)
    refused = bool(wrong) and not schedules  # it cannot be built: nothing was looked at
    return {
        "id": mutant.id,
        "exit": checked.exit,
        "seconds": checked.seconds,
        "refused": refused,
        "class_right": bool(wrong) and class_right(mutant, wrong[0]),
        "schedules": schedules,
        "expected": sorted(mutant.expect.kinds),
        "first": [] if refused else first_findings(checked.report)[:1],
        "place": f"{mutant.file}:{mutant.line}",
        "code": mutant.code,
        "error": checked.error,
    }


def class_right(mutant: Mutant, row: dict[str, Any]) -> bool:
    """Whether the first finding is of an expected class, or a wrong result or failure expected."""
    kinds = mutant.expect.kinds
    if row["seen"]:
        kind = row["seen"][0]["finding"]["kind"]
        return kind in kinds or (kind == UNWRITTEN and WRONG in kinds)
    return (WRONG if row["status"] == "wrong" else FAILED) in kinds


def print_table(record: Sequence[dict[str, Any]]) -> None:
    """A line for each step, the sum, and what was not found."""
    print("| steps | mutants | found | class as expected | seconds, median |")
    print("| --- | ---: | ---: | ---: | ---: |")
    built = [row for row in record if not row["refused"]]
    for name in [*STEPS, "v01–v23", "m00–m07", "all"]:
        of = [row for row in built if _belongs(row["id"], name)]
        if of:
            found = [row for row in of if row["exit"] == FOUND]
            right = sum(row["class_right"] for row in found)
            # Of lineages without expectations written down no class is right or wrong.
            classes = f"{right / len(of):.1%}" if name[0] == "v" else ""
            seconds = statistics.median(row["seconds"] for row in of)
            print(
                f"| {name} | {len(of)} | {len(found) / len(of):.1%} | {classes} | {seconds:.0f} |"
            )
    print(f"\n{len(record) - len(built)} more are refused by the compiler. Not found:\n")
    print("| mutant | place | line | check says |\n| --- | --- | --- | --- |")
    for row in built:
        if row["exit"] != FOUND:
            says = row["error"][-150:].replace("\n", " ").replace("|", "/") or "clean"
            print(f"| {row['id']} | {row['place']} | `{row['code'].replace('|', '/')}` | {says} |")


def _belongs(mutant: str, name: str) -> bool:
    return name in ("all", mutant[:3]) or ("–" in name and name[0] == mutant[0])


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=600, help="mutants")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the schedules")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--part", default="1/1", metavar="I/N", help="every N-th, from the I-th")
    parser.add_argument("--table", action="store_true", help="print the record as tables")
    parser.add_argument("--list", action="store_true", help="only list the mutants")
    parser.add_argument("-j", type=int, default=1, help="mutants at the same time")
    parser.add_argument("--cores", type=int, default=0, help="of each; default: all for all")
    arguments = parser.parse_args()
    record = read_lines(arguments.record)
    if arguments.table:
        print_table(record)
        return
    done = {row["id"] for row in record}
    first, parts = map(int, arguments.part.split("/"))
    drawn = draw(arguments.sample, arguments.seed, done)
    # By their names: the order changes with what is done.
    share = sorted(each.id for each in drawn)[first - 1 :: parts]
    left = [each for each in drawn if each.id in share and each.id not in done]
    if arguments.list:
        for each in left:
            print(f"{each.id:40} {each.file}:{each.line}  {each.code}")
        return
    cores = Cores(arguments.j, arguments.cores)
    options = ["--seed", str(arguments.seed)]
    attempts = [partial(attempt, each, options, cores) for each in left]
    for count, row in enumerate(record_all(arguments.record, arguments.j, attempts), 1):
        said = f"exit {row['exit']}, {row['seconds']} s"
        print(f"{count}/{len(left)} {row['id']}: {said}", flush=True)


if __name__ == "__main__":
    main()
