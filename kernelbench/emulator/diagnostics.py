"""A finding as lines of text: what is wrong, source excerpts, who waits for whom, what to do.

The layout is rustc's. A line is a pair of a style and a text; styles are the keys of
:data:`STYLES`, so that whoever has a terminal colours it and whoever has a log does not.
"""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kernelbench.base.files import from_here
from kernelbench.emulator.findings import (
    Access,
    EmulatorReport,
    Finding,
    Waiting,
    first_cause,
    resource_name,
)
from kernelbench.emulator.identity import shown_code, without_indices

#: A line's style and text.
Line = tuple[str, str]
#: Finds the file of an access; None if it is not known.
Locate = Callable[[Access], Path | None]

#: What each style looks like, in the words of a terminal library.
STYLES = {"error": "bold red", "allowed": "yellow", "place": "bold", "mark": "red", "note": ""}
WIDTH = 100
#: Waits and CTAs that are shown; of a cluster of two and its neighbour, say.
_SHOWN_WAITS, _SHOWN_CTAS = 12, 4
_INDENT = "          "
_INSTRUCTION = re.compile(r'^[^"]*"[^"]*\b[a-z]\w*\.[a-z]')
_LONGEST_ASM = 12

#: How the runtime ends a race between a launch and another operation of the program.
_NARROW = ("which does not reach the host", "which does not reach another GPU")
_UNFENCED = "; no fence follows the flag"
_NOT_COVERED = "; the flag's release does not cover it"
_BETWEEN_OPERATIONS = (
    "nothing orders the two", "nothing orders the two streams", "the host wait",
    *_NARROW, _UNFENCED, _NOT_COVERED,
)  # fmt: skip
_OTHER_LAUNCH = re.compile(r" that kernel (.+?)(?: on | of a | reads| writes)")
_TOO_NARROW = "the scope of an atomic does not reach the other"
_SCOPES = (_TOO_NARROW, "has a scope that does not reach this one")
_OF_REGISTERS = "waits for registers of its CTA"
_OF_TENSOR_MEMORY = "tensor memory that tcgen05.ld may still read"
_BETWEEN = "a launch between them"
_BEFORE_WAIT = "before griddepcontrol.wait (cudaGridDependencySynchronize)"
#: How the runtime begins an arrival that may belong to the phase that another has completed.
_SECOND_ARRIVAL = "the count is "
#: How the runtime names memory of another GPU (cuda_runtime/memory.cpp).
_ANOTHER_GPUS = "cannot access: "
_ORDER_IN_SCRIPT = (
    "order {both} by a barrier between them: tl.debug_barrier() in Triton, "
    "cute.arch.sync_threads() in CuTe DSL"
)
#: What an engineer does about a class of findings.
HELP = {
    "hang": "look for who should complete this wait: a missing arrive, "
    "commit or expect_tx, a wrong arrival count, or a role that left its loop early",
    "timeout": "give it more time by --timeout, or a smaller --shape; or a loop has no end",
    "race": "order {both}: a CTA barrier (__syncthreads), an mbarrier, a warp's __syncwarp, "
    "cluster.sync() in a cluster, or an atomic operation between them",
    "early-read": "wait for the copy or the MMA of {other} (its mbarrier, wait_group, "
    "tcgen05.wait) before the read at {here}",
    "overwrite": "wait until {other} is done with the buffer (its `empty` barrier, or "
    "wait_group.read) before {here} writes it again",
    "proxy-fence": "insert fence.proxy.async after {other}, before the barrier that hands the data "
    "to {here}",
    "tensor-map-proxy": "acquire the changed tensor map with "
    "fence.proxy.tensormap::generic.acquire before it is used",
    "arrival-count": "give mbarrier.init the number of arrivals that one phase receives, or let "
    "{here} wait, with the phase's parity, until the phase before is over",
    "transaction-count": "expect_tx takes exactly the bytes that the copies of the phase bring; if "
    "it does, a copy of the next phase has not waited until the buffer is free",
    "phase": "flip the waiter's parity once for each phase that it has waited for",
    "barrier-state": "initialize the barrier once, before its first use, with "
    "fence.mbarrier_init or a CTA barrier after it; a cluster barrier if other CTAs use it",
    "named-barrier": "all participants name the same barrier and the same number of threads",
    "divergence": "reconverge the warp (__syncwarp) before the collective instruction, or move it "
    "out of the branch",
    "tmem-allocation": "allocate TMEM once, free it once, both by a whole warp, and give up the "
    "permit after the last allocation",
    "tmem-bounds": "compare column and lane with the allocation and the warp's 32 lanes",
    "descriptor": "compare address, strides and swizzle of the descriptor with the tile's layout",
    "alignment": "align the address to the size of the access",
    "out-of-bounds": "compare the index with the size of the buffer",
    "exit": "wait for everything in flight before the CTA exits",
    "order": "move the instruction to where it orders something",
    "unwritten": "write the memory before it is read, or read after the barrier that says it is "
    "written",
    "not-reset": "reset the counter at the end of the call, or at the start of the next",
}


