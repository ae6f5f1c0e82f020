"""What the emulator found, as an engineer reads it: roles, barriers by name, file and line.

:func:`resolve_report` resolves a report where the step's library is; the result is plain data that
travels from the worker to the command line, where :mod:`.diagnostics` puts it into words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from kernelbench.emulator.identity import identity_of
from kernelbench.emulator.memory_map import MemoryMap, memory_maps
from kernelbench.emulator.symbols import Place, Symbols

#: Classes of findings and what they mean in a few words.
CLASSES = {
    "hang": "a wait or a loop that nothing ends",
    "timeout": "the launch has not ended in time, though it goes on",
    "race": "two accesses, one of them a write, without order between them",
    "early-read": "read before the completion of a copy or an MMA was observed",
    "overwrite": "overwritten while something still reads or writes it",
    "proxy-fence": "written through the generic proxy, used by the async proxy without a fence",
    "tensor-map-proxy": "tensor map used without acquiring its last change",
    "arrival-count": "more arrivals than the phase expects",
    "transaction-count": "bytes expected and bytes copied differ",
    "phase": "a waiter is two phases off",
    "barrier-state": "barrier not initialized, initialized twice, or overwritten",
    "named-barrier": "participants of a named barrier disagree",
    "divergence": "lanes of a warp are not together at a collective instruction",
    "tmem-allocation": "TMEM allocated, freed or left behind wrongly",
    "tmem-bounds": "TMEM outside the allocation or the warp's lanes",
    "descriptor": "a descriptor that the hardware does not take",
    "alignment": "misaligned",
    "out-of-bounds": "memory that no buffer owns",
    "exit": "the CTA exits with operations in flight",
    "crash": "segmentation fault or stack overflow",
    "order": "instructions in an order that has no effect",
    "unwritten": "read before anything was written there",
    "not-reset": "a counter that an earlier call has left changed",
}


#: How a race of a warp's lanes ends that store different values by one instruction (CUDA
#: programming guide, "SIMT Architecture").
WHICH_STAYS = ": which of the values stays is not defined"
#: How the runtime begins the text of a hang in which every thread waits.
_NOTHING_RUNS = "nothing can run and nothing is pending"
#: A wait for a phase that comes behind one which its thread has not waited for.
SKIPS = "; the thread last saw a phase of this parity end, and one more has ended since"
#: Stands for the role of who has arrived at an mbarrier where no thread has.
NOBODY = "nobody"

#: What a wait is for, where it is not a barrier of the step's own.
_WAITS = {
    "warp": "the other lanes of its warp",
    "cluster": "the other CTAs of its cluster",
    "bulk-group": "bulk copies that it has committed",
    "tmem-alloc": "free TMEM columns",
    "tmem-load": "its TMEM loads",
    "global": "a value in global memory",
    "cp.async": "its cp.async copies",
    "wgmma": "its wgmma groups",
    "shared": "a value in shared memory",
    "registers": "registers of its CTA",
}


def resource_name(kind: str) -> str:
    """What a wait of a kind is for, where it is no barrier of the step's own."""
    return _WAITS.get(kind, kind)


@dataclass(frozen=True)
class Access:
    """One side of a finding: which role, at which line, and what stands there."""

    role: str = ""
    where: str = ""
    code: str = ""

    def __str__(self) -> str:
        return " at ".join(part for part in (self.role, self.where) if part) or "unknown place"


@dataclass(frozen=True)
class Finding:
    """One finding; repeats of the same lines are counted.

    Attributes:
        kind: A key of :data:`CLASSES`.
        text: One sentence.
        other: The access that it conflicts with.
        object: The barrier or buffer by name; empty if there is none.
        cta, rank, thread: Where it was seen first; thread is -1 outside any thread.
        kernel: The kernel's entry; empty if unknown.
        identity: Equal for the same fault found again (:mod:`kernelbench.emulator.identity`).
        abroad: Whether the other access is another CTA's.
        apart: Of a race of two operations of a program: how many others it has asked for between
            them, at least.
        follows: Of a count of a barrier that has been right before: whether an overwrite, where one
            is found, may be its cause.
    """

    kind: str
    text: str
    access: Access
    other: Access | None
    object: str
    cta: tuple[int, ...]
    rank: int
    thread: int
    other_thread: int
    count: int = 1
    kernel: str = ""
    identity: str = ""
    abroad: bool = False
    apart: int = 0
    follows: bool = False

    @property
    def between_ctas(self) -> bool:
        """Whether it is a race of two CTAs."""
        return self.kind == "race" and self.abroad

    @property
    def buffer(self) -> str:
        """The object without an offset in it."""
        return self.object.partition(" + ")[0]


