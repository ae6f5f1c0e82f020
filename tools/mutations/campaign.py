"""Run mutants, several at the same time, each in a process of its own, and record what came out."""

from __future__ import annotations

import itertools
import multiprocessing
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, NamedTuple

import trial
from cases import Case
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


class Trial(NamedTuple):
    """A step with what it is run on, and the mutant in its place; None for the step itself."""

    step: Step
    given: Sequence[Case]
    mutant: Mutant | None


class Campaign:
    """Builds and runs what it is given.

    Args:
        lineage: The folder of the steps.
        jobs: Mutants at the same time.
        limit_s: How long each may run, after its build.
        rounds_itself: Schedules of each case for the steps themselves.
        scratch: An empty folder.
    """

    def __init__(
        self, lineage: Path, jobs: int, limit_s: float, rounds_itself: int, scratch: Path
    ) -> None:
        self._lineage = lineage
        self._jobs = jobs
        self._limit_s = limit_s
        self._rounds_itself = rounds_itself
        self._scratch = scratch / lineage.name
        self._context = multiprocessing.get_context("fork")
        # Where a lineage looks for building blocks: in its own folder, and beside it.
        for name in {lineage.name, "kernels"}:
            (scratch / name).mkdir()
            if (ROOT / name / "common").is_dir():
                (scratch / name / "common").symlink_to(ROOT / name / "common")
        runtime.runtime(scratch / "kernels" / "common")

    def step(self, name: str) -> Step:
        """A step of this checkout."""
        return read_step(self._lineage / name, read_lineage(self._lineage))

    def require_right(self, steps: Iterable[Trial]) -> None:
        """Stop unless they are right themselves under the first of their mutants' schedules."""
        for (step, _, _), row in self._run(steps):
            if row.status != "not found":
                raise SystemExit(f"{step.name} itself: {row.status}: {row.text} ({row.case})")
            say(f"{step.name}: right itself ({row.runs} runs, {row.run_s:.0f} s)")

    def run(self, trials: Iterable[Trial]) -> Iterator[Row]:
        """Every mutant's row, in the order in which they end."""
        for of, outcome in self._run(trials):
            assert of.mutant is not None
            yield Row(of.mutant, outcome)

    def _run(self, trials: Iterable[Trial]) -> Iterator[tuple[Trial, Outcome]]:
        waiting = iter(trials)
        running: dict[Connection, _Running] = {}
        while True:
            for each in itertools.islice(waiting, self._jobs - len(running)):
                receiver, started = self._start(each)
                running[receiver] = started
            if not running:
                return
            for connection in wait(list(running), timeout=0.2):
                assert isinstance(connection, Connection)
                of = running[connection]
                try:
                    message = connection.recv()
                except EOFError:
                    of.process.join()
                    message = Outcome("died", text=f"ended by signal {-(of.process.exitcode or 0)}")
                if message == "built":
                    # Its own limit is shorter: this one is for endless loops.
                    of.until = time.monotonic() + self._limit_s + 5
                    continue
                yield of.trial, self._end(running, connection, message)
            for connection, of in list(running.items()):
                if time.monotonic() > of.until:
                    of.process.kill()
                    text = f"still running after {self._limit_s:.0f} s"
                    yield of.trial, self._end(running, connection, Outcome("stuck", text=text))

    def _start(self, it: Trial) -> tuple[Connection, _Running]:
        folder = self._scratch / (it.mutant.id if it.mutant else f"{it.step.name}-itself")
        receiver, sender = self._context.Pipe(duplex=False)
        rounds = self._rounds(it.mutant)
        process = self._context.Process(
            target=_child, args=(*it, folder, rounds, self._limit_s, sender)
        )
        process.start()
        sender.close()
        return receiver, _Running(process, it, folder, time.monotonic() + _BUILD_LIMIT_S)

    def _rounds(self, mutant: Mutant | None) -> int:
        if mutant is None:
            return self._rounds_itself
        return _ROUNDS_EQUIVALENT if mutant.proof else ROUNDS

    def _end(
        self, running: dict[Connection, _Running], connection: Connection, it: Outcome
    ) -> Outcome:
        ended = running.pop(connection)
        ended.process.join()
        connection.close()
        shutil.rmtree(ended.folder, ignore_errors=True)
        return it


@dataclass
class _Running:
    process: ForkProcess
    trial: Trial
    folder: Path
    until: float


def _child(
    step: Step,
    given: Sequence[Case],
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
