"""``kernelbench.ptx.load``: a PTX file whose kernels run on the emulator."""

from __future__ import annotations

import ctypes
import functools
import math
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelbench.base.demangle import source_name
from kernelbench.emulator.assumptions import (
    BESIDE,
    ELECT_LOWEST,
    HOST_IN_TURN,
    INTERLEAVED,
    TOGETHER,
)
from kernelbench.emulator.findings import EmulatorReport, resolve_report
from kernelbench.emulator.runtime import Runtime, runtime
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.machine.occupancy import CtaNeeds
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.accumulators import reads_before_wait, reads_of_nothing
from kernelbench.ptx.arguments import (
    KernelShape,
    LaunchForm,
    is_array,
    kernel_shape,
    launch_form,
    memory_of,
)
from kernelbench.ptx.errors import PtxError, UnsupportedPtxError
from kernelbench.ptx.library import Translated, library_of, load_library, translated
from kernelbench.ptx.lowering.translator import global_variables
from kernelbench.ptx.order_matters import alone_in_clusters, order_matters
from kernelbench.ptx.report import PtxFinding, PtxReport, each_once, found_in, notes_in
from kernelbench.ptx.residency import Ctas, Residency, kept_out, registers_of, residency
from kernelbench.ptx.sources import PtxSymbols

#: Schedules of ``check=True``.
DEFAULT_SCHEDULES = 20
#: A module with more is built kernel by kernel: g++ takes some ten seconds for so many.
_MANY_STATEMENTS = 4_000
_MESSAGE_BYTES = 1024
_IN_TURN = (1 << 64) - 1  # of ``others``
_EACH_OTHER = "words that the other writes, in turn, which is not emulated"
_FROM_OUTSIDE = "check it with the words that it waits for written before its launch"
#: Of launches that others have run beside, or the host.
_FROM_ELSEWHERE = {BESIDE, INTERLEAVED, HOST_IN_TURN}
_GIVES_UP = ("brkpt", "trap", "assertion failed")


def load_ptx(
    file: str | Path,
    *,
    text: str | None = None,
    symbols: type[PtxSymbols] = PtxSymbols,
    apart: Path | None = None,
    whole: bool = False,
) -> PtxModule:
    """A PTX file, translated for the emulator. Nothing is compiled before the first launch.

    Args:
        file: Its path; with ``text`` only what it is called.
        text: The PTX itself, if it is in no file.
        symbols: How places are named.
        apart: A folder for a copy of its library, with variables of its own; None to share those
            of other modules of the same PTX.
        whole: Whether its library is asked for. If not, one with many statements has a library for
            each kernel that is launched.

    Raises:
        PtxError: If the file cannot be read, or is not PTX, with its line.
        UnsupportedPtxError: If each of its kernels has instructions that are not supported. Where
            some have none, the launch of another one raises it.
    """
    path = Path(file)
    if text is None:
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise PtxError(f"{path}: cannot be read: {error}") from error
    # NVRTC and who saves what it gives end the text with a zero.
    return PtxModule(translated(path.name, text.rstrip("\0")), path, symbols, apart, whole=whole)