@dataclass(frozen=True)
class Waiting:
    """What warps wait for at the end of a hang.

    Attributes:
        what: ``full[2]``, ``named barrier 1``, …
        state: How far the object is, e.g. ``phase parity 1, 3 phases completed``.
        needs: What would end the wait; empty if that is not a matter of counting.
        victim: How likely others' waits are the cause of this one, for which one to name first: 0
            where bytes do not match or more threads are missing than there are, 1 where the count
            or the phase is not the one that the barrier has had, 2 where some arrived, 3 where none
            did or another CTA's value is missing, 4 where the missing ones wait themselves.
        arrived: The last change of a word, or arrival at an mbarrier since its initialization, with
            the role :data:`NOBODY` if none came; empty if it is unknown or another object.
        initialized: Where an mbarrier was given its number of arrivals.
        expected: That number; 0 of another object.
    """

    access: Access
    cta: tuple[int, ...]
    rank: int
    warps: tuple[int, ...]
    lanes: int
    what: str
    state: str
    needs: str
    victim: int = 4
    arrived: Access = Access()
    initialized: Access = Access()
    expected: int = 0


@dataclass(frozen=True)
class EmulatorReport:
    """Everything that launches found.

    Attributes:
        dropped: Findings beyond the number that is kept.
        assumptions: Keys of :data:`kernelbench.emulator.assumptions.ASSUMPTIONS` without which
            there would be more findings.
        causes: What is no fault by itself, and may be the cause of findings or of wrong results:
            among the findings, first of all, if there are any.
        formal: Identities of findings that are none on any GPU; see :meth:`Symbols.formal`.
        memory: What kernels have of shared and tensor memory.
        triggered: Whether all CTAs of a hang have let dependents begin.
        ctas_at_words: How many CTAs of a hang wait for a value in global memory; ``waits`` has some
            of them where they are many.
    """

    findings: tuple[Finding, ...] = ()
    waits: tuple[Waiting, ...] = ()
    launches: int = 0
    switches: int = 0
    seconds: float = 0.0
    dropped: int = 0
    assumptions: tuple[str, ...] = ()
    causes: tuple[Finding, ...] = ()
    formal: tuple[str, ...] = ()
    memory: tuple[MemoryMap, ...] = ()
    triggered: bool = False
    ctas_at_words: int = 0

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The findings that are not formal."""
        return tuple(each for each in self.findings if each.identity not in self.formal)

    def explaining(self) -> EmulatorReport:
        """The same of a call that went wrong: what may be the cause is a finding."""
        more = tuple(cause for cause in self.causes if cause not in self.findings)
        return replace(self, findings=more + self.findings)

    def headline(self) -> str:
        """The first finding in one line; empty if there is none."""
        if not self.findings:
            return ""
        first = self.findings[0]
        place = ", ".join(part for part in (first.access.role, first.access.where) if part)
        return f"{first.kind}: {first.text.rstrip('.')}" + (f" ({place})" if place else "")


def resolve_report(raw: Mapping[str, Any], symbols: Symbols) -> EmulatorReport:
    """Resolve what the runtime reported."""
    waits = tuple(_group(_waiting(wait, symbols) for wait in raw.get("waits", [])))
    if any(str(each["text"]).startswith(_NOTHING_RUNS) for each in raw["findings"]):
        waits = tuple(_short_of_threads(waits))
    causes = findings_in_time({"findings": raw.get("causes", [])}, symbols, waits)
    report = EmulatorReport(
        tuple(causes_first(findings_in_time(raw, symbols, waits))),
        waits,
        int(raw.get("launches", 0)),
        int(raw.get("switches", 0)),
        float(raw.get("seconds", 0.0)),
        int(raw.get("dropped", 0)),
        tuple(raw.get("assumptions", ())),
        tuple(causes),
        symbols.formal(raw),
        memory_maps(raw, symbols),
        all(each.get("triggered") for each in raw.get("waits", [])),
        int(raw.get("ctas_at_words", 0)),
    )
    return report.explaining() if have_causes(report.faults) else report


def have_causes(faults: Iterable[Finding]) -> bool:
    """Whether something else may be to blame: not for a copy that nobody waits for at the exit."""
    return any(each.kind != "exit" for each in faults)


def findings_in_time(
    raw: Mapping[str, Any], symbols: Symbols, waits: Sequence[Waiting]
) -> list[Finding]:
    """The findings of a report in the order in which they were made."""
    return [_identified(_finding(each), waits) for each in symbols.findings(raw)]


def _identified(finding: Finding, waits: Sequence[Waiting]) -> Finding:
    sides = [finding.access, *([finding.other] if finding.other else [])]
    obj, text = finding.object, finding.text
    if finding.kind == "hang" and waits and not finding.access.where:
        stuck = first_cause(waits)
        sides, obj, text = [stuck.access], stuck.what, _deadlock(stuck, text)
    places = [(side.role, side.where, side.code) for side in sides]
    if finding.between_ctas:  # not the same as that of two threads of one at these lines
        places.append(("", "", "that another CTA"))
    identity = identity_of(finding.kind, finding.kernel, obj, places)
    return replace(finding, text=text, identity=identity)


def _deadlock(cause: Waiting, text: str) -> str:
    """Who waits where for what, and what never comes; a livelock keeps the runtime's text."""
    head, _, count = text.partition(": ")
    if head == "livelock":
        return text
    at = f" at {cause.access.where}" if cause.access.where else ""
    said = f"{cause.access.role or 'a warp'}{at} waits for {cause.what}"
    said += f", which lacks {cause.needs.replace(' more ', ' ')}" if cause.needs else ""
    if cause.state.endswith(SKIPS):
        said += " and has skipped a phase"
    if cause.arrived.role == NOBODY:
        said += " (none has come)"
    elif cause.arrived.where:
        said += f" (the last came from {cause.arrived})"
    return f"deadlock: {said}; {count}" if head == _NOTHING_RUNS else f"{text}; {said}"


