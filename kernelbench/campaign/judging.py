"""Whether a piece's report is an answer, or says something of the worker alone."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelbench.base.errors import ExitCode

_ANSWERS = (ExitCode.PASS, ExitCode.INCORRECT, ExitCode.AMBIGUOUS)
_SAID = "kernelbench: "


@dataclass(frozen=True)
class PieceVerdict:
    """What a report means.

    Attributes:
        fault: Why the piece is not done, in one line; empty if it is.
        final: Whether it would be the same with every other worker.
    """

    fault: str = ""
    final: bool = False


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