class PtxModule:
    """A translated PTX file.

    Attributes:
        kernels: The names of its kernels.
        text: The PTX.
    """

    def __init__(
        self, source: Translated, path: Path, symbols: type[PtxSymbols] = PtxSymbols,
        apart: Path | None = None, *, whole: bool = False,
    ) -> None:  # fmt: skip
        self.kernels, self.text = tuple(source.translation.layouts), source.text
        self._source = source
        self._symbols = symbols(source.module, source.translation.layouts, path)
        self._apart = apart
        count = sum(len(each.statements) for each in source.module.functions.values())
        self._parted = not whole and count > _MANY_STATEMENTS and source.translation.can_be_parted
        self._libraries: dict[tuple[bool, str], ctypes.CDLL] = {}
        self._lowest: set[str] = set()
        self._order_matters: dict[str, bool] = {}

    def launch(
        self,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[Any] = (),
        *,
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        check: bool | int = False,
        seed: int = 0,
        memory: Mapping[str, Any] | None = None,
        emulation: Emulation = DEFAULT_EMULATION,
        gpu_sms: int = 0,
        limit_s: float = 0.0,
        further: Callable[[bytes, int], int] | None = None,
        others: Callable[[int], int] | None = None,
        neighbours: Callable[[], Sequence[Ctas]] = tuple,
        beside: LaunchesBeside | None = None,
        joins: bool = False,
    ) -> PtxReport:
        """Run a kernel.

        Args:
            kernel: Its name.
            grid: CTAs, along x or along each dimension.
            block: Threads of a CTA, likewise; by default the kernel's ``.reqntid``.
            args: One for each parameter: a tensor of the CPU or a numpy array (its address), an
                integer, a float, bytes, or a ctypes structure.
            shared: Bytes of dynamic shared memory.
            cluster: CTAs of a cluster, along x or along each dimension; by default the kernel's
                ``.reqnctapercluster``.
            cooperative: Whether all CTAs are resident at once.
            check: Whether to look for faults, and in how many schedules. Arrays have their first
                values before each, and those that the last one gave them afterwards.
            seed: Of the first schedule.
            memory: Arrays that the kernel reaches by other ways than its arguments, by name.
            gpu_sms: SMs of the GPU on which CTAs that wait for each other have to reside; 0 for
                those of the GPU that the PTX's target stands for.
            limit_s: Seconds after which a schedule is ended, as a hang; 0 for never.
            further: Asked after the first schedule how many it should be, by what the words at
                which CTAs wait or count held before it, and how often its threads were switched.
            others: How many operations are pending that nothing orders behind this launch; the
                first so many are done, or, for :data:`_IN_TURN`, one by one while it waits. A
                launch that waits for a value in memory may wait for theirs.
            neighbours: Which launches may take SMs beside this one: those, and its dependents.
            beside: Launches whose CTAs are interleaved with its own: those that wait for it in
                turn; there may be some once ``others`` are done.
            joins: Whether it is made for another one that waits for it, and is left to that one,
                in ``beside``, if it waits as well.

        Raises:
            PtxError: For a launch that does not fit the kernel.
            EnvironmentProblem: If there is no compiler.
        """
        form = self._form(kernel, grid, block, args, shared, cluster, cooperative)
        count = DEFAULT_SCHEDULES if check is True else max(int(check), 1)
        running = runtime(shipped_blocks())  # before the kernel's library, which it has symbols of
        one = self._one_launch(kernel, form, args, memory or {}, bool(check))
        run = _Schedules(running, one, emulation, bool(check), limit_s)
        if beside:
            run = run.interleaved(beside, ())
        run.make([seed], self._symbols)
        if run.host_has_answered:
            return run.report(kernel)
        if run.hangs_at_word and others is not None and others(0):
            room = self._room(kernel, form, gpu_sms)
            if room is not None and room.ctas <= math.prod(form.grid):
                all_of_it = run.together(())
                all_of_it.make([seed], self._symbols)
                if all_of_it.ctas_at_words >= room.ctas:
                    return all_of_it.report(kernel, _full(form, room))
            ctas, threads = math.prod(form.grid), math.prod(form.block)
            taken = self.taken(kernel, ctas, threads, form.shared_bytes)
            if words := kept_out(self._source.module.target, gpu_sms, taken, neighbours()):
                all_of_it = run.together(())
                all_of_it.make([seed], self._symbols)
                if all_of_it.hangs_at_word and all_of_it.last.triggered:
                    return all_of_it.report(kernel, words)
            # One first: what comes behind may change again what the launch waits for.
            many = 1
            while run.hangs_at_word and others(0):
                again = run.beside(functools.partial(others, many))
                if again is None:
                    others(_IN_TURN)
                    run = run.undone()
                    run.make([seed], self._symbols)
                    if run.host_has_answered:
                        return run.report(kernel)
                    name = source_name(kernel)
                    raise PtxError(f"{name}: it and streams wait for {_EACH_OTHER}", _FROM_OUTSIDE)
                run, many = again, 2 * many
                if beside:
                    run = run.interleaved(beside, (INTERLEAVED,))
                run.make([seed], self._symbols)
        if further is not None:
            count = further(run.words_before(), run.last.switches)
        run.make(range(seed + 1, seed + count), self._symbols)
        if run.needs_ctas_together:
            room = self._room(kernel, form, gpu_sms)
            if room is not None and room.ctas < math.prod(form.grid):
                return run.report(kernel, _too_many(form, room))
            if room is not None:
                run = run.with_room(math.prod(form.grid))
                run.make(range(seed, seed + count), self._symbols)
            if run.needs_ctas_together:
                run = run.together(() if room is not None else (TOGETHER,))
                run.make(range(seed, seed + count), self._symbols)
        if run.hangs_at_word and joins and beside is not None:
            run.leave_to(beside)
            return PtxReport(kernel, (), (), 1, 0.0)
        return run.report(kernel)

    def leave_to(
        self, beside: LaunchesBeside, kernel: str, grid: Sequence[int],
        block: Sequence[int] | None, args: Sequence[Any], *, shared: int,
        cluster: Sequence[int] | None, cooperative: bool, memory: Mapping[str, Any],
    ) -> None:  # fmt: skip
        """Have a launch, of the operation of the program that begins now, be made with the next
        one of ``beside``. The others are those of :meth:`launch`; it is checked."""
        form = self._form(kernel, grid, block, args, shared, cluster, cooperative)
        running = runtime(shipped_blocks())
        beside.add(running, self._one_launch(kernel, form, args, memory, True))

    def residency(
        self, kernel: str, threads: int, shared_bytes: int, cluster: int, sms: int = 0,
        *, registers: bool = True,
    ) -> Residency | None:  # fmt: skip
        """How many CTAs of a kernel a GPU holds; None if the GPU is not known.

        Args:
            threads: Of a CTA; shared_bytes: static and dynamic; cluster: CTAs of one.
            sms: Of the GPU; 0 for those of the one that the PTX's target stands for.
            registers: Whether they limit it; to ask ptxas for them takes time.
        """
        return residency(
            self._source.module.target, self._source.text if registers else "", kernel,
            threads=threads, shared_bytes=shared_bytes, cluster=cluster, sms=sms,
        )  # fmt: skip

    def taken(self, kernel: str, ctas: int, threads: int, shared_bytes: int) -> Ctas:
        """What CTAs of a kernel take of SMs: as :meth:`residency`."""
        registers = registers_of(self._source.text, self._source.module.target).get(kernel, 0)
        needs = CtaNeeds(registers, threads, shared_bytes)
        return Ctas(source_name(kernel), ctas, needs)

    def _room(self, kernel: str, form: LaunchForm, sms: int) -> Residency | None:
        threads, cluster = math.prod(form.block), math.prod(form.cluster)
        return self.residency(kernel, threads, form.shared_bytes, cluster, sms)

    def launch_once(
        self,
        running: Runtime,
        kernel: str,
        grid: int | Sequence[int],
        block: int | Sequence[int] | None = None,
        args: Sequence[Any] = (),
        *,
        shared: int = 0,
        cluster: int | Sequence[int] | None = None,
        cooperative: bool = False,
        check: bool = False,
        memory: Mapping[str, Any] | None = None,
    ) -> str:
        """Run a kernel once, with the options that the runtime has; it keeps what is found.

        Args:
            running: The runtime that is loaded. The others are those of :meth:`launch`.
            check: Whether the runtime checks.

        Returns:
            Why the launch ended early, in one line; empty if it did not.

        Raises:
            PtxError: For a launch that does not fit the kernel.
            EnvironmentProblem: If there is no compiler.
        """
        form = self._form(kernel, grid, block, args, shared, cluster, cooperative)
        return self._one_launch(kernel, form, args, memory or {}, check).made(running)

    def has_opcode(self, kernel: str, opcode: str) -> bool:
        """Whether a kernel has such an instruction, or calls functions of a module that has."""
        functions = self._source.module.functions
        own = {statement.opcode for statement in functions[kernel].statements}
        if opcode in own or not any(each.startswith("call") for each in own):
            return opcode in own
        return any(opcode == each.opcode for of in functions.values() for each in of.statements)

    def order_matters(self, kernel: str) -> bool:
        """As :func:`~kernelbench.ptx.order_matters.order_matters` has it."""
        if kernel not in self._order_matters:
            self._order_matters[kernel] = order_matters(self._source.module, kernel)
        return self._order_matters[kernel]

    def alone_in_clusters(self, kernel: str) -> bool:
        """As :func:`~kernelbench.ptx.order_matters.alone_in_clusters` has it."""
        return alone_in_clusters(self._source.module, kernel)

    def waits_for_ahead(self, kernel: str) -> bool:
        """Whether a kernel waits for the launch ahead of it, if it may begin before that ends."""
        return self.has_opcode(kernel, "griddepcontrol.wait")

    def early_reads(self, kernel: str) -> tuple[PtxFinding, ...]:
        """What of a kernel that fails may read accumulators too early, or before they are set."""
        function = self._source.module.functions[kernel]
        raw = {"findings": reads_before_wait(function) + reads_of_nothing(function)}
        return each_once(found_in(raw, self._symbols, 0))

    @property
    def takes_from_heap(self) -> bool:
        """Whether its functions may call ``malloc``."""
        malloc = self._source.module.functions.get("malloc")
        return malloc is not None and not malloc.defined

    def library(self, check: bool) -> ctypes.CDLL:
        """The library of a module loaded ``whole``, the checker's if ``check``, built on demand."""
        return self._library(check, "")

    def library_path(self, check: bool) -> Path:
        """Where that library is; it is built if it is not in the cache."""
        return self._path(check, "")

    def _library(self, check: bool, kernel: str) -> ctypes.CDLL:
        """Of all kernels or, of those that are built one by one, of one, or of the variables."""
        key = check, kernel if self._parted else ""
        if key not in self._libraries:
            path = self._path(*key)
            if self._apart is not None:
                path = shutil.copyfile(path, Path(tempfile.mkdtemp(dir=self._apart)) / path.name)
            library = self._libraries[key] = load_library(path)
            self._symbols.owns(str(path))
            if key[1]:
                bytes_of = self.variables(check).values()
                library.kb_ptx_bind((ctypes.c_void_p * len(bytes_of))(
                    *(each.ctypes.data for each in bytes_of)
                ))  # fmt: skip
        return self._libraries[key]

    def _path(self, check: bool, kernel: str) -> Path:
        translation = self._source.translation
        part = translation.source_of(kernel) if kernel else ""
        if self._parted and not kernel:
            part = translation.source_of_variables
        return library_of(self._source, shipped_blocks(), check=check, part=part)

    def shape(self, kernel: str) -> KernelShape:
        """What a launch of a kernel has to fit; PtxError if there is no such kernel."""
        if kernel not in self.kernels:
            raise PtxError(f"{self._source.module.name} has no kernel {kernel!r}")
        function = self._source.module.functions[kernel]
        return kernel_shape(function, self._source.translation.layouts[kernel])

    def require(self, *kernels: str) -> None:
        """Raise now what launches of kernels would: UnsupportedPtxError with all obstacles."""
        source = self._source
        for each in kernels:
            if found := source.translation.refused.get(each):
                raise UnsupportedPtxError(source.module.name, found, source_name(each))

    @property
    def entries(self) -> Mapping[str, str]:
        """The library's C function for each kernel that is supported."""
        return self._source.translation.entries

    @property
    def symbols(self) -> PtxSymbols:
        """What names the places of its kernels."""
        return self._symbols

    def _form(
        self, kernel: str, grid: int | Sequence[int], block: int | Sequence[int] | None,
        args: Sequence[Any], shared: int, cluster: int | Sequence[int] | None, cooperative: bool,
    ) -> LaunchForm:  # fmt: skip
        if kernel not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise PtxError(
                f"{self._source.module.name} has no kernel {kernel!r}", f"it has {known}"
            )
        self.require(kernel)
        function = self._source.module.functions[kernel]
        layout = self._source.translation.layouts[kernel]
        return launch_form(function, layout, grid, block, args, shared, cluster, cooperative)

    def _one_launch(
        self, kernel: str, form: LaunchForm, args: Sequence[Any], memory: Mapping[str, Any],
        check: bool,
    ) -> _OneLaunch:  # fmt: skip
        arrays = {f"argument {at}": each for at, each in enumerate(args) if is_array(each)}
        library = self._library(check, kernel)
        every = {**arrays, **memory, **self.variables(check)}
        registers = self._registers(kernel) if check else 0
        entry = self._source.translation.entries[kernel]
        alone = check and self.alone_in_clusters(kernel)
        return _OneLaunch(library, entry, form, every, self._lowest, registers, alone)

    def _registers(self, kernel: str) -> int:
        """Of a thread at first, where the kernel asks for more; 0 if that is not known."""
        if not self.has_opcode(kernel, "setmaxnreg.inc.sync.aligned.u32"):
            return 0
        return registers_of(self._source.text, self._source.module.target).get(kernel, 0)

    def variables(self, check: bool) -> dict[str, Any]:
        """Bytes by name of global and constant memory, of the checker's library if ``check``."""
        import numpy as np

        found = {}
        for at, symbol in enumerate(global_variables(self._source.module)):
            # Without variables nothing is built before a launch: a program may make none.
            address = getattr(self.library(check), f"kb_ptx_variable_{at}")
            address.restype = ctypes.c_void_p
            memory = (ctypes.c_uint8 * symbol.size).from_address(address())
            found[symbol.name] = np.ctypeslib.as_array(memory)
        return found


