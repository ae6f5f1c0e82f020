"""Apply every mutation operator at every site of the steps, and count what the checker finds.

python tests/mutations/mutate.py                     all steps; writes table.md and table.json
python tests/mutations/mutate.py --steps v07 --only wait-dropped --out /tmp/x
python tests/mutations/mutate.py --sample 10 --seed 3 --out /tmp/x
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import multiprocessing
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch: the process forks

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

import operators_barriers  # noqa: E402, F401
import operators_bounds  # noqa: E402, F401
import operators_copies  # noqa: E402, F401
import operators_tensor  # noqa: E402, F401
import report  # noqa: E402
import trial  # noqa: E402
from cpp_source import Source  # noqa: E402
from mutant import FILES, OPERATORS, Mutant, mutants  # noqa: E402
from trial import Outcome  # noqa: E402

from kernelbench import emulator  # noqa: E402
from kernelbench.lineage_files import read_lineage, read_step  # noqa: E402
from kernelbench.lineage_model import Step  # noqa: E402

STEPS = ("v01", "v02", "v03", "v04", "v05", "v06", "v07")
#: The longest that a mutant may take to be found, after its build.
LIMIT_S = 60.0
_BUILD_LIMIT_S = 300.0
_ROUNDS = 24
_ROUNDS_EQUIVALENT = 4
_ROUNDS_ITSELF = 4


@dataclass(frozen=True)
class Row:
    """A mutant with its outcome, as the record has it."""

    mutant: Mutant
    outcome: Outcome

    def plain(self) -> dict[str, Any]:
        """For the record."""
        mutant, outcome = self.mutant, self.outcome
        found, kind, place = trial.judge(mutant, outcome)
        named = {outcome.headline} & mutant.expect.objects if outcome.headline else {"its place"}
        fields = {
            name: getattr(mutant, name)
            for name in ("step", "operator", "file", "line", "function", "code", "note")
        }
        return {
            "id": mutant.id,
            **fields,
            "equivalent": mutant.proof,
            "expected": sorted(mutant.expect.kinds),
            "expected_objects": sorted(mutant.expect.objects),
            "found": found,
            "class_right": kind,
            "object_right": place,
            "headline_right": place and bool(named),
            **asdict(outcome),
            "build_s": round(outcome.build_s, 1),
            "run_s": round(outcome.run_s, 2),
        }


class Campaign:
    """Runs mutants, several at the same time, each in a process of its own."""

    def __init__(self, jobs: int, limit_s: float, rounds_itself: int, scratch: Path) -> None:
        self._jobs = jobs
        self._limit_s = limit_s
        self._rounds_itself = rounds_itself
        self._scratch = scratch
        self._context = multiprocessing.get_context("fork")
        (scratch / "common").symlink_to(ROOT / "kernels" / "common")
        emulator.runtime(scratch / "common")

    def step(self, name: str) -> Step:
        """A step of this checkout."""
        lineage = read_lineage(ROOT / "kernels")
        return read_step(ROOT / "kernels" / name, lineage)

    def require_right(self, step: Step, given: Sequence[trial.Case]) -> None:
        """Stop unless the step itself is right under the first of its mutants' schedules."""
        row = next(self._run(step, given, [None]))[1]
        if row.status != "not found":
            raise SystemExit(f"{step.name} itself: {row.status}: {row.text} ({row.case})")

    def run(self, step: Step, given: Sequence[trial.Case], of: Sequence[Mutant]) -> Iterator[Row]:
        """Every mutant's row, in the order in which they end."""
        for mutant, outcome in self._run(step, given, of):
            assert mutant is not None
            yield Row(mutant, outcome)

    def _run(
        self, step: Step, given: Sequence[trial.Case], of: Sequence[Mutant | None]
    ) -> Iterator[tuple[Mutant | None, Outcome]]:
        waiting = list(of)[::-1]
        running: dict[Connection, tuple[Any, Mutant | None, Path, float]] = {}
        while waiting or running:
            while waiting and len(running) < self._jobs:
                mutant = waiting.pop()
                folder = self._scratch / (mutant.id if mutant else f"{step.name}-itself")
                receiver, sender = self._context.Pipe(duplex=False)
                process = self._context.Process(
                    target=_child,
                    args=(step, given, mutant, folder, self._rounds(mutant), self._limit_s, sender),
                )
                process.start()
                sender.close()
                running[receiver] = (process, mutant, folder, time.monotonic() + _BUILD_LIMIT_S)
            for connection in wait(list(running), timeout=0.2):
                assert isinstance(connection, Connection)
                process, mutant, folder, _ = running[connection]
                try:
                    message = connection.recv()
                except EOFError:
                    process.join()
                    message = Outcome("died", text=f"ended by signal {-(process.exitcode or 0)}")
                if message == "built":
                    # Its own limit is shorter: this one is for endless loops.
                    until = time.monotonic() + self._limit_s + 5
                    running[connection] = (process, mutant, folder, until)
                    continue
                yield mutant, self._end(running, connection, message)
            for connection, (process, mutant, _, until) in list(running.items()):
                if time.monotonic() > until:
                    process.kill()
                    text = f"still running after {self._limit_s:.0f} s"
                    yield mutant, self._end(running, connection, Outcome("stuck", text=text))

    def _rounds(self, mutant: Mutant | None) -> int:
        if mutant is None:
            return self._rounds_itself
        return _ROUNDS_EQUIVALENT if mutant.proof else _ROUNDS

    def _end(self, running: dict[Connection, Any], connection: Connection, it: Outcome) -> Outcome:
        process, _, folder, _ = running.pop(connection)
        process.join()
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)
        return it