def headline_of(finding: Finding, severity: str = "error") -> str:
    """``error[race]: a store writes …``."""
    return f"{severity}[{finding.kind}]: {finding.text.rstrip('.')}"


def report_lines(report: EmulatorReport, max_findings: int | None = None) -> Iterator[Line]:
    """Every finding of a report; then who waits, where no finding says it."""
    shown = report.findings[:max_findings]
    for finding in shown:
        yield from finding_lines(finding, report.waits if finding.kind == "hang" else ())
    more = len(report.findings) - len(shown) + report.dropped
    if more:
        yield "note", f"… and {more} more finding{'' if more == 1 else 's'}"
    if report.waits and all(finding.kind not in ("hang", "timeout") for finding in shown):
        yield from _chain(report.waits, WIDTH)


def ranks(finding: Finding, beside: Sequence[Finding]) -> tuple[float, bool]:
    """Smaller for what comes first, as the cause of the others.

    What orders two operations of a program orders all before the first with all behind the second:
    of several races the one of neighbours is the cause. A missing wait makes a producer overwrite,
    and upsets the counts of its barriers.
    """
    apart = finding.apart if is_between_operations(finding) else math.inf
    return apart, finding.follows and any(other.kind == "overwrite" for other in beside)


def is_between_operations(finding: Finding) -> bool:
    """Whether it is a race between launches, copies and the host, which may cause the others."""
    return finding.kind == "race" and finding.text.endswith(_BETWEEN_OPERATIONS)


def launches_of(finding: Finding, kernel: str) -> frozenset[str]:
    """Both kernels of a race found in ``kernel`` with another launch; empty for other findings."""
    other = _OTHER_LAUNCH.search(finding.text) if is_between_operations(finding) else None
    return frozenset((kernel, other[1]) if other and finding.thread >= 0 else ())


def cause_of(finding: Finding, waits: Sequence[Waiting], beside: Sequence[Finding] = ()) -> object:
    """Equal for hangs that lack the same of a barrier, whoever waits for it at which line, and for
    what differs in the buffer alone, as by its size.

    A read of nothing has the cause of the race or early read beside it that has its line. What is
    read early of a copy that does not wait for its readers has the copy's.
    """
    for other in beside if finding.kind == "early-read" else ():
        if other.kind == "overwrite" and _lines(other) == _lines(finding)[::-1]:
            return _conflict(other)
    for other in beside if finding.kind == "unwritten" and finding.buffer else ():
        sides = (other.access, other.other) if other.kind in ("race", "early-read") else ()
        if other.buffer == finding.buffer and finding.access in sides:
            return _conflict(other)
    cause = first_cause(waits) if finding.kind == "hang" and waits else None
    if cause is None or not cause.needs:
        return _conflict(finding)
    return without_indices(cause.what), cause.needs


def is_cause(finding: Finding, waits: Sequence[Waiting], beside: Sequence[Finding]) -> bool:
    """Whether no finding beside it has caused it."""
    return cause_of(finding, waits, beside) == cause_of(finding, waits)


def _lines(finding: Finding) -> tuple[str, str]:
    return finding.access.where, finding.other.where if finding.other else ""


def _conflict(finding: Finding) -> object:
    here, there = _lines(finding)
    if finding.text.endswith(_SCOPES) and finding.buffer:
        return finding.kind, _SCOPES, finding.buffer  # wherever it is accessed
    text = re.sub(r"\ballocation \d+ of ", "allocation of ", finding.text)  # of a loop's rounds
    return (finding.kind, text, here, there) if here and there else finding.identity