class LaunchesBeside:
    """Launches of a program that are not made by themselves, but with those they run beside."""

    def __init__(self) -> None:
        self._running: Runtime | None = None
        self.launches: list[_OneLaunch] = []

    def __bool__(self) -> bool:
        return bool(self.launches)

    def add(self, running: Runtime, launch: _OneLaunch) -> None:
        """Have one, of the operation of the program that begins now, be made with what follows."""
        form, self._running = launch.form, running
        running.put_beside(
            launch.code, form.grid, form.block, form.cluster, form.shared_bytes, form.cooperative,
            form.parameters,
        )  # fmt: skip
        self.launches.append(launch)

    def end(self) -> None:
        """What follows is made by itself again."""
        if self._running is not None:
            self._running.put_none_beside()
        self.launches.clear()


@dataclass(frozen=True)
class _OneLaunch:
    """A launch in form, with all memory that it may touch."""

    library: ctypes.CDLL
    entry: str
    form: LaunchForm
    arrays: Mapping[str, Any]
    #: Entries of kernels that hang, or stop by their own check, where another lane than the lowest
    #: is elected.
    lowest: set[str]
    registers: int = 0
    alone: bool = False  #: As :meth:`PtxModule.alone_in_clusters` has it.
    written: set[str] = field(default_factory=set)  # by checked launches

    @property
    def code(self) -> int:
        """The address of the kernel's function."""
        function = getattr(self.library, self.entry)
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    def made(self, running: Runtime) -> str:
        """Make it; why it ended early, or nothing."""
        for name, array in self.arrays.items():
            address, size = memory_of(array)
            running.register(address, size, name, writable=True)
        running.registers(self.registers)
        try:
            return self._call()
        finally:
            begins = ((name, memory_of(array)[0]) for name, array in self.arrays.items())
            self.written.update(name for name, begin in begins if running.wrote(begin))
            if not running.queueing:
                running.unregister_all()

    def _call(self) -> str:
        form, message = self.form, ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = self.library.kb_ptx_launch(
            getattr(self.library, self.entry),
            (ctypes.c_uint32 * 3)(*form.grid),
            (ctypes.c_uint32 * 3)(*form.block),
            (ctypes.c_uint32 * 3)(*form.cluster),
            ctypes.c_uint32(form.shared_bytes),
            ctypes.c_int(form.cooperative),
            form.parameters,
            ctypes.c_size_t(len(form.parameters)),
            message,
            ctypes.c_size_t(_MESSAGE_BYTES),
        )
        return " ".join(message.value.decode(errors="replace").split()) if failed else ""


