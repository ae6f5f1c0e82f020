"""What is done of a campaign: ``results/campaigns/<name>/<key>.json.gz``, a file a piece.

The file is written first, with all that the piece made; then its records, samples and ledger lines
are put into the results folder; then the file is written again without them. A client that is
killed in between does the second part when it is started again, and since records go by their
identifiers, doing it twice is as doing it once.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kernelbench.base import files, schema
from kernelbench.base.errors import EnvironmentProblem, ExitCode, RecordError
from kernelbench.base.json_file import read_document, write_gzip
from kernelbench.records import ledger, run_record, store
from kernelbench.records.ledger import LedgerEntry

PIECE_SCHEMA: Literal["kernelbench.piece/1"] = "kernelbench.piece/1"
_SUFFIX = ".json.gz"
_SAMPLES = f".samples{_SUFFIX}"
#: What a piece may put into results: it comes from another machine.
_RECORD = re.compile(r"[a-z0-9-]+/(runs|ab|checks)/[A-Za-z0-9][A-Za-z0-9.-]*\.json\.gz")
_LEDGER = "ledger.jsonl"
_ANSWERS = (ExitCode.PASS, ExitCode.INCORRECT, ExitCode.AMBIGUOUS)
_SAID = "kernelbench: "


@dataclass(frozen=True)
class PieceOutcome:
    """What one piece came to."""

    schema: Literal["kernelbench.piece/1"]
    key: str
    arguments: tuple[str, ...]  #: Of the command line.
    like: str  #: See :class:`~kernelbench.campaign.pieces.Piece`.
    code: int  #: The command's exit code.
    #: ``host``, ``gpu``: Where it ran; gpu is empty where it had none to itself.
    host: str
    gpu: str
    seconds: float  #: How long the command took.
    created: str
    records: tuple[str, ...] = ()  #: Identifiers of what it put into the results folder.
    #: What is not there yet, by its path, base64; empty when all is.
    files: dict[str, str] = field(default_factory=dict)


class OutcomeFiles:
    """The outcomes of the campaign ``name`` in a results folder; one client has them at a time."""

    def __init__(self, results: Path, name: str) -> None:
        self.results = results
        self.folder = results / "campaigns" / name
        self._ledger: set[tuple[str, str, str]] | None = None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the campaign; EnvironmentProblem if another client does, or it cannot be written."""
        from filelock import FileLock, Timeout

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            held = FileLock(self.folder / ".lock", timeout=0).acquire()
        except Timeout as error:
            raise EnvironmentProblem(
                f"another sweep of {self.folder.name} is under way here", "wait for it, or stop it"
            ) from error
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot write {self.folder}: {error.strerror or error}", "choose another --results"
            ) from error
        with held:
            yield

    def find(self, key: str) -> PieceOutcome | None:
        """The outcome of a piece; None if there is none, or none that can be read."""
        with contextlib.suppress(RecordError):
            path = self._path(key)
            return read_document(path, PieceOutcome, PIECE_SCHEMA, "outcome of a piece")
        return None

    def keep(self, outcome: PieceOutcome, made: Mapping[str, bytes]) -> PieceOutcome:
        """Write an outcome with its files, and put them into the results.

        Raises:
            EnvironmentProblem: If they cannot be written; what is lacking is done the next time.
        """
        packed = {
            name: base64.b64encode(data).decode()
            for name, data in made.items()
            if name == _LEDGER or _RECORD.fullmatch(name)
        }
        kept = replace(outcome, files=packed)
        self._write(kept)
        return self.merge(kept)

    def merge(self, outcome: PieceOutcome) -> PieceOutcome:
        """Put what an outcome carries into the results, and keep it without that."""
        if not outcome.files:
            return outcome
        made = {name: base64.b64decode(text) for name, text in outcome.files.items()}
        ids = []
        for name, data in made.items():
            if "/runs/" in name:
                if not name.endswith(_SAMPLES):
                    ids.append(self._add_run(made, name))
            elif name != _LEDGER:
                ids += [] if name.endswith(_SAMPLES) else [run_record.id_of(Path(name))]
                with files.atomic_write(self.results / name) as stream:
                    stream.write(data)
        ids += self._add_to_ledger(made.get(_LEDGER, b""))
        merged = replace(outcome, files={}, records=tuple(dict.fromkeys(ids)))
        self._write(merged)
        return merged

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _write(self, outcome: PieceOutcome) -> None:
        write_gzip(self._path(outcome.key), json.dumps(schema.encode(outcome)).encode())

    def _add_run(self, made: Mapping[str, bytes], name: str) -> str:
        """Save a run's record and samples, and bring the tables up to date."""
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".merge-") as scratch:
            path = Path(scratch) / "record"
            path.write_bytes(made[name])
            record = run_record.read_run(path)
            samples = []
            if data := made.get(name.removesuffix(_SUFFIX) + _SAMPLES):
                path.write_bytes(data)
                samples = run_record.read_samples(path)
        store.save_run(self.results, record, samples)
        return record.id

    def _add_to_ledger(self, data: bytes) -> list[str]:
        lines = [json.loads(line) for line in data.decode().splitlines()]
        entries = [schema.decode(LedgerEntry, line) for line in lines]
        if not entries:
            return []
        if self._ledger is None:
            self._ledger = {_identity(entry) for entry in ledger.read_ledger(self.results)}
        fresh = [entry for entry in entries if _identity(entry) not in self._ledger]
        if fresh:
            ledger.append(self.results, fresh)
        self._ledger |= {_identity(entry) for entry in fresh}
        return [entry.id for entry in entries]