def finding_lines(
    finding: Finding,
    waits: Sequence[Waiting] = (),
    notes: Sequence[tuple[str, str]] = (),
    *,
    severity: str = "error",
    locate: Locate | None = None,
    width: int = WIDTH,
) -> Iterator[Line]:
    """One finding.

    Args:
        waits: Who waits for what, if it is a hang.
        notes: More lines behind it, each a heading and a text: ``("seen", "9 of 9 shapes")``.
        severity: ``error``, or ``allowed`` for what may be there.
        locate: Finds source files, to quote them as they are indented.
        width: Columns at which notes are folded.
    """
    yield severity, headline_of(finding, severity)
    here, label = finding.access, "here" if finding.other is not None else ""
    cause = first_cause(waits) if waits and not here.where else None
    if cause is not None:
        here = cause.access
        label = f"waits for {cause.what}" + (f": {cause.needs} missing" if cause.needs else "")
    # Of copies and the host there is no thread.
    of_cta = here.role or finding.thread >= 0 or finding.kind == "hang"
    who = _who(here.role, finding.cta, finding.thread) if of_cta else ""
    yield from _place("-->", here, who, label, locate, width)
    if finding.other is not None:
        who = _who(finding.other.role, (), finding.other_thread)
        barrier = finding.kind == "transaction-count"
        label = "its barrier is initialized here" if barrier else "the other access"
        yield from _place(":::", finding.other, who, label, locate, width)
    if cause is not None and cause.needs:
        expected = f"{cause.expected} arrival{'s' if cause.expected > 1 else ''} expected here"
        yield from _place(":::", cause.initialized, "", expected, locate, width)
    named = " " in finding.object and finding.object in finding.text
    if finding.object and not named:  # a name of one letter may be in any word
        yield from note("object", finding.object, width)
    if finding.count > 1:
        yield from note("count", f"{finding.count} times at these lines", width)
    if waits:
        yield from _chain(waits, width)
    if severity == "error" and finding.kind in HELP:
        yield from note("help", _help(finding), width)
    for heading, text in notes:
        # A command is copied as it stands.
        yield from note(heading, text, width if heading != "rerun" else sys.maxsize)
    yield from note("identity", finding.identity, width)


def _help(finding: Finding) -> str:
    """What to do, with the lines that it is to be done at."""
    text = finding.text
    special = {
        "release at the scope of the system: __threadfence_system() before the flag, or a release "
        "by an atomic of cuda::thread_scope_system": text.endswith(_NARROW),
        "put a fence behind the poll of the flag (__threadfence()), or let it acquire "
        "(cuda::memory_order_acquire, ld.acquire)": text.endswith(_UNFENCED),
        "raise the flag behind every access that it stands for: __syncthreads() between {other} "
        "and the thread that releases the flag": text.endswith(_NOT_COVERED),
        "order the two operations: one stream for both, cudaEventRecord and cudaStreamWaitEvent "
        "(in torch wait_stream or wait_event), or a synchronization by the host between "
        "them": is_between_operations(finding),
        "call cudaGridDependencySynchronize (gdc_wait in Triton) before {here}: until then the "
        "kernel overlaps the grids ahead": text.endswith(_BEFORE_WAIT),
        "call cudaGridDependencySynchronize (gdc_wait in Triton) in that launch, too, even if it "
        "needs no data: who waits for it waits for what it has waited for": _BETWEEN in text,
        "give {both} a scope that has both threads: atomicAdd in place of atomicAdd_block, "
        "cuda::thread_scope_device, or .gpu in PTX": text.endswith(_TOO_NARROW),
        "put cluster.sync() before the first access to another CTA's shared memory": text.endswith(
            "behind that CTA's start"
        ),
        "make {both} atomic, or order the two CTAs: __threadfence() between the write and the "
        "atomic that announces it and after the one that observes it (or release and acquire at "
        "gpu scope), or two launches": finding.between_ctas,
        "if both arrive in one phase, give mbarrier.init that many; if one is to arrive for all, "
        "elect it; if they arrive in two phases, wait for the first before the second "
        "arrival": text.startswith(_SECOND_ARRIVAL),
        "free it behind its last use: on the same stream, or after an event or a synchronization "
        "that the free waits for": finding.kind == "out-of-bounds"
        and " freed" in text
        and " past the end of " not in text,
        "put wgmma.fence before the first wgmma.mma_async, and wherever registers that it takes "
        "have been written since": text.endswith("without wgmma.fence before it"),
        "wait for {other} (tcgen05.wait::ld) before the arrival that lets {here} write, and for "
        "that arrival before {here}": finding.kind == "overwrite" and _OF_TENSOR_MEMORY in text,
        "keep the CTA until the others have done with its shared memory: cluster.sync() between "
        "{here} and the end of the kernel": finding.kind == "exit" and " exited" in text,
        "have the other warpgroups give up registers first (setmaxnreg.dec), or ask for no more "
        "than the CTA's registers allow": finding.kind == "hang" and _OF_REGISTERS in text,
        "let both roles count alike: {here} asks for a parity once more, with a phase in between "
        "that it has not waited for; stage and parity go on from one tile to the next in the "
        "waiter as in the one who arrives": " and has skipped a phase" in text,
        "give mbarrier.init ({other}) the number of arrivals of one phase, if more arrive; else "
        "flip the waiter's parity once for each phase": text.endswith("the waiter was lapped"),
        "give the barrier the number of threads that come to it, each time the same": finding.kind
        == "hang"
        and " waits for named barrier" in text,
        "launch no more CTAs than can reside together: those of "
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor times the SMs": finding.kind == "hang"
        and " can reside" in text,
        "launch on the GPU that has the memory (cudaSetDevice before it), or let the other one "
        "in": _ANOTHER_GPUS in text,
    }
    here, other = _lines(finding)
    in_script = ".py:" in here and ".py:" in other and finding.kind == "race"
    special[_ORDER_IN_SCRIPT] = in_script
    both = f"{here} and {other}" if other and here != other else "the two accesses"
    words = next((each for each, holds in special.items() if holds), HELP[finding.kind])
    named = {"here": here or "this access", "other": other or "the other access", "both": both}
    return words.format(**named)