class _Schedules:
    """Launches of one form, one after another, each from the arrays' first values."""

    def __init__(
        self, running: Runtime, launch: _OneLaunch, emulation: Emulation, check: bool,
        limit_s: float,
    ) -> None:  # fmt: skip
        self.last = EmulatorReport()
        self._running = running
        self._launch, self._emulation = launch, _with_room(emulation, launch.form)
        self._check, self._limit_s = check, limit_s
        self._first = {name: _bytes_in(each) for name, each in launch.arrays.items()}
        self._found: list[PtxFinding] = []
        self._notes: list[PtxFinding] = []
        self._made, self._seconds, self._error = 0, 0.0, ""
        self._assumptions: dict[str, None] = {}
        self._left: dict[str, bytes] = {}  # by the first one in what it has written
        self._leaves_the_same = launch.alone

    def make(self, seeds: Iterable[int], symbols: PtxSymbols) -> None:
        """One launch for each seed, up to the first that hangs or does not end in its time."""
        for seed in seeds:
            if self.last.waits or any(each.kind == "timeout" for each in self.last.findings):
                return  # it ends like this in most schedules, and takes long
            self._once(seed, symbols)
            if self.host_has_answered:
                return

    def words_before(self) -> bytes:
        """What the words by which CTAs wait or count held before the launch, wherever they are."""
        words, held = self._running.sync_words(), []
        for name, array in self._launch.arrays.items():
            begin, size = memory_of(array)
            inside = words[bisect_left(words, begin) : bisect_left(words, begin + size)]
            held += [self._first[name][each - begin : each - begin + 4] for each in inside]
        return b"".join(held)

    @property
    def host_has_answered(self) -> bool:
        """Whether the host has gone on in the middle, which it does once."""
        return HOST_IN_TURN in self._assumptions

    @property
    def needs_ctas_together(self) -> bool:
        """Whether the last one hung at a word that a CTA which had not started might have set."""
        return self.hangs_at_word and not self._launch.form.cooperative

    @property
    def hangs_at_word(self) -> bool:
        """Whether in the last one something waits for a value in global memory."""
        return self.ctas_at_words > 0

    @property
    def ctas_at_words(self) -> int:
        """How many CTAs do."""
        return self.last.ctas_at_words

    def with_room(self, ctas: int) -> _Schedules:
        """The same launch where so many CTAs may start beside each other, one that is waited for
        first."""
        emulation = replace(self._emulation, sms=max(self._emulation.sms, ctas))
        return self._again(emulation=emulation)

    def beside(self, others: Callable[[], int]) -> _Schedules | None:
        """The same launch once operations that may run beside it are done; None if those that are
        there wait for what it has written."""
        done: list[int] = []
        run = self._again((BESIDE,), meanwhile=lambda: done.append(others()))
        return run if any(done) else None

    def undone(self) -> _Schedules:
        """The same launch, from its beginning."""
        return self._again()

    def leave_to(self, beside: LaunchesBeside) -> None:
        """Undo it, and have it be made with what runs beside it."""
        self._restore()
        beside.add(self._running, self._launch)

    def interleaved(self, beside: LaunchesBeside, assumed: Iterable[str]) -> _Schedules:
        """The same launch with the CTAs of others, all of them resident.

        Args:
            assumed: As of :meth:`together`.
        """
        launch = self._launch
        arrays = dict(launch.arrays)
        for each in beside.launches:
            arrays = {**each.arrays, **arrays}
            launch.written.update(each.written)
        ctas = sum(math.prod(each.form.grid) for each in (launch, *beside.launches))
        form = replace(launch.form, cooperative=True)
        return self._again(
            assumed, launch=replace(launch, form=form, arrays=arrays),
            emulation=replace(self._emulation, sms=max(self._emulation.sms, ctas)),
        )  # fmt: skip

    def together(self, assumed: Iterable[str]) -> _Schedules:
        """The same launch with all CTAs resident at once, as a GPU has those that fit on it.

        PTX promises that of cooperative launches only (PTX ISA 9.1, 2.2).

        Args:
            assumed: What it rests on by that.
        """
        launch = replace(self._launch, form=replace(self._launch.form, cooperative=True))
        return self._again(assumed, launch=launch)

    def _again(
        self, assumed: Iterable[str] = (), *, launch: _OneLaunch | None = None,
        emulation: Emulation | None = None, meanwhile: Callable[[], object] = lambda: None,
    ) -> _Schedules:  # fmt: skip
        """A new set of schedules, from what the arrays held first and ``meanwhile`` has changed."""
        self._restore()
        meanwhile()
        run = _Schedules(
            self._running, launch or self._launch, emulation or self._emulation, self._check,
            self._limit_s,
        )  # fmt: skip
        run._assumptions |= dict.fromkeys(assumed)
        return run

    def _restore(self) -> None:
        # Threads of the host may write meanwhile what no kernel does.
        for name, array in self._launch.arrays.items():
            if self._check and name not in self._launch.written:
                continue
            address, size = memory_of(array)
            ctypes.memmove(address, self._first[name], size)

    def _once(self, seed: int, symbols: PtxSymbols) -> None:
        entry, lowest = self._launch.entry, self._launch.lowest
        if self._made == 1 and self._leaves_the_same:
            self._left = {
                each: _bytes_in(self._launch.arrays[each]) for each in self._launch.written
            }
        error, raw = self._tried(seed, first=not self._made)
        if _stuck(raw) and raw["another_elected"] and HOST_IN_TURN not in raw["assumptions"]:
            lowest.add(entry)
            again = self._tried(seed, first=False)
            if _stuck(again[1]):
                lowest.discard(entry)
            else:
                error, raw = again
        self._error = error or self._error
        self._leaves_the_same = self._leaves_the_same and entry not in lowest and self._left_again()
        self.last = resolve_report(raw, symbols)
        self._found += found_in(raw, symbols, seed)
        self._notes += notes_in(raw, symbols, seed)
        self._made += 1
        self._seconds += self.last.seconds
        self._assumptions |= dict.fromkeys(self.last.assumptions)
        self._assumptions |= dict.fromkeys([ELECT_LOWEST] if entry in lowest else [])

    def _left_again(self) -> bool:
        """Whether what was written holds what it held behind the first one."""
        arrays = self._launch.arrays
        return not self._made or all(
            _bytes_in(arrays[each]) == self._left.get(each, self._first[each])
            for each in self._launch.written
        )

    def _tried(self, seed: int, *, first: bool) -> tuple[str, dict[str, Any]]:
        """Why it ended early, and what the runtime reports."""
        if not first:
            self._restore()
        self._running.configure(
            self._emulation, check=self._check, seed=seed, limit_s=self._limit_s,
            elect_lowest=self._launch.entry in self._launch.lowest,
        )  # fmt: skip
        self._running.print_from_kernels(first)
        try:
            return self._launch.made(self._running), self._running.report()
        finally:
            self._running.print_from_kernels(True)

    def report(self, kernel: str, of_hangs: str = "") -> PtxReport:
        """All of them; ``of_hangs`` is said of hangs beside their own text."""
        found = tuple(_saying(each, of_hangs) for each in each_once(self._found))
        same = self._leaves_the_same and _FROM_ELSEWHERE.isdisjoint(self._assumptions)
        return PtxReport(
            kernel, found, self.last.waits, self._made, self._seconds, self._error,
            tuple(self._assumptions), each_once(self._notes), same,
        )  # fmt: skip


