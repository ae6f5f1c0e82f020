"""A check's findings as SARIF 2.1.0, which code scanning shows at their lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.version import __version__
from kernelbench.checks.report import CheckReport
from kernelbench.checks.rows import FAILED, CheckRow, Seen
from kernelbench.emulator.diagnostics import source_of
from kernelbench.emulator.findings import CLASSES, Access
from kernelbench.kinds.compiled import common_folder, lineage_blocks
from kernelbench.project.context import Context
from kernelbench.project.model import Step

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
#: What is wrong with a row that has no finding of its own.
_ROWS = {
    "wrong": "the result is not the reference's",
    "fault": "the step does not build, load or run",
    "finding": "rests on an assumption of the emulator",
    "hang": "the call does not end",
    "timeout": "the call has not ended in time",
}
_Json = dict[str, Any]


def sarif_of(report: CheckReport, files: Mapping[str, Path] | None = None) -> _Json:
    """The SARIF document of a check; paths are relative to the project's folder.

    Args:
        report: Of a check.
        files: Where those are that are no steps, by the name in the report.
    """
    context = Context.find()
    root = context.project.root
    results: list[_Json] = []
    for checked in report.steps:
        if files and checked.step in files:
            places = _Places(files[checked.step].absolute(), [], root)
        else:
            places = _places_of(context.lineages.select([checked.step])[0], root)
        results += _results(places, checked.rows)
    rules = [
        {"id": name, "shortDescription": {"text": text}}
        for name, text in (CLASSES | {f"row-{key}": text for key, text in _ROWS.items()}).items()
    ]
    driver = {"name": "kernelbench check", "semanticVersion": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "invocations": [{"commandLine": report.command, "executionSuccessful": report.complete}],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _places_of(step: Step, root: Path) -> _Places:
    blocks = [common_folder(step), *lineage_blocks(step)]
    steps = [step]
    while steps[-1].base is not None:
        steps.append(steps[-1].base)
    folders = [part.parent for part in (*(each.path for each in steps), *blocks)]
    return _Places(step.entry or step.path, folders, root)


class _Places:
    """Where the files of findings are, for a reader of the repository."""

    def __init__(self, entry: Path, folders: Sequence[Path], root: Path) -> None:
        self._root = root
        self._folders = [*folders, entry.parent]
        self.entry = self._uri(entry)

    def of(self, access: Access, text: str = "") -> _Json:
        """The location of one side."""
        name, _, number = access.where.rpartition(":")
        paths = [folder / name for folder in self._folders]
        file = next((path for path in paths if path.is_file()), Path(name))
        line, column, _ = source_of(file, number)
        physical: _Json = {"artifactLocation": {"uri": self._uri(file) if name else self.entry}}
        if line.isdigit():
            physical["region"] = {"startLine": int(line)}
        if column:
            physical["region"]["startColumn"] = int(column[1:])
        return {"physicalLocation": physical} | ({"message": {"text": text}} if text else {})

    def _uri(self, path: Path) -> str:
        return (
            path.relative_to(self._root) if path.is_relative_to(self._root) else path
        ).as_posix()


def _results(places: _Places, rows: tuple[CheckRow, ...]) -> Iterator[_Json]:
    known: set[str] = set()
    for row in rows:
        for seen in row.seen:
            if seen.finding.identity not in known:
                known.add(seen.finding.identity)
                yield _result(places, row, seen)
        if row.status in FAILED and not row.seen:
            yield {
                "ruleId": f"row-{row.status}",
                "level": "error",
                "message": {"text": f"{row.step} on {row.shape}: {row.reason}"},
                "locations": [places.of(Access())],
                "partialFingerprints": {"kernelbench/v1": f"{row.status}-{row.step}-{row.shape}"},
            }


def _result(places: _Places, row: CheckRow, seen: Seen) -> _Json:
    finding = seen.finding
    place = finding.access
    if not place.where and seen.waits:
        place = next((wait.access for wait in seen.waits if wait.needs), seen.waits[0].access)
    about = f" ({finding.object})" if finding.object else ""
    where = f"{row.step} on {row.shape}, {seen.sms} SM{'s' if seen.sms > 1 else ''}"
    found: _Json = {
        "ruleId": finding.kind,
        "level": "error",
        "message": {"text": f"{finding.text}{about}. Seen with {where}: {finding.identity}"},
        "locations": [places.of(place)],
        "partialFingerprints": {"kernelbench/v1": finding.identity},
    }
    if finding.other is not None and finding.other.where:
        found["relatedLocations"] = [places.of(finding.other, "the other access")]
    if seen.allowed:
        found["suppressions"] = [{"kind": "external", "justification": seen.allowed}]
    return found
