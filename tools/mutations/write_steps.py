"""Write mutants as steps of their lineage, for the item ``mutants`` of a campaign.

python tools/mutations/write_steps.py --steps v07 --sample 10 --seed 3
kernelbench sweep mutants.yaml         with the item  mutants: [kernels/mutants]

Each is a folder with a ``step.toml`` that has the step as its base, and the file that differs.
Mutants that no execution can tell from the step are left out, unless they are named with --only.
Remove the folder afterwards: until then its steps are steps of the lineage.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import mutate  # noqa: E402, F401  it registers the operators
from mutant import Mutant, mutants  # noqa: E402


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", required=True, help="with commas between")
    parser.add_argument("--only", default="", help="operators or mutants, by name")
    parser.add_argument("--sample", type=int, default=0, help="so many, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--out", type=Path, default=ROOT / "kernels" / "mutants")
    asked = parser.parse_args()
    only = set(filter(None, asked.only.split(",")))
    found = [
        mutant
        for step in asked.steps.split(",")
        for mutant in mutants(ROOT / "kernels" / step)
        if (mutant.operator in only or mutant.id in only if only else not mutant.proof)
    ]
    if asked.sample:
        found = random.Random(asked.seed).sample(found, min(asked.sample, len(found)))
    for mutant in found:
        write(mutant, asked.out / mutant.id)
    print(f"{len(found)} steps in {asked.out}")
    return 0


def write(mutant: Mutant, folder: Path) -> None:
    """One mutant as a step whose base is the step that it was made of."""
    folder.mkdir(parents=True)
    # A building block too: the step's own folder is searched first.
    (folder / mutant.file).write_text(mutant.text, encoding="utf-8")
    fields = {
        "name": folder.name,
        "base": mutant.step,
        "parent": mutant.step,
        "title": f"{mutant.operator} at {mutant.file}:{mutant.line}",
        "technique": f"A planted fault, in place of: {mutant.code.strip()}",
        "hypothesis": "`check` finds it.",
        "status": "failed",
    }
    # A JSON string is a TOML string.
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in fields.items()]
    (folder / "step.toml").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