def _stuck(raw: Mapping[str, Any]) -> bool:
    """Whether it hung, or the kernel itself gave up."""
    return bool(raw["waits"]) or any(
        each["class"] == "crash" and each["text"].startswith(_GIVES_UP) for each in raw["findings"]
    )


def _too_many(form: LaunchForm, room: Residency) -> str:
    return f"of {math.prod(form.grid)} CTAs that may wait for each other {room.words}"


def _full(form: LaunchForm, room: Residency) -> str:
    return (
        f"its CTAs fill the GPU, so that work on other streams cannot begin: of "
        f"{math.prod(form.grid)} {room.words}"
    )


def _saying(found: PtxFinding, of_hangs: str) -> PtxFinding:
    finding = found.finding
    if not of_hangs or finding.kind != "hang":
        return found
    return replace(found, finding=replace(finding, text=f"{finding.text}; {of_hangs}"))


def _with_room(emulation: Emulation, form: LaunchForm) -> Emulation:
    """With as many SMs as a cooperative grid needs: an SM of the emulator holds one CTA of it."""
    ctas = math.prod(form.grid)
    return replace(emulation, sms=max(emulation.sms, ctas)) if form.cooperative else emulation


def _bytes_in(array: Any) -> bytes:
    return ctypes.string_at(*memory_of(array))
