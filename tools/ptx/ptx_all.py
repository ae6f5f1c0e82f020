"""Everything that docs/evidence-ptx.md shows of own steps, on a machine with many cores.

python tools/ptx/ptx_all.py -j 32 --record FILE --until 500
python tools/ptx/ptx_equality.py --merge FILE; python tools/ptx/ptx_mutations.py --merge FILE

The most important first: what there is no time for is missing in the tables, and a further run goes
on from the file. It needs nvcc and g++, and no GPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import jobs
import ptx_equality
import ptx_mutations

#: Mistakes of a step's sample (0: all), and the processes that they are shared among.
SAMPLES = {"v07": (0, 8), "v16": (40, 6), "v22": (40, 8), "m05": (40, 6), "m07": (40, 6)}
_SEED, _ITSELF = 1, 200


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-j", type=int, required=True, metavar="N", help="processes at a time")
    parser.add_argument("--record", type=Path, required=True, metavar="FILE")
    parser.add_argument("--until", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--steps", default="", help="only these, of steps and failed experiments")
    given = parser.parse_args(arguments)
    chosen = set(given.steps.split(",")) if given.steps else None
    everything = [job for job in _everything() if not chosen or job.key.split()[0] in chosen]
    jobs.run(everything, given.j, given.record, given.until)
    return 0


def _everything() -> list[jobs.Job]:
    mistakes = [
        job
        for name, (sample, shares) in SAMPLES.items()
        for job in ptx_mutations.jobs_of(name, sample, _SEED, _ITSELF, shares)
    ]
    # What takes long to build is begun early: shares of mistakes wait for it.
    builds = [job for job in mistakes if not job.after]
    equality = ptx_equality.jobs_of((*ptx_equality.STEPS, *ptx_equality.FAILED))
    late = [job for job in mistakes if job.after and " itself " in job.key]
    early = [job for job in mistakes if job.after and job not in late]
    return [*builds, *equality, *early, *late]


if __name__ == "__main__":
    sys.exit(main())
