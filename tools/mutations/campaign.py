"""Run mutants, several at the same time, each in a process of its own, and record what came out."""

from __future__ import annotations

import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import trial
from mutant import Mutant
from trial import Outcome

from kernelbench.emulator import runtime
from kernelbench.project.model import Step
from kernelbench.project.step_files import read_lineage, read_step

ROOT = Path(__file__).resolve().parents[2]
#: The longest that a mutant may take to be found, after its build.
LIMIT_S = 60.0
#: Schedules of each case: of a mutant, of one that no execution can tell from the step, and of the
#: step itself.
ROUNDS = 24
_ROUNDS_EQUIVALENT = 4
ROUNDS_ITSELF = 4
_BUILD_LIMIT_S = 300.0


@dataclass(frozen=True)
class Row:
    """A mutant with its outcome, as the record has it."""

    mutant: Mutant
    outcome: Outcome

    def plain(self) -> dict[str, Any]:
        """For the record: what the table shows, and how to see it again."""
        mutant, outcome = self.mutant, self.outcome
        found, kind, place = trial.judge(mutant, outcome)
        named = {outcome.headline} & mutant.expect.objects if outcome.headline else {"its place"}
        fields = {
            name: getattr(mutant, name)
            for name in ("id", "step", "operator", "file", "line", "function", "code", "note")
        }
        return {
            **fields,
            "equivalent": mutant.proof,
            "found": found,
            "class_right": kind,
            "object_right": place,
            "headline_right": place and bool(named),
            "expected": [] if kind else sorted(mutant.expect.kinds),
            "expected_objects": [] if place else sorted(mutant.expect.objects),
            "status": outcome.status,
            "kind": outcome.kind,
            "objects": outcome.objects,
            "roles": outcome.roles,
            "text": "" if found else outcome.text or mutant.gap,
            "case": outcome.case,
            "runs": outcome.runs,
            "run_s": round(outcome.run_s, 2),
        }


class Campaign:
    """Builds and runs what it is given."""

    def __init__(self, jobs: int, limit_s: float, rounds_itself: int, scratch: Path) -> None:
        self._jobs = jobs
        self._limit_s = limit_s
        self._rounds_itself = rounds_itself
        self._scratch = scratch
        self._context = multiprocessing.get_context("fork")
        (scratch / "common").symlink_to(ROOT / "kernels" / "common")
        runtime.runtime(scratch / "common")

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
        return _ROUNDS_EQUIVALENT if mutant.proof else ROUNDS

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


def say(text: str) -> None:
    """Tell how far it is, on stderr."""
    print(text, file=sys.stderr, flush=True)