def first_cause(waits: Sequence[Waiting]) -> Waiting:
    """The wait that the others are most likely behind.

    Among equals lanes that wait for others of their warp come first, and then the one with the
    fewest threads: many wait for a result.
    """
    return min(
        waits,
        key=lambda wait: (
            wait.victim, wait.what != _WAITS["warp"], not wait.needs,
            wait.lanes.bit_count() * len(wait.warps),
        ),
    )  # fmt: skip


def causes_first(findings: Sequence[Finding]) -> list[Finding]:
    """In time, but bytes that were not expected come first; a race comes behind an access past the
    end at its line, and a read of nothing behind what tells why it came too early."""
    telling = {each.buffer for each in findings if each.kind != "unwritten" and each.object}
    beyond = {each.access.where for each in findings if each.kind == "out-of-bounds"}

    def follows(each: Finding) -> int:
        if each.kind == "unwritten" and each.buffer in telling:
            return 2
        if each.kind == "race" and {each.access.where, each.other and each.other.where} & beyond:
            return 1
        return -(each.kind == "transaction-count")

    return sorted(findings, key=follows)


def _finding(found: Mapping[str, Any]) -> Finding:
    column = int(found.get("tmem_column", -1))
    name = str(found["shared_name"] or found.get("buffer", ""))
    if not name and column >= 0:
        name = f"TMEM column {column}"
    return Finding(
        kind=str(found["class"]),
        text=str(found["text"]),
        access=_access(found, ""),
        other=_access(found, "other_") if found.get("other_pc") else None,
        object=name,
        cta=tuple(found.get("cta") or ()),
        rank=int(found.get("rank", 0)),
        thread=int(found.get("thread", -1)),
        other_thread=int(found.get("other_thread", -1)),
        count=int(found.get("count", 1)),
        kernel=str(found["kernel"]),
        abroad=bool(found.get("abroad")),
        apart=int(found.get("apart", 0)),
        follows=bool(found.get("follows")),
    )


def _access(found: Mapping[str, Any], prefix: str) -> Access:
    file, line = found[f"{prefix}file"], found[f"{prefix}line"]
    where = f"{file}:{line}" if file else ""
    return Access(str(found[f"{prefix}role"]), where, str(found[f"{prefix}code"]))