def note(heading: str, text: str, width: int = WIDTH) -> Iterator[Line]:
    """``  = help: …``, folded with a hanging indent."""
    head = f"  = {heading}: "
    for line in _folded(head, text, " " * len(head), width):
        yield "note", line


def _folded(head: str, text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, max(width, 40), initial_indent=head, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    ) or [head]  # fmt: skip


def _place(
    arrow: str, access: Access, who: str, label: str, locate: Locate | None, width: int
) -> Iterator[Line]:
    """A place with its line of source, and a mark below that, both at most so wide."""
    if not access.where:
        if who:
            yield "place", f"  {arrow} {who}"
        return
    file = locate(access) if locate is not None else None
    number, column, text = source_of(file, access.where.rpartition(":")[2])
    shown = f"{from_here(file)}:{number}{column}" if file is not None else access.where
    yield "place", f"  {arrow} {shown}" + (f"   {who}" if who else "")
    text = text or shown_code(access.code)
    if not text:
        return
    room = max(width, 40) - len(f" {number} | ")
    text = text if len(text) <= room else text[: room - 1] + "…"
    inside = text.lstrip()
    indent = len(text) - len(inside)
    mark = "^" if arrow == "-->" else "-"
    marks = " " * indent + mark * max(3, min(len(inside), 72, room - indent - len(label) - 1))
    yield "note", f" {number} | {text}"
    yield "mark", f" {' ' * len(number)} | {marks} {label}".rstrip()


def source_of(file: Path | None, number: str) -> tuple[str, str, str]:
    """A line's number, ``:`` and the column where it begins, and its text; both empty if unknown.

    Of operands of inline PTX it is the line of the instruction.
    """
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if file else []
    except OSError:
        lines = []
    at = int(number) - 1 if number.isdecimal() else -1
    if not 0 <= at < len(lines):
        return number, "", ""
    if lines[at].lstrip().startswith(('"', ":")):
        above = range(at, max(at - _LONGEST_ASM, -1), -1)
        at = next((line for line in above if _INSTRUCTION.search(lines[line])), at)
    column = len(lines[at]) - len(lines[at].lstrip()) + 1
    return str(at + 1), f":{column}", lines[at].rstrip().expandtabs(4)


def arrivals_in(file: Path, barrier: str) -> dict[int, str]:
    """Lines that arrive at ``full`` of ``full[2]``, or say how often: their text by number."""
    name = re.escape(without_indices(barrier).strip("[]").split(".")[-1])
    arrival = re.compile(rf"(?=.*\b{name}\b).*(arrive|commit|expect|complete|init)")
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    codes = ((at, line.partition("//")[0].strip()) for at, line in enumerate(lines, 1))
    return {at: code for at, code in codes if arrival.match(code)}