def _child(
    step: Step,
    given: Sequence[trial.Case],
    mutant: Mutant | None,
    folder: Path,
    rounds: int,
    limit_s: float,
    sender: Connection,
) -> None:
    written = trial.write_step(step, folder, mutant)
    sender.send(trial.attempt(written, given, rounds, limit_s, lambda: sender.send("built")))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--only", default="", help="operators, by name")
    parser.add_argument("--sample", type=int, default=0, help="so many mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds after the build")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of table.md and table.json")
    parser.add_argument("--list", action="store_true", help="only count the sites")
    options = parser.parse_args(arguments)
    part = options.only or options.sample or options.steps != ",".join(STEPS)
    if part and options.out == HERE and not options.list:
        parser.error("the table is of all mutants: give --out for a part of them")
    wanted = list(_wanted(options))
    if options.list:
        for mutant in wanted:
            print(f"{mutant.id}  {mutant.file}:{mutant.line}  {mutant.code}  {mutant.note}")
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        rounds = 1 if options.sample else _ROUNDS_ITSELF
        campaign = Campaign(options.jobs, options.limit, rounds, Path(folder))
        order = {mutant.id: index for index, mutant in enumerate(wanted)}
        rows = sorted(_all(campaign, wanted), key=lambda row: order[row.mutant.id])
    record = {
        "schema": "kernelbench.mutations/1",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        # Where the table goes says nothing of how it came about.
        "command": re.sub(
            r" --out[ =]\S+", "", shlex.join(["python", "tests/mutations/mutate.py", *sys.argv[1:]])
        ),
        "seconds": round(time.monotonic() - began),
        "jobs": options.jobs,
        "cases": len(trial.SHAPES_AND_CLASSES),
        "limit_s": options.limit,
        "rounds": _ROUNDS,
        "sources": {name: code_hash(ROOT / "kernels" / name) for name in options.steps.split(",")},
        "operators": {each.name: each.what for each in OPERATORS},
        "rows": [row.plain() for row in rows],
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "table.json").write_text(report.dump(record), encoding="utf-8")
    (options.out / "table.md").write_text(report.render(record), encoding="utf-8")
    real = report.judged(record["rows"])
    say(
        f"{len(real)} mutants: {report.share(real, 'found'):.1%} found, "
        f"{report.share(real, 'object_right'):.1%} with the right class and object"
    )
    return 0


def code_hash(step: Path) -> str:
    """Hash of a step's code; comments and formatting do not count."""
    digest = hashlib.sha256()
    for name in FILES:
        code = Source(name, (step / name).read_text(encoding="utf-8")).code
        digest.update(" ".join(code.split()).encode())
    return digest.hexdigest()[:16]


def say(text: str) -> None:
    """Tell how far it is, on stderr."""
    print(text, file=sys.stderr, flush=True)


def _wanted(options: argparse.Namespace) -> Iterator[Mutant]:
    only = set(filter(None, options.only.split(",")))
    found = [
        mutant
        for step in options.steps.split(",")
        for mutant in mutants(ROOT / "kernels" / step)
        if not only or mutant.operator in only or mutant.id in only
    ]
    if options.sample:
        real = [mutant for mutant in found if not mutant.proof]
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
