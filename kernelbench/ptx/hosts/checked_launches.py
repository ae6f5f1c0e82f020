"""Launches of a program or a script, each checked."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelbench.base.demangle import short_name, source_name
from kernelbench.emulator.assumptions import HOST_IN_TURN
from kernelbench.emulator.findings import Finding, resource_name
from kernelbench.emulator.runtime import runtime
from kernelbench.emulator.settings import Emulation
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.hosts.cuda_launch import CudaLaunch, WorkOrder
from kernelbench.ptx.launcher import LaunchesBeside, PtxModule
from kernelbench.ptx.report import (
    Launched,
    PtxFinding,
    PtxReport,
    each_once,
    found_in,
    memory_named,
    notes_in,
)
from kernelbench.ptx.script_symbols import host_place, host_symbols

#: The row of what is found between launches.
PROGRAM = "program"
#: Each launch of a form has that many times fewer schedules than the one before it.
_FEWER = 4
#: Schedules of a launch in all of which the same accesses have no order.
_SAME_IN_ALL = 2
#: Of a form, those beyond that because of what the launch before has left: as often all of them.
_FURTHER = 2
#: Of threads, in all schedules of a launch, for each schedule that is asked for.
_SWITCHES = 600_000
#: How findings end of what the host writes, and a copy reads.
_CHANGED = (
    "the host writes: nothing has made the host wait",
    "changed before it was read: nothing has made the host wait",
)
_ANY_SEED = range(1 << 64)
#: CTAs of a launch that is interleaved with another one.
_MOST_BESIDE = 64
#: An allocation as the runtime has it, and the variable of a call that makes one.
_NUMBERED = re.compile(r"\ballocation (\d+)((?: \(argument \d+\))?)")
_ALLOCATED = re.compile(
    r"[Aa]lloc\w*(?:<[^()]*>)?\s*\([^&;?]*?&\s*([A-Za-z_]\w*(?:\.\w+|->\w+|\[\w+\])*)"
)
#: Of allocations; beyond, none is called by its variable.
_NUMBERS = range(1, 1000)


class CheckedLaunches:
    """Makes launches: one of a form that was not there before in all schedules, the next of that
    form in a quarter of them, and so on, down to one; in all, too, if words by which its CTAs wait
    or count hold what they have not held before a launch of that form.

    Args:
        check: Schedules; 0 for a plain run.
        seed: Of the first schedule.
        sms: SMs of the emulated GPU.
        limit_s: Seconds after which a schedule is ended, as a hang; 0 for never.
        gpu_sms: SMs of the GPU on which CTAs that wait for each other have to reside; 0 for those
            of the GPU that the arch stands for.
        gpus: That the program has.
        seeds: Of the first launches, one for each; empty for seeds in a row.

    Attributes:
        made: Those that were made, in the order in which they began.
        order_matters: Whether another schedule of one may give another result without a race.
        order: In which work is done that nothing orders; no launch is interleaved with another
            but in the usual one.
        beside_others: The first kernel of those that were launched while other work was pending
            that nothing orders with it.
        stuck: Whether one never ends.
    """

    def __init__(
        self, check: int, seed: int, sms: int, limit_s: float, gpu_sms: int = 0,
        gpus: int = 1, seeds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self._seeds = [*reversed(seeds)]
        self.made: list[Launched] = []
        self.order_matters = False
        self.check = check
        self._seed, self._sms, self._limit_s, self._gpu_sms = seed, sms, limit_s, gpu_sms
        self._forms: Counter[tuple[Any, ...]] = Counter()
        self._held: defaultdict[tuple[Any, ...], set[bytes]] = defaultdict(set)
        self._more: Counter[tuple[Any, ...]] = Counter()
        self._modules: dict[int, PtxModule] = {}
        self._begun: list[tuple[str, int]] = []  # that wait for others: kernel and GPU
        self._beside = LaunchesBeside()
        # Of single schedules every other one, so that its seed tells.
        alone = check == 1 and len(seeds) <= 1
        self._interleaves = alone and gpus == 1 and interleaves(seed)
        self.order = WorkOrder.USUAL
        if alone and not self._interleaves:
            self.order = WorkOrder.NEWEST_FIRST if interleaves(seed) else WorkOrder.OLDEST_FIRST
        self.beside_others = ""
        self.stuck = False
        self._seeks_another = False
        self._known: list[range] = []  # the seeds of which each has left the same bytes
        self._in_turn = gpus == 1

    def make(
        self, module: PtxModule, kernel: str, grid: Sequence[int], block: Sequence[int] | None,
        args: Sequence[Any], *, form: tuple[Any, ...], words: str, assumed: Sequence[str] = (),
        **options: Any,
    ) -> PtxReport:  # fmt: skip
        """Make one.

        Args:
            form: Equal for launches that are checked as one; words: the same for rows.
            assumed: What it rests on by the way it is launched.
            options: Others of :meth:`PtxModule.launch`.

        Raises:
            PtxError: If it waits for another, on another GPU, that waits for it.
        """
        order_matters = module.order_matters(kernel)
        self.order_matters |= order_matters
        most = self.check if order_matters else min(self.check, _SAME_IN_ALL)
        # What it finds in memory differs: flags and counters that the last one has left.
        check: int = min(most, max(1, self.check // _FEWER ** self._forms[form]))
        self._forms[form] += 1

        def further(held: bytes, switches: int) -> int:
            """What a launch finds in its flags, counters and queues decides what it does."""
            more = 0
            if held not in self._held[form]:
                self._held[form].add(held)
                more = min(most - check, _FURTHER * self.check - self._more[form])
                self._more[form] += more
            return min(check + more, max(_SAME_IN_ALL, _SWITCHES * self.check // (switches or 1)))

        self._modules[id(module)] = module
        if self._seeds:
            self._seed = self._seeds.pop()
        seed, place = self._seed, len(self.made)  # others may be made while this one is
        self._in_turn &= not self._begun
        gpu = runtime(shipped_blocks()).gpu
        joins = bool(self._begun) and self._begun[-1][1] == gpu
        self._begun.append((kernel, gpu))
        try:
            report = module.launch(
                kernel, grid, block, args, check=check, seed=seed,
                emulation=Emulation(sms=self._sms), limit_s=self._limit_s, gpu_sms=self._gpu_sms,
                further=further, beside=self._beside, joins=joins, **options,
            )  # fmt: skip
        finally:
            self._begun.pop()
            if not self._begun:
                self._beside.end()
        if self._begun and any(each.what == resource_name("global") for each in report.waits):
            both = f"{source_name(self._begun[-1][0])} and {source_name(kernel)}"
            raise PtxError(
                f"kernels {both} each wait for a word: kernels on two GPUs that answer each other "
                "are not modelled",
                "check a run in which one of them needs no answer",
            )
        report = replace(report, assumptions=(*report.assumptions, *assumed))
        self.stuck |= report.never_ends
        self.made.insert(place, Launched(words, seed, report))
        every = range(seed, seed + report.schedules) if order_matters else _ANY_SEED
        self._known.insert(place, every if report.leaves_the_same else range(0))
        self._seed += report.schedules
        return report

    def note_last(self, found: Iterable[Finding]) -> None:
        """Keep what may explain that the program fails with the launch that was made last."""
        made = self.made[-1]
        known = {memory_named(each) for each in made.report.notes}
        new = (each for each in found if each.buffer not in known)
        notes = (PtxFinding(each, "error", (), (), made.seed) for each in new)
        report = replace(made.report, notes=(*made.report.notes, *notes))
        self.made[-1] = replace(made, report=report)

    def known_runs(self, seeds: Iterable[int]) -> dict[int, float]:
        """In which schedules main would do again what it has done, with a schedule of each launch
        from such a seed on, as each launch leaves the same bytes again; and how long a run takes.

        To be asked of a host that is one thread, before :meth:`note_program`.
        """
        if not self._in_turn or len(self._known) != len(self.made):
            return {}
        seconds = sum(each.report.seconds / each.report.schedules for each in self.made)
        return {
            seed: seconds for seed in seeds
            if all(seed + at in each for at, each in enumerate(self._known))
        }  # fmt: skip

    def note_program(self, raw: Mapping[str, Any]) -> None:
        """Keep what the runtime has found of a program where no launch was, as a row of its own
        if :meth:`explain` leaves something there."""
        self.made.append(self.outside(raw))

    def outside(self, raw: Mapping[str, Any]) -> Launched:
        """That row."""
        symbols = host_symbols()
        found, notes = (each_once(of(raw, symbols, self._seed)) for of in (found_in, notes_in))
        report = PtxReport(PROGRAM, found, (), 1, 0.0, notes=notes)
        return Launched("copies and the host", self._seed, report)

    def explain(self, wrong: bool, stale: Collection[str], *, late: bool) -> None:
        """Have what explains how launches or the program have ended come first.

        Args:
            wrong: Whether main has failed, and nothing else tells why.
            stale: Names of memory in which nothing but words that launches have left makes it fail.
            late: Whether main ends well once no strong store is seen late.
        """
        modules = self._modules.values()
        goes_wrong = wrong or any(each.report.errors for each in self.made)
        for at, made in enumerate(self.made):
            report, kernel = made.report, made.report.kernel
            errors = {each.finding.kind for each in report.errors}
            fails = wrong or errors == {"exit"}
            reads = [
                each.early_reads(kernel) for each in modules if fails and kernel in each.kernels
            ]
            notes = [
                each for each in report.notes
                if _explains(each, errors, wrong, stale) and (late or not _is_late(each))
            ]  # fmt: skip
            notes += [each for each in report.notes if goes_wrong and _decides(each)]
            reading = [each for each in report.notes if each.finding.kind == "unwritten"]
            notes += () if goes_wrong else (replace(each, severity="noted") for each in reading)
            first = dict.fromkeys((*(() if stale else itertools.chain(*reads)), *notes))
            self._put_first(at, first)
        self._drop_empty_row()

    def put_inputs_first(self) -> None:
        """Have what the host changes while a copy may read it come before what follows from it."""
        last = self.made[-1]
        if any(each.finding.text.endswith(_CHANGED) for each in last.report.errors):
            self.made.insert(0, self.made.pop())

    def put_hangs_last(self) -> None:
        """Have hangs come behind what was found in other launches, which they may wait for."""

        def hangs(each: Launched) -> bool:
            return {error.finding.kind for error in each.report.errors} == {"hang"}

        if any(each.report.errors and not hangs(each) for each in self.made):
            self.made.sort(key=hangs)

    def explain_failure(self, raw: Mapping[str, Any]) -> None:
        """Have reads of what nothing has written be findings: nothing else tells why it fails.

        Args:
            raw: As :meth:`note_program` takes it.
        """
        self.note_program(raw)
        for at, made in enumerate(self.made):
            notes = made.report.notes
            self._put_first(at, (each for each in notes if each.finding.kind == "unwritten"))
        self._drop_empty_row()

    def put_decisions_first(self) -> None:
        """Have atomics on what nothing has written, by which a kernel goes on, come first."""
        for at, made in enumerate(self.made):
            self._put_first(at, filter(_decides, made.report.notes))

    def _put_first(self, at: int, first: Iterable[PtxFinding]) -> None:
        self.made[at] = self.made[at].with_first(first)

    def _drop_empty_row(self) -> None:
        """The row of the program, the last one, if nothing is left there."""
        if not self.made[-1].report.findings:
            self.made.pop()

    @property
    def _notes(self) -> Iterator[PtxFinding]:
        return (each for made in self.made for each in made.report.notes)

    @property
    def reads_new_memory(self) -> bool:
        """Whether launches have read memory that nothing has written."""
        return any(each.finding.kind == "unwritten" for each in self._notes)

    @property
    def sees_late_stores(self) -> bool:
        """Whether a strong load of a launch has given what was there before a store."""
        return any(map(_is_late, self._notes))

    @property
    def can_be_repeated(self) -> bool:
        """Whether no launch has had answers of the host, which may come at other times again."""
        return not any(HOST_IN_TURN in each.report.assumptions for each in self.made)

    @property
    def memory_with_leftovers(self) -> list[str]:
        """Where launches have found words that an earlier one of their kernel had changed."""
        left = (memory_named(each) for each in self._notes if each.finding.kind == "not-reset")
        return [*dict.fromkeys(left)]

    @property
    def seeds_of_errors(self) -> list[int]:
        """The seed of each launch: of the schedule of its first error, or of the last one."""
        last = [(each.report.errors, each.seed + each.report.schedules - 1) for each in self.made]
        return [errors[0].seed if errors else seed for errors, seed in last]

    def note_no_kernel(self) -> None:
        """Keep a row of a program that has no kernels: its calls were made, and ended well."""
        report = PtxReport(PROGRAM, (), (), 1, 0.0)
        self.made.append(Launched("no kernel", self._seed, report))

    def name_allocations(self, allocated_at: Callable[[int], Mapping[str, Any] | None]) -> None:
        """Have findings say by which variable and line of the program an allocation was asked for.

        Args:
            allocated_at: Library and offset of the call, by the allocation's number.
        """
        places = functools.cache(lambda number: host_place(allocated_at(number)))

        def named(match: re.Match[str]) -> str:
            number = int(match[1])
            place = places(number)
            if place is None:
                return match[0]
            every = itertools.takewhile(lambda each: places(each) or each <= number, _NUMBERS)
            made = [each for each in every if places(each) == place]
            variables = _ALLOCATED.findall(place.code)
            if number in made and len(variables) == len(made):
                return f"{variables[made.index(number)]} (allocated at {place})"
            return f"allocation {number} of {place}{match[2]}"

        def in_words(text: str) -> str:
            return re.sub(r"\b_Z\w+", lambda of: short_name(of[0]), _NUMBERED.sub(named, text))

        def with_names(each: PtxFinding) -> PtxFinding:
            text, thing = map(in_words, (each.finding.text, each.finding.object))
            return replace(each, finding=replace(each.finding, text=text, object=thing))

        for at, made in enumerate(self.made):
            found = tuple(map(with_names, made.report.findings))
            waits = tuple(replace(each, state=in_words(each.state)) for each in made.report.waits)
            self.made[at] = replace(made, report=replace(made.report, findings=found, waits=waits))

    def make_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> PtxReport:
        """Make one of CUDA's host code, which may touch ``memory``."""
        kernel = launch.kernel
        may_interleave = self._may_interleave(launch)
        self._in_turn &= launch.others is not None and not launch.others(0)
        if self._seeks_another and may_interleave:
            launch.module.leave_to(
                self._beside, kernel, launch.grid, launch.block, launch.args, memory=memory,
                **launch.options,
            )  # fmt: skip
            report = PtxReport(kernel, (), (), 1, 0.0)
            self.made.append(Launched(launch.words, self._seed, report))
            return report
        if may_interleave and not self._begun and launch.others is not None and launch.others(0):
            self.beside_others = self.beside_others or short_name(kernel)
            self._seeks_another = self._interleaves
            self._begun.append((kernel, runtime(shipped_blocks()).gpu))
            while self._seeks_another and not self._beside and launch.others(0):
                launch.others(1)
            self._begun.pop()
            self._seeks_another = False
        return self.make(
            launch.module, kernel, launch.grid, launch.block, launch.args,
            form=launch.form, words=launch.words, assumed=launch.assumed, memory=memory,
            others=launch.others, neighbours=launch.neighbours, **launch.options,
        )  # fmt: skip

    def _may_interleave(self, launch: CudaLaunch) -> bool:
        module, kernel, ctas = launch.module, launch.kernel, math.prod(launch.grid)
        if ctas > _MOST_BESIDE or not module.order_matters(kernel):
            return False
        room = module.residency(
            kernel, math.prod(launch.block), module.shape(kernel).static_shared + launch.shared,
            math.prod(launch.cluster), self._gpu_sms, registers=False,
        )  # fmt: skip
        return room is None or 2 * ctas <= room.ctas  # two of them fit


def interleaves(seed: int) -> bool:
    """Whether launches that nothing orders run beside each other in a single schedule."""
    return seed % 2 == 1


def _decides(note: PtxFinding) -> bool:
    """Whether a kernel goes on by what an atomic gives of memory that holds nothing."""
    return note.finding.kind == "unwritten" and note.finding.text.startswith("atom ")


def _is_late(note: PtxFinding) -> bool:
    return note.finding.text.startswith("a strong load gives")


def _explains(note: PtxFinding, errors: set[str], wrong: bool, stale: Collection[str]) -> bool:
    """Whether a note is the cause; ``errors``: what else its launch has, the others of
    :meth:`CheckedLaunches.explain`."""
    if stale or note.finding.kind == "not-reset":
        return note.finding.kind == "not-reset" and memory_named(note) in stale
    text = note.finding.text
    hangs = (
        errors == {"hang"} and not text.startswith("a load") and "that the host reads" not in text
    )
    return wrong or hangs