def _waiting(wait: Mapping[str, Any], symbols: Symbols) -> Waiting:
    place = symbols.place(wait.get("pc"))
    kind = str(wait["kind"])
    pending, expected = int(wait.get("pending", 0)), int(wait.get("expected", 0))
    what, state, needs, victim, arrived = resource_name(kind), "", "", 4, Access()
    initialized = Access()
    if kind == "mbarrier":
        offset = int(wait["object"])
        name = symbols.shared_name(wait.get("pc"), wait.get("shared_type"), offset)
        what = name or f"the mbarrier at shared memory + {offset:#x}"
        state = (
            f"phase parity {wait['parity']}; {_count(int(wait['phase']), 'phase')} completed, "
            f"{pending} of {_count(expected, 'arrival')} pending"
        )
        tx = int(wait["tx"])
        if tx:
            state += f", {tx} bytes outstanding" if tx > 0 else f", {-tx} bytes too many"
        needs = _needs(pending, tx)
        victim = 0 if tx else 2 if pending < expected else 3
        if wait.get("skips"):
            victim = min(victim, 1)
            state += SKIPS
        arrived = _place_access(symbols.place(wait.get("arrive_pc")))
        if pending == expected and not int(wait["phase"]):
            arrived = Access(NOBODY)
        initialized = _place_access(symbols.place(wait.get("init_pc")))
    elif kind == "global":
        state = str(wait["word"])
        arrived = _place_access(symbols.place(wait.get("arrive_pc")))
        victim = 3  # other CTAs' work; the thread's own CTA waits for it
    elif kind == "shared":
        offset = int(wait["object"])
        name = symbols.shared_name(wait.get("pc"), wait.get("shared_type"), offset)
        state = f"{name or f'shared memory + {offset:#x}'} holds {wait['parity']}"
    elif kind == "registers":
        state = f"{wait['object']} for each thread; {wait['parity']} are free in the CTA's pool"
        victim = 0
    elif kind == "named-barrier":
        what = f"named barrier {wait['object']}"
        if expected:
            state = f"{expected - pending} of {expected} threads have arrived"
            needs = f"{_count(pending, 'more thread')}"
            if 0 < int(wait.get("before", 0)) == expected - pending:
                victim = 1
                state += ", as many as it was for the last time"
    return Waiting(
        _place_access(place), tuple(wait.get("cta") or ()), int(wait.get("rank", 0)),
        (int(wait["warp"]),), int(wait.get("lanes", 0xFFFFFFFF)), what, state, needs, victim,
        arrived, initialized, expected if kind == "mbarrier" else 0,
    )  # fmt: skip


def _place_access(place: Place | None) -> Access:
    return Access(place.role, str(place), place.code) if place is not None else Access()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _needs(pending: int, tx: int) -> str:
    """What would complete the phase."""
    parts = []
    if pending:
        parts.append(_count(pending, "more arrival"))
    if tx > 0:
        parts.append(_count(tx, "more byte"))
    if tx < 0:
        parts.append(f"an expect_tx of {_count(-tx, 'more byte')}")
    return " and ".join(parts)


def _short_of_threads(waits: Sequence[Waiting]) -> Iterator[Waiting]:
    """The same, where a named barrier lacks threads: whether any are there that could still come.

    A role's function is in the name of what its warps wait in; where all of them have come to the
    barrier, those of other roles are unlikely to.
    """
    for wait in waits:
        lacks = re.match(r"\d+(?= more thread)", wait.needs)
        beside = [w for w in waits if (w.cta, w.rank) == (wait.cta, wait.rank)]
        others = [w for w in beside if w.what != wait.what]
        victim = wait.victim
        if lacks and int(lacks[0]) > sum(w.lanes.bit_count() * len(w.warps) for w in others):
            victim = 0
        elif lacks and wait.access.role.endswith(("_warp", "_warps")):
            arrived = {w.access.role for w in beside if w.what == wait.what}
            if arrived.isdisjoint(w.access.role for w in others):
                victim = min(victim, 2)
        yield replace(wait, victim=victim)


def _group(waits: Iterator[Waiting]) -> Iterator[Waiting]:
    """Warps that wait for the same at the same line become one."""

    def same(wait: Waiting) -> Waiting:
        return replace(wait, warps=())

    def order(wait: Waiting) -> tuple[Any, ...]:
        return (wait.cta, wait.rank, str(wait.access), wait.what, wait.state, wait.lanes)

    for key, group in groupby(sorted(waits, key=order), key=same):
        yield replace(key, warps=tuple(sorted(w for wait in group for w in wait.warps)))