def _identity(entry: LedgerEntry) -> tuple[str, str, str]:
    return (entry.id, entry.shape, entry.metric)


@dataclass(frozen=True)
class PieceVerdict:
    """What a report means."""

    fault: str = ""  #: Why the piece is not done, in one line; empty if it is.
    final: bool = False  #: Whether it would be the same with every other worker.


def judge_report(report: Mapping[str, Any], on_gpu: bool, mutant: bool = False) -> PieceVerdict:
    """Judge what :meth:`kernelbench.campaign.piece_process.PieceRunner.run` returned.

    A wrong step is an answer, and so is one whose shapes were all skipped. What the machine lacks
    is none, nor is a run without the GPU that it was to have: those could be right elsewhere. A
    mutant that cannot be built was never looked at.
    """
    if report["fault"]:
        return PieceVerdict(str(report["fault"]))
    code = report["code"]
    records = [
        _record(data)
        for name, data in report["files"].items()
        if ("/runs/" in name or "/checks/" in name) and ".samples." not in name
    ]
    ran = [row for record in records for row in _rows(record) if row.get("status") != "skipped"]
    if code in _ANSWERS:
        kinds = {record.get("environment", {}).get("kind", "cuda") for record in records}
        if on_gpu and ran and kinds != {"cuda"}:
            return PieceVerdict("it ran without a GPU")
        steps = (step for record in records for step in record.get("steps", ()))
        if mutant and not any(step["binary_sha"] for step in steps):
            return PieceVerdict("the mutant cannot be built", final=True)
        return PieceVerdict()
    if code == ExitCode.ENVIRONMENT and records and not ran:
        return PieceVerdict()
    return PieceVerdict(_reason(report), final=code == ExitCode.USAGE)


def _record(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(gzip.decompress(data))
    except (OSError, EOFError, ValueError, zlib.error):
        return {}
    return found if isinstance(found, dict) else {}


def _rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    steps = record.get("steps")
    if steps is None:
        return list(record.get("results", ()))
    return [row for step in steps for row in step["rows"]]


def _reason(report: Mapping[str, Any]) -> str:
    """The line of what was printed that says why."""
    lines = [line.strip() for line in str(report["tail"]).splitlines() if line.strip()]
    said = [line.removeprefix(_SAID) for line in lines if line.startswith(_SAID)]
    code = report["code"]
    how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
    last = (said or lines or ["nothing was printed"])[-1]
    return f"{how}: {last[:300]}"
