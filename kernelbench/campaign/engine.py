"""Gives pieces to workers, keeps what comes back, and goes on when workers do not.

It holds the pieces that run and those that wait for another worker, never all of them. A worker
has no more pieces than it runs at a time: so it is known which one a lost worker had, and no other
piece is blamed.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelbench.base.errors import ExitCode
from kernelbench.base.observer import OnProgress
from kernelbench.campaign.outcome_files import (
    PIECE_SCHEMA,
    OutcomeFiles,
    PieceOutcome,
    judge_report,
)
from kernelbench.campaign.pieces import Piece
from kernelbench.campaign.worker_pool import PoolWorker, WorkerPool
from kernelbench.records.run_record import now_iso

#: How often a piece is given to another worker.
MOST_MOVES = 2
#: Faults in a row, without a piece done, after which a worker gets no more.
MOST_FAULTS = 3
#: Beyond its limit (once for a GPU to be free, once for the command): then no answer will come.
_GRACE_S = 60.0
_POLL_S = 0.5

SWEEP_SCHEMA: Literal["kernelbench.sweep/1"] = "kernelbench.sweep/1"


@dataclass(frozen=True)
class PieceFault:
    """A piece that a worker did not do; it may have been done by another."""

    piece: str
    host: str
    worker: str
    why: str


@dataclass(frozen=True)
class MissingPiece:
    """A piece that is not done at the end."""

    piece: str
    why: str


@dataclass(frozen=True)
class SweepReport:
    """What one sweep did."""

    schema: Literal["kernelbench.sweep/1"]
    name: str
    pieces: int  #: Of the campaign.
    recorded: int  #: Done by earlier sweeps.
    done: int  #: By this one.
    left_out: dict[str, int]  #: Combinations beyond a step's limits, by reason.
    wrong: tuple[str, ...]  #: Commands of pieces, of earlier sweeps too, whose step is not right.
    mutants_found: int  #: Mutants that were found, by earlier sweeps too.
    mutants_missed: tuple[str, ...]  #: Commands of those that were not.
    missing: tuple[MissingPiece, ...]  #: What could not be done.
    not_run: int  #: Pieces that nobody was there for.
    faults: tuple[PieceFault, ...]
    workers: int
    seconds: float  #: That the sweep took.
    estimate_s: float | None  #: For what is left, None if nothing like it was measured.
    complete: bool  #: Whether every piece is done.


@dataclass
class _Given:
    """A piece on its way."""

    piece: Piece
    #: By address, what went wrong with the workers that had it.
    faults: dict[str, str] = field(default_factory=dict)
    worker: PoolWorker | None = None
    until: float = 0.0  #: When its worker should have answered.


@dataclass(frozen=True)
class EngineSettings:
    """How pieces are run."""

    limit_s: float  #: Seconds after which a piece is ended.
    gpu: bool  #: Whether pieces that can have to run on a GPU.
    environment: dict[str, str]  #: Variables of every command.
    patience_s: float  #: How long pieces wait for a worker that may have them.


@dataclass
class Engine:
    """One sweep; for what it counts see :class:`SweepReport`."""

    pool: WorkerPool
    outcomes: OutcomeFiles
    eta: Eta
    settings: EngineSettings
    on_progress: OnProgress
    on_fault: Callable[[PieceFault], None]
    done: int = 0
    not_run: int = 0
    answers: Answers = field(default_factory=lambda: Answers())
    missing: list[MissingPiece] = field(default_factory=list)
    faults: list[PieceFault] = field(default_factory=list)
    most_workers: int = 0  #: That there were at a time.
    _running: dict[str, _Given] = field(default_factory=dict)
    _again: list[_Given] = field(default_factory=list)
    _given_up: set[str] = field(default_factory=set)
    _in_a_row: Counter[str] = field(default_factory=Counter)
    _unfit: dict[str, str] = field(default_factory=dict)
    _pieces: Iterator[Piece] = field(default_factory=lambda: iter(()))
    _exhausted: bool = False

    def run(self, pieces: Iterator[Piece]) -> None:
        """Run those pieces that are not done; EnvironmentProblem if no outcome can be written."""
        self._pieces = pieces
        began = idle = time.monotonic()
        met = False
        while True:
            workers = [each for each in self.pool.workers() if each.address not in self._unfit]
            met = met or bool(workers)
            self.most_workers = max(self.most_workers, len(workers))
            self._fill(workers)
            if self._exhausted and not self._running and not self._again:
                return
            if self._running or not met:
                # Workers that come through a batch system may be hours away.
                idle = time.monotonic()
            elif time.monotonic() - idle >= self.settings.patience_s:
                self._give_up_waiting()
                return
            self._say(workers, time.monotonic() - began, met)
            for report in self.pool.reports(_POLL_S):
                self._take(report)
            self._look_for_lost({each.address for each in self.pool.workers()})

    def _fill(self, workers: list[PoolWorker]) -> None:
        busy = Counter(each.worker.address for each in self._running.values() if each.worker)
        # One for each worker first: no host is filled while another has nothing.
        turns = range(max((each.slots for each in workers), default=0))
        free = [w for turn in turns for w in workers if busy[w.address] <= turn < w.slots]
        for worker in free:
            given = self._next(worker)
            if given is not None:
                self._start(worker, given)

    def _next(self, worker: PoolWorker) -> _Given | None:
        for given in self._again:
            if worker.address not in given.faults:
                self._again.remove(given)
                return given
        under_way = {each.piece.key for each in (*self._again, *self._running.values())}
        for piece in self._pieces:
            if piece.key in under_way or piece.key in self._given_up:
                continue
            found = self.outcomes.find(piece.key)
            if found is None:
                return _Given(piece)
            self.outcomes.merge(found)
            self.answers.add(piece, found.code)
        self._exhausted = True
        return None

    def _start(self, worker: PoolWorker, given: _Given) -> None:
        limit_s = self.settings.limit_s
        given.worker = worker
        given.until = time.monotonic() + 2 * limit_s + _GRACE_S
        # Of this turn: a lost worker's report may come when another has the piece.
        key = f"{given.piece.key}-{len(given.faults)}"
        self._running[key] = given
        order: dict[str, Any] = {
            "key": key,
            "arguments": [*given.piece.arguments],
            "limit_s": limit_s,
            "gpu": self.settings.gpu and given.piece.on_gpu,
            "environment": self.settings.environment,
        }
        self.pool.start(worker, order)

    def _take(self, report: dict[str, Any]) -> None:
        given = self._running.pop(report["key"], None)
        if given is None or given.worker is None:
            return
        piece = given.piece
        on_gpu = self.settings.gpu and piece.on_gpu
        verdict = judge_report(report, on_gpu, piece.mutant)
        if verdict.fault:
            self._moved(given, verdict.fault, report["host"], verdict.final)
            return
        self._in_a_row[given.worker.address] = 0
        self.outcomes.keep(
            PieceOutcome(
                schema=PIECE_SCHEMA, key=piece.key, arguments=piece.arguments, like=piece.like,
                code=int(report["code"]), host=report["host"], gpu=report["gpu"],
                seconds=round(report["seconds"], 3), created=now_iso(),
            ),
            report["files"],
        )  # fmt: skip
        self.done += 1
        self.eta.took(piece.like, report["seconds"])
        self.eta.left[piece.like] -= 1
        self.answers.add(piece, int(report["code"]))

    def _moved(self, given: _Given, why: str, host: str, final: bool = False) -> None:
        """A worker did not do a piece: another shall, or it is missing."""
        assert given.worker is not None
        address, words = given.worker.address, given.piece.in_words()
        fault = PieceFault(words, host or given.worker.host, address, why)
        self.faults.append(fault)
        self.on_fault(fault)
        given.faults[address] = why
        given.worker = None
        if final or len(given.faults) > MOST_MOVES:
            self._given_up.add(given.piece.key)
            self.missing.append(MissingPiece(words, f"{fault.host}: {why}"))
        else:
            self._again.append(given)
        self._in_a_row[address] += not final
        if self._in_a_row[address] >= MOST_FAULTS:
            self._unfit[address] = why

    def _look_for_lost(self, here: set[str]) -> None:
        now = time.monotonic()
        for key, given in [*self._running.items()]:
            worker = given.worker
            if worker is None or (worker.address in here and now < given.until):
                continue
            del self._running[key]
            self.pool.give_up(key)
            silent = worker.address in here
            why = "it does not answer" if silent else "the worker has gone"
            if silent:
                self._unfit[worker.address] = why
            self._moved(given, why, worker.host)

    def _give_up_waiting(self) -> None:
        """Nobody may have what is left: pieces that were tried are missing, the others not run."""
        for given in self._again:
            host, why = next(reversed(given.faults.items()))
            self._given_up.add(given.piece.key)
            self.missing.append(MissingPiece(given.piece.in_words(), f"{host}: {why}"))
        self._again = []
        for piece in self._pieces:
            self.not_run += piece.key not in self._given_up and not self.outcomes.find(piece.key)

    def _say(self, workers: list[PoolWorker], seconds: float, met: bool) -> None:
        if not met:
            self.on_progress("waiting for workers")
            return
        left = sum(self.eta.left.values())
        parts = [f"{self.done} of {self.done + left} pieces"]
        if self.done and seconds:
            parts.append(f"{60 * self.done / seconds:.3g} a minute")
        ahead = self.eta.seconds_left(sum(each.slots for each in workers))
        if ahead is not None:
            parts.append(f"about {duration_text(ahead)} left")
        parts.append(f"{len(self._running)} running on {len(workers)} workers")
        self.on_progress(", ".join(parts))


@dataclass
class Answers:
    """Counted over pieces."""

    #: Commands whose step is not right, mutants left out.
    wrong: list[str] = field(default_factory=list)
    #: Those of mutants that ``check`` calls not right, as it should.
    found: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)  #: The others'.

    def add(self, piece: Piece, code: int) -> None:
        """Count the exit code of a piece."""
        incorrect = code == ExitCode.INCORRECT
        if piece.mutant:
            (self.found if incorrect else self.missed).append(piece.in_words())
        elif incorrect:
            self.wrong.append(piece.in_words())


class Eta:
    """Seconds of pieces by what they are like, and how many are left; as large as the file."""

    def __init__(self) -> None:
        self.left: Counter[str] = Counter()  #: Pieces to be done, by what they are like.
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._pieces: Counter[str] = Counter()

    def took(self, like: str, seconds: float) -> None:
        """A piece was measured, now or in an earlier sweep."""
        self._seconds[like] += seconds
        self._pieces[like] += 1

    def seconds_left(self, slots: int) -> float | None:
        """Seconds for what is left, by so many at a time; None before anything was measured.

        Pieces of which none was measured are taken to be as all others are on average.
        """
        measured = sum(self._pieces.values())
        if not measured:
            return None
        average = sum(self._seconds.values()) / measured
        work = 0.0
        for like, number in self.left.items():
            known = self._pieces[like]
            work += number * (self._seconds[like] / known if known else average)
        return work / max(slots, 1)


def duration_text(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h 10 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
