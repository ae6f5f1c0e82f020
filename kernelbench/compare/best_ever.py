"""The best-ever revision of a device, which the live gate compares with, too.

It is kept in ``results/<device>/best.json``.
"""

from __future__ import annotations

from pathlib import Path

from kernelbench.base import json_file
from kernelbench.base.errors import RecordError
from kernelbench.compare.gate_report import GateReport
from kernelbench.project.project_file import Project
from kernelbench.project.revision import commit_of, uncommitted
from kernelbench.records import run_record

BEST_SCHEMA = "kernelbench.best/1"


def kept_best(folder: Path, device: str) -> tuple[str, str] | None:
    """The commit that is kept for a device, and since when; None if none is.

    Raises:
        RecordError: If the file is not of this version.
    """
    path = _path(folder, device)
    if not path.is_file():
        return None
    value = json_file.read_json(path)
    if not isinstance(value, dict) or value.get("schema") != BEST_SCHEMA:
        raise RecordError(f"{path} is not of schema {BEST_SCHEMA!r}", "remove it, or --best REF")
    return str(value["commit"]), f"kept since {value['created']}"


def keep_best(project: Project, folder: Path, report: GateReport) -> str:
    """Keep HEAD as the best ever, unless that would let small losses creep in.

    Returns:
        Why it was not kept; empty if it was.

    Raises:
        RecordError: If the project is not in a git repository with a commit.
    """
    commit = commit_of("HEAD", project)
    if commit is None:
        raise RecordError("--update-best needs a git repository with a commit")
    path = _path(folder, report.device)
    changes = [
        (row.delta, row.margin) if row.delta_best is None else (row.delta_best, row.margin_best)
        for row in report.rows
    ]
    timed = [(delta, margin) for delta, margin in changes if delta is not None and margin]
    if not timed:
        return "nothing was timed"
    if path.is_file() and not any(delta < -margin for delta, margin in timed):
        return "HEAD is no faster than it"
    if uncommitted(project):
        return "what was measured is not HEAD: there are uncommitted changes"
    value = {"schema": BEST_SCHEMA, "commit": commit, "created": run_record.now_iso()}
    json_file.write_json(path, value)
    return ""


def _path(folder: Path, device: str) -> Path:
    return folder / run_record.device_slug(device) / "best.json"