def _who(role: str, cta: Sequence[int], thread: int) -> str:
    parts = [f"CTA {cta_in_words(cta)}"] if cta else []
    parts += [f"thread {thread}"] if thread >= 0 else []
    where = ", ".join(parts)
    return f"{role} ({where})" if role and where else role or where


def _chain(waits: Sequence[Waiting], width: int) -> Iterator[Line]:
    """Who waits for what, in the CTA of the cause first; the cause is marked."""
    cause = first_cause(waits)
    ctas = [*dict.fromkeys((wait.cta, wait.rank) for wait in waits)]
    ctas.sort(key=lambda each: each != (cause.cta, cause.rank))
    count = len(ctas)
    ctas = [*{_waits_of(each, waits): each for each in reversed(ctas)}.values()][::-1]
    yield "note", "  = waiting:"
    for cta, rank in ctas[:_SHOWN_CTAS]:
        yield "note", f"{_INDENT}CTA {cta_in_words(cta)}" + (f" (rank {rank})" if rank else "")
        own = [wait for wait in waits if (wait.cta, wait.rank) == (cta, rank)]
        own = [wait for wait in own if wait is cause or not _follows(wait, own)]
        alike = Counter(map(_alike, own))
        own = [*{_alike(wait): wait for wait in reversed(own)}.values()][::-1]
        for wait in own[:_SHOWN_WAITS]:
            is_cause = wait is cause and len(waits) > 1
            more = alike[_alike(wait)] - 1
            text = _waiting(wait) + (f"; {more} more wait likewise" if more else "")
            text += "   <- the cause" if is_cause else ""
            for line in _folded(f"{_INDENT}  ", text, f"{_INDENT}    ", width):
                yield "mark" if is_cause else "note", line
        if len(own) > _SHOWN_WAITS:
            yield "note", f"{_INDENT}  … and {len(own) - _SHOWN_WAITS} more"
    if more := count - min(len(ctas), _SHOWN_CTAS):
        same = f" that wait{'s' * (more == 1)} likewise" if len(ctas) <= _SHOWN_CTAS else ""
        yield "note", f"{_INDENT}… and {more} more CTA{'s' if more > 1 else ''}{same}"


def _follows(wait: Waiting, own: Sequence[Waiting]) -> bool:
    """Whether lanes wait for those of their warp whose wait is shown."""
    if wait.what != resource_name("warp"):
        return False
    return any(set(wait.warps) <= set(each.warps) and each.what != wait.what for each in own)


def _alike(wait: Waiting) -> tuple[object, ...]:
    """Equal for words that the same line looks at."""
    words = wait.what in map(resource_name, ("global", "shared"))
    return (wait.access, wait.what) if words else (id(wait),)


def _waits_of(cta: tuple[Sequence[int], int], waits: Sequence[Waiting]) -> tuple[object, ...]:
    """Equal for CTAs whose warps wait for the same at the same lines, of as many threads."""
    own = [each for each in waits if (each.cta, each.rank) == cta]
    return tuple((each.access, each.what, each.warps, each.lanes.bit_count()) for each in own)


def waiter_in_words(wait: Waiting) -> str:
    """``load_warp (warp 4, 1 lane)``."""
    lanes = wait.lanes.bit_count()
    who = f"{wait.access.role or 'warp'} (warp{'s' if len(wait.warps) > 1 else ''} "
    who += _ranges(wait.warps)
    return who + (f", {lanes} lane{'s' if lanes > 1 else ''})" if lanes < 32 else ")")


def _waiting(wait: Waiting) -> str:
    who = waiter_in_words(wait)
    who += f" at {wait.access.where}" if wait.access.where else ""
    text = f"{who} waits for {wait.what}"
    if wait.state:
        text += f": {wait.state}"
    if wait.needs:
        text += f"; {wait.needs} would end it"
    if wait.arrived.where:
        text += f"; the last arrival or change came from {wait.arrived}"
    return text


def cta_in_words(cta: Sequence[int]) -> str:
    """``3`` for (3, 0, 0), ``3,1,0`` for (3, 1, 0)."""
    if len(cta) == 3 and cta[1] == cta[2] == 0:
        return str(cta[0])
    return ",".join(map(str, cta))


def _ranges(numbers: Sequence[int]) -> str:
    """``0–3, 5`` for 0, 1, 2, 3, 5."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{p[0]}–{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
