"""What compute-sanitizer's log says: findings with their places, and what is known of false ones.

The log is text with a prefix on every line; a record is a headline and indented details, and ends
with an empty line (Compute Sanitizer user manual, "Examples" and the reports of each tool).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from kernelbench.inspection.gpu_tool import plain_kernel_name

_PREFIX = "========="
_SUMMARIES = (
    re.compile(r"RACECHECK SUMMARY: (?P<count>\d+) hazards? displayed"),
    re.compile(r"ERROR SUMMARY: (?P<count>\d+) errors?$"),
)
_NOT_PRINTED = re.compile(r"SUMMARY: .*not printed")
# "Race reported between Write access at f+0x90 in a.cu:41", "at f():0x160 in a.cu:6",
# "Device Frame: f+0x30 in a.cu:44"; where there are no line tables, without a file.
_FRAME = re.compile(
    r"(?:\bat |(?P<inlined>Device Frame: ?))(?P<function>\S.*?)(?:\+|:)0x[0-9a-f]+"
    r"(?: in (?P<file>[^:]+):(?P<line>\d+))?(?:\s|$)"
)
_ACCESS = re.compile(r"^and (?:Read|Write) access", re.MULTILINE)
_SEVERITY = re.compile(r"(?P<level>error|warning|info): (?P<text>.+)", re.IGNORECASE)
#: Headlines with a severity that are findings; others with one tell of the tool itself.
_HAZARD = re.compile(r"Race reported|hazard detected|Deadlock detected", re.IGNORECASE)
_TOOL_ERROR = re.compile(r"Internal Sanitizer Error")
#: Headlines that neither find nor fail.
_CHATTER = re.compile(
    r"COMPUTE-SANITIZER|LEAK SUMMARY|Target application returned an error"
    r"|process didn't terminate successfully"
)


@dataclass(frozen=True)
class SanitizerFrame:
    """A place in device code; ``file`` is empty where the code has no line table."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} at {self.file}:{self.line}" if self.file else self.function


@dataclass(frozen=True)
class SanitizerFinding:
    """One record of the log."""

    text: str  #: The headline, without its severity.
    severity: str  #: ``error`` or ``warning``.
    #: Where it happened, each place with those that it is inlined into, innermost first; a race has
    #: several.
    accesses: tuple[tuple[SanitizerFrame, ...], ...]
    kernel: str  #: The kernel, as far as the frames tell.
    details: tuple[str, ...]  #: The other lines.
    explanation: str = ""  #: Why it may be a false positive; empty where nothing is known.

    @property
    def frames(self) -> tuple[SanitizerFrame, ...]:
        """The frames of all accesses of the finding."""
        return tuple(frame for access in self.accesses for frame in access)

    def places(self, own_files: Collection[str]) -> tuple[SanitizerFrame, ...]:
        """Of each access the innermost frame in one of ``own_files``, else the innermost at all.

        Those without a file, and the same a second time, are left out.
        """
        found: dict[SanitizerFrame, None] = {}
        for access in self.accesses:
            with_file = [frame for frame in access if frame.file]
            own = [frame for frame in with_file if frame.file in own_files]
            found |= dict.fromkeys((own or with_file)[:1])
        return tuple(found)


@dataclass(frozen=True)
class Log:
    """A log, read."""

    #: Findings as the tool counts them, those that it did not print included; None if the log has
    #: no summary, because the tool did not come to its end.
    count: int | None
    findings: tuple[SanitizerFinding, ...]  #: Those printed.
    failures: tuple[str, ...]  #: What the tool says of its own failing.
    notes: tuple[str, ...]  #: What the tool warns of.


_RACE = re.compile(r"Race reported|hazard detected")
#: Of false races: the release that mended it, a function in one of the frames, the explanation.
#: From the release notes of Compute Sanitizer, "Updates in 2026.3" and "in 2026.1". As narrow as
#: they allow: a race between ordinary accesses is never explained, whatever the release.
_FALSE_RACES = (
    (
        (2026, 3), re.compile(r"\bcp_(reduce_)?async_bulk"),
        ("one side is an asynchronous bulk copy; before 2026.3 racecheck can miss that its "
         "mbarrier's complete-tx orders it"),
    ),
    (
        (2026, 1), re.compile(r"\bwgmma_"),
        ("one side is a wgmma; before 2026.1 racecheck can misjudge synchronization of a "
         "warpgroup on Hopper"),
    ),
)  # fmt: skip


def explained(tool: str, version: tuple[int, ...], finding: SanitizerFinding) -> SanitizerFinding:
    """The finding, with the explanation if it fits a known cause of false positives.

    Args:
        tool: ``racecheck``, say. version: Of compute-sanitizer.
    """
    if tool == "racecheck" and _RACE.search(finding.text):
        for mended, function, text in _FALSE_RACES:
            named = any(function.search(frame.function) for frame in finding.frames)
            if named and version[:2] < mended:
                return replace(finding, explanation=text)
    return finding


def read_sanitizer_log(text: str) -> Log:
    """Read a log of any of the tools."""
    findings: list[SanitizerFinding] = []
    failures: list[str] = []
    notes: list[str] = []
    counts: list[int] = []
    for headline, *details in _records(text):
        summary = next(filter(None, (s.search(headline) for s in _SUMMARIES)), None)
        severity = _SEVERITY.fullmatch(headline)
        if summary is not None:
            counts.append(int(summary["count"]))
        elif _NOT_PRINTED.search(headline):
            notes.append(headline)
        elif _TOOL_ERROR.match(headline):
            failures.append(headline)
        elif _CHATTER.search(headline):
            continue
        elif severity and not _HAZARD.search(headline):
            said = failures if severity["level"].lower() == "error" else notes
            said.append(severity["text"])
        elif not details:
            # Advice; if it should be a finding after all, the summary counts it.
            notes.append(headline)
        else:
            level = severity["level"].lower() if severity else "error"
            findings.append(_finding(severity["text"] if severity else headline, level, details))
    return Log(max(counts, default=None), tuple(findings), tuple(failures), tuple(notes))


def _records(text: str) -> list[list[str]]:
    """Headline and details of each record, stripped."""
    records: list[list[str]] = []
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        content = line.removeprefix(_PREFIX)
        if content.startswith("     ") and records:
            records[-1].append(content.strip())
        elif content.strip():
            records.append([content.strip()])
    return records


def _finding(text: str, severity: str, details: list[str]) -> SanitizerFinding:
    accesses: list[list[SanitizerFrame]] = []
    rest = []
    for line in (text, *details):
        match = _FRAME.search(line)
        if match:
            file = (match["file"] or "").rpartition("/")[2]
            frame = SanitizerFrame(
                plain_kernel_name(match["function"]), file, int(match["line"] or 0)
            )
            if match["inlined"] and accesses:
                accesses[-1].append(frame)
            else:
                accesses.append([frame])
        elif line is not text:
            rest.append(line)
    kernel = accesses[-1][-1].function if accesses else ""
    headline = re.sub(r" at \S.*0x[0-9a-f]+.*", "", text)
    for access in dict.fromkeys(_ACCESS.findall("\n".join(details))):
        headline += f" {access}"
    return SanitizerFinding(headline, severity, tuple(map(tuple, accesses)), kernel, tuple(rest))
