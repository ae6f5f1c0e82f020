"""The CPU emulator as Python sees it: building its parts, loading them, its options and report.

A step runs in the emulator as a shared library that calls the emulator's runtime, itself a shared
library that a wheel brings or that is built once per machine. ``check`` builds a step so that every
load and store calls the runtime too (the hooks of ``-fsanitize=thread``, which the runtime defines)
and counts branches.

Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler, prebuilt
from kernelbench.build.compiler import Recipe
from kernelbench.emulator.decisions import Decision
from kernelbench.emulator.settings import DEFAULT_EMULATION, ROUNDINGS, Emulation
from kernelbench.machine.toolchain import cpu_facts, cpu_level, emulator_compiler

#: What debug information calls the folders of a step; see :mod:`kernelbench.emulator.symbols`.
STEP_NAME, LINEAGE_NAME, COMMON_NAME = "/kb/step", "/kb/lineage", "/kb/common"

# What the runtime calls is its own: no call goes by a table.
_RUNTIME_FLAGS = ("-std=c++20", "-O3", "-g1", "-pthread", "-Wall", "-fno-semantic-interposition")
# gnu-unique symbols would be one for all libraries of a process, even for two builds of one step.
_STEP_FLAGS = ("-x", "c++", "-std=c++20", "-g", "-fvisibility=hidden", "-pthread")
#: With where variables lie g++ takes half as long again: only a debugger asks.
WITHOUT_LOCALS = ["-fno-var-tracking", "-fno-var-tracking-assignments"]
# -O1 takes g++ up to 1.6 times as long, -O2 three times: most of what runs is the runtime's.
_PLAIN_FLAGS = ("-Og",)
_CHECK_FLAGS = ("-Og", "-fsanitize=thread", "-fsanitize=bounds")
_TIMED_FLAGS = ("-O3", "-fsanitize=thread", "-fsanitize-coverage=trace-pc", "-DKB_EMU_TIMED")
# As nvcc does: loops of a known length are unrolled, and nothing becomes a vector of the CPU's.
_UNROLLED = (
    "-fno-tree-vectorize", "--param=max-completely-peel-times=256",
    "--param=max-completely-peeled-insns=20000",
)  # fmt: skip
_COUNT_FLAGS = ("--coverage", "-fprofile-update=atomic")
# The hooks must stay undefined: the runtime has them, and libtsan must not come in.
_LINK_FLAGS = ("-pthread", "-Wl,-Bsymbolic")
_LARGE_BYTES = 32 << 10  # of a step's sources
_LIBRARIES = ("-lstdc++", "-lm", "-lpthread", "-lgcc_s", "-lgcc", "-lc")


#: Kinds of a program's operations, by ``StreamOperation::Kind``.
OPERATIONS = {"launch": 1, "transfer": 2}

_MESSAGE_BYTES = 1024
_SYNC_WORDS = 4096
#: Of a record in timing.hpp.
TIMED_BYTES = 40


class EmulatorOptions(ctypes.Structure):
    """``kb::emu::Options``."""

    _fields_ = (
        ("sms", ctypes.c_uint32),
        ("os_threads", ctypes.c_uint32),
        ("check", ctypes.c_uint32),
        ("mma_rounding", ctypes.c_uint32),
        ("broken_fact", ctypes.c_uint32),
        ("max_findings", ctypes.c_uint32),
        ("limit_ms", ctypes.c_uint32),
        ("elect_lowest", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
    )


class _Decision(ctypes.Structure):
    """``kb::emu::Decision``."""

    _fields_ = (
        ("launch", ctypes.c_uint32),
        ("cluster", ctypes.c_uint32),
        ("who", ctypes.c_int32),
        ("number", ctypes.c_uint32),
        ("value", ctypes.c_uint32),
    )


def runtime_recipe(common: Path, level: str) -> Recipe:
    """How the emulator's runtime is built.

    Args:
        common: The folder of the building blocks (``kernels/common``).
        level: One of :data:`~kernelbench.machine.toolchain.CPU_LEVELS`, or ``native``.
    """
    backend = common / "backend" / "emu"
    sources = sorted((backend / "runtime").glob("*.cpp"))
    if not sources:
        raise EnvironmentProblem(f"{backend}/runtime has no sources: the emulator is not there")
    return Recipe(
        "emulator runtime",
        emulator_compiler(),
        sources,
        (*_RUNTIME_FLAGS, f"-march={level}"),
        (common, backend),
        _LINK_FLAGS,
        cpu_facts() if level == "native" else (),
        {common: COMMON_NAME},
        backend / "runtime" / "precompiled.hpp",
    )


def runtime_library(common: Path) -> Path:
    """The emulator's runtime: what the wheel brought of these sources, else built on first use.

    Args:
        common: The folder of the building blocks (``kernels/common``).
    """
    recipe = runtime_recipe(common, cpu_level())
    return prebuilt.library(recipe) or compiler.build(recipe)


def step_library(
    name: str,
    source: Path,
    common: Path,
    *,
    check: bool,
    count: bool = False,
    timed: bool = False,
    include_dirs: Sequence[Path] = (),
) -> Path:
    """A step (or test) built for the emulator.

    Args:
        name: What it is, for messages.
        source: Its ``.cu`` file.
        common: The folder of the building blocks, with ``backend/emu``.
        check: Whether for the checker.
        count: Whether to count branches, see :mod:`kernelbench.emulator.branches`; with g++
            only. Such a library writes its counters when the process ends, too.
        timed: Whether for :meth:`Runtime.time`, which counts loads and stores.
        include_dirs: Searched before ``common``.
    """
    with_compiler = emulator_compiler()
    plain = _TIMED_FLAGS if timed else _PLAIN_FLAGS
    code = _CHECK_FLAGS if check else plain
    flags = [*_STEP_FLAGS, *code]
    link = [*_LINK_FLAGS]
    if with_compiler.kind == "g++":
        of_gcc = ["-fno-gnu-unique", *WITHOUT_LOCALS]
        flags += [*of_gcc, *(_UNROLLED if timed else ())]
        if count:
            flags += _COUNT_FLAGS
            # They are the library's own: each writes and clears the counts of one library only.
            link += ["-Wl,-u,__gcov_dump,-u,__gcov_reset", "-lgcov"]
        # Most of g++'s time goes into machine code, which as many processes as there are cores make
        # side by side; g++ starts them by make. A small step is built as soon by one.
        files = [source, *source.parent.glob("*.cuh")]
        is_large = sum(file.stat().st_size for file in files if file.is_file()) > _LARGE_BYTES
        if is_large and not timed and shutil.which("make") is not None:
            flags.append("-flto")
            link = [*code, *of_gcc, "-g", "-flto=auto", "-nodefaultlibs", *link, *_LIBRARIES]
    names = {source.parent: STEP_NAME, common: COMMON_NAME}
    if include_dirs:
        names |= {folder: LINEAGE_NAME for folder in include_dirs if folder != common}
    return compiler.compile_shared(
        f"{name} ({'emulator, checked' if check else 'emulator'})",
        [source],
        flags,
        include_dirs=(*include_dirs, common, common / "backend" / "emu"),
        compiler=with_compiler,
        link_flags=link,
        names=names,
        precompiled=common / "backend" / "emu" / "precompiled.hpp",
    )


class Runtime:
    """The loaded runtime. There is one per process, since it holds the state of the emulation."""

    def __init__(self, library: Path) -> None:
        try:
            # Global: libraries of steps find what they call in it.
            self._library = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
            self._declare()
        except (OSError, AttributeError) as error:
            raise EnvironmentProblem(f"the emulator's runtime cannot be loaded: {error}") from error
        #: Whether calls are queued; what a kernel may touch then stays registered.
        self.queueing = False
        self._stream = 0

    @property
    def stream(self) -> int:
        """Handle of the stream that calls are made on; work on two of them has no order."""
        return self._stream

    @stream.setter
    def stream(self, handle: int) -> None:
        self._stream = handle
        self._library.kb_emu_call_stream(handle)

    def _declare(self) -> None:
        lib = self._library
        lib.kb_emu_configure.argtypes = [ctypes.POINTER(EmulatorOptions)]
        lib.kb_emu_configure.restype = None
        lib.kb_emu_register.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
        ]  # fmt: skip
        lib.kb_emu_register.restype = None
        lib.kb_emu_unregister_all.argtypes = []
        lib.kb_emu_unregister_all.restype = None
        lib.kb_emu_queue.argtypes = []
        lib.kb_emu_queue.restype = None
        lib.kb_emu_call_stream.argtypes = [ctypes.c_void_p]
        lib.kb_emu_call_stream.restype = None
        lib.kb_emu_record.argtypes = []
        lib.kb_emu_record.restype = None
        for name in ("kb_emu_end_recording", "kb_emu_replay"):
            getattr(lib, name).argtypes = [ctypes.c_char_p, ctypes.c_uint64]
            getattr(lib, name).restype = ctypes.c_int
        lib.kb_emu_finish.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        lib.kb_emu_finish.restype = ctypes.c_int
        lib.kb_emu_keep_decisions.argtypes = []
        lib.kb_emu_keep_decisions.restype = None
        lib.kb_emu_give_decisions.argtypes = [ctypes.POINTER(_Decision), ctypes.c_uint64]
        lib.kb_emu_give_decisions.restype = None
        lib.kb_emu_decisions.argtypes = [
            ctypes.POINTER(_Decision), ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64),
        ]  # fmt: skip
        lib.kb_emu_decisions.restype = ctypes.c_uint64
        lib.kb_emu_trace.argtypes = []
        lib.kb_emu_trace.restype = None
        lib.kb_emu_trace_events.argtypes = []
        lib.kb_emu_trace_events.restype = ctypes.c_char_p
        lib.kb_emu_sync_words.restype = ctypes.c_uint64
        lib.kb_emu_time.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64]
        lib.kb_emu_time.restype = None
        lib.kb_emu_timed.argtypes = [ctypes.POINTER(ctypes.c_uint64)]
        lib.kb_emu_timed.restype = ctypes.c_void_p
        lib.kb_emu_timed_paths.argtypes = [ctypes.POINTER(ctypes.c_uint64)]
        lib.kb_emu_timed_paths.restype = ctypes.c_void_p
        lib.kb_emu_dropped.argtypes = [ctypes.c_void_p, ctypes.c_uint32]
        lib.kb_emu_dropped.restype = ctypes.c_uint64
        lib.kb_emu_program_report.argtypes = []
        lib.kb_emu_program_report.restype = ctypes.c_char_p
        lib.kb_emu_report.argtypes = []
        lib.kb_emu_report.restype = ctypes.c_char_p

    def give_heap(self, address: int, size: int) -> None:
        """Have ``malloc`` in kernels take from memory of the host's, in bytes."""
        self._library.kb_emu_heap(ctypes.c_void_p(address), ctypes.c_uint64(size))

    def print_from_kernels(self, shown: bool) -> None:
        """Whether ``printf`` in kernels prints from now on."""
        ctypes.c_uint32.in_dll(self._library, "kb_emu_silent").value = int(not shown)

    def configure(
        self,
        emulation: Emulation = DEFAULT_EMULATION,
        *,
        check: bool = False,
        seed: int = 0,
        max_findings: int = 64,
        broken_fact: int = 0,
        os_threads: int = 0,
        limit_s: float = 0.0,
        elect_lowest: bool = False,
    ) -> None:
        """Set the options of the launches to come and forget what was found before.

        Args:
            check: Whether the checker is on; sensible with libraries built for it.
            seed: Of the schedules.
            broken_fact: A fact of the hardware to break, see ``facts.hpp``; 0 for none.
            os_threads: 0 for one per core.
            limit_s: Seconds after which a launch is ended, as a hang; 0 for never.
            elect_lowest: Whether ``elect.sync`` elects the lowest lane in every schedule.
        """
        options = EmulatorOptions(
            sms=emulation.sms,
            os_threads=os_threads,
            check=int(check),
            mma_rounding=ROUNDINGS.index(emulation.mma_rounding),
            broken_fact=broken_fact,
            max_findings=max_findings,
            limit_ms=round(limit_s * 1000),
            elect_lowest=int(elect_lowest),
            seed=seed & (2**64 - 1),
        )
        self._library.kb_emu_configure(ctypes.byref(options))

    def decide(self, decisions: Sequence[Decision] | None) -> None:
        """Of the launches to come until :meth:`configure`: take these decisions.

        They have to run on one OS thread.

        Args:
            decisions: The usual choice is made elsewhere. None: the seed draws, and what it draws
                is kept for :meth:`decisions`.
        """
        if decisions is None:
            self._library.kb_emu_keep_decisions()
            return
        given = (_Decision * len(decisions))(*(_Decision(*each) for each in decisions))
        self._library.kb_emu_give_decisions(given, len(decisions))

    def decisions(self) -> tuple[list[Decision], int]:
        """The decisions that were kept, in order, and how many were made in all."""
        made = ctypes.c_uint64()
        count = self._library.kb_emu_decisions(None, 0, ctypes.byref(made))
        kept = (_Decision * count)()
        self._library.kb_emu_decisions(kept, count, ctypes.byref(made))
        return [(d.launch, d.cluster, d.who, d.number, d.value) for d in kept], made.value

    def trace(self) -> None:
        """Keep the events of the launches to come until :meth:`configure`; on one OS thread."""
        self._library.kb_emu_trace()

    def trace_events(self) -> dict[str, Any]:
        """The events that were kept, see :mod:`kernelbench.emulator.trace`."""
        events: dict[str, Any] = json.loads(self._library.kb_emu_trace_events())
        return events

    def time(self, code: int = 0, weights: bytes = b"") -> None:
        """Keep records for a prediction of the launches to come until :meth:`configure`.

        Args:
            code: Where the step's library is loaded.
            weights: By offset in it, two bytes each: instructions of the block that begins there.
        """
        self._library.kb_emu_time(ctypes.c_void_p(code), weights, len(weights) // 2)

    def timed(self) -> bytes:
        """The records that were kept, see ``timing.hpp``."""
        count = ctypes.c_uint64()
        at = self._library.kb_emu_timed(ctypes.byref(count))
        return ctypes.string_at(at, count.value * TIMED_BYTES) if count.value else b""

    def timed_paths(self) -> bytes:
        """The paths of code that the records name, see ``timing.cpp``."""
        count = ctypes.c_uint64()
        at = self._library.kb_emu_timed_paths(ctypes.byref(count))
        return ctypes.string_at(at, count.value * 4) if count.value else b""

    def register(
        self, address: int, size: int, name: str, *, writable: bool, fresh: bool = False
    ) -> None:
        """Say which memory kernels may access: ``size`` bytes at ``address``.

        Args:
            fresh: Whether it holds nothing that a kernel may read before it has written it.
        """
        if size:
            self._library.kb_emu_register(address, size, name.encode(), int(writable), int(fresh))

    def set_back(self, name: str) -> None:
        """From now on launches find words as they were before earlier ones changed them, in memory
        of that name or in all."""
        self._library.kb_emu_set_back(name.encode())

    def see_stores_at_once(self) -> None:
        """From now on no strong store of another CTA is seen late."""
        self._library.kb_emu_stores_seen_at_once()

    def registers(self, of_a_thread: int) -> None:
        """Say how many a thread of the launches to come has at first; 0 if that is not known."""
        self._library.kb_emu_registers(ctypes.c_uint32(of_a_thread))

    def put_beside(
        self, kernel: int, grid: Sequence[int], block: Sequence[int], cluster: Sequence[int],
        shared_bytes: int, cooperative: bool, parameters: bytes,
    ) -> None:  # fmt: skip
        """Have the CTAs of a translated kernel run beside those of launches to come.

        Args:
            kernel: The address of its function.
            grid, block, cluster: Extents along x, y and z.
        """
        extents = ((ctypes.c_uint32 * 3)(*each) for each in (grid, block, cluster))
        self._library.kb_emu_beside(
            ctypes.c_void_p(kernel), *extents, ctypes.c_uint32(shared_bytes),
            ctypes.c_int(cooperative), parameters, ctypes.c_uint64(len(parameters)),
        )  # fmt: skip

    @property
    def gpu(self) -> int:
        """Of the operation of a program that begins now."""
        return int(self._library.kb_emu_gpu())

    def put_none_beside(self) -> None:
        """Launches to come are made by themselves again."""
        self._library.kb_emu_beside(None, None, None, None, 0, 0, None, ctypes.c_uint64(0))

    def sync_words(self) -> list[int]:
        """Addresses in global memory at which CTAs have waited or counted since
        :meth:`configure`, in order."""
        found = (ctypes.c_uint64 * _SYNC_WORDS)()
        return list(found[: self._library.kb_emu_sync_words(found, ctypes.c_uint64(len(found)))])

    def wrote(self, address: int) -> bool:
        """Whether a checked launch since :meth:`configure` wrote to what is registered there."""
        return bool(self._library.kb_emu_wrote(ctypes.c_void_p(address)))

    def unregister_all(self) -> None:
        """Forget all registered memory."""
        self._library.kb_emu_unregister_all()

    def queue(self) -> None:
        """From now on what calls put on their stream waits for :meth:`finish`."""
        self.queueing = True
        self._library.kb_emu_queue()

    def finish(self) -> str:
        """Do what is queued, and forget all registered memory; why it failed, or nothing."""
        try:
            return self._told(self._library.kb_emu_finish)
        finally:
            self.queueing = False
            self.unregister_all()

    def record(self) -> None:
        """From now on calls are recorded on a stream of their own, until :meth:`end_recording`."""
        self.queueing = True
        self.stream = 1
        self._library.kb_emu_record()

    def end_recording(self) -> str:
        """The call that ended the recording before, or nothing."""
        self.stream = 0
        return self._told(self._library.kb_emu_end_recording)

    def replay(self) -> str:
        """Do what was recorded, and forget all registered memory; why it failed, or nothing."""
        try:
            return self._told(self._library.kb_emu_replay)
        finally:
            self.forget_recording()

    def forget_recording(self) -> None:
        """Forget all memory that was registered for it."""
        self.queueing = False
        self.unregister_all()

    @staticmethod
    def _told(function: Callable[[Any, int], int]) -> str:
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        failed = function(message, _MESSAGE_BYTES)
        return " ".join(message.value.decode(errors="replace").split()) if failed else ""

    def report(self) -> dict[str, Any]:
        """What was found since the last :meth:`configure`."""
        text: bytes = self._library.kb_emu_report()
        found: dict[str, Any] = json.loads(text)
        return found

    def program(self, begins: bool) -> None:
        """A program begins whose operations are put into order (operations.cpp), or has ended."""
        self._library.kb_emu_program(int(begins))

    def operation(
        self, number: int, line: int, kind: str, name: str, where: str, ahead: int,
        after: Sequence[int],
    ) -> None:  # fmt: skip
        """The program asks for an operation.

        Args:
            number: Of this one, above 0; line: of its stream, above 0.
            kind: One of :data:`OPERATIONS`.
            where: What is said of it behind its name.
            ahead: The launch whose end it need not wait for, or 0.
            after: Those that it comes after, beside what the host has waited for.
        """
        self._library.kb_emu_operation(
            ctypes.c_uint64(number), line, OPERATIONS[kind], name.encode(), where.encode(), None,
            ctypes.c_uint64(ahead), (ctypes.c_uint64 * len(after))(*after),
            ctypes.c_uint64(len(after)), 0,
        )  # fmt: skip

    @contextlib.contextmanager
    def during(self, number: int) -> Iterator[None]:
        """What is done meanwhile is an operation of the program's."""
        self._library.kb_emu_begin_operation(ctypes.c_uint64(number))
        try:
            yield
        finally:
            self._library.kb_emu_end_operation()

    def host_knows(self, number: int) -> None:
        """The host has waited for an operation."""
        self._library.kb_emu_host_knows(ctypes.c_uint64(number))

    def touched(
        self, memory: tuple[int, int], name: str, part: tuple[int, int], *, writing: bool
    ) -> None:
        """The operation that is done accesses part of an allocation; addresses and sizes."""
        (begin, bytes_of), (at, count) = memory, part
        self._library.kb_emu_touched(
            ctypes.c_void_p(begin), ctypes.c_uint64(bytes_of), name.encode(), ctypes.c_void_p(at),
            ctypes.c_uint64(count), int(writing),
        )  # fmt: skip

    def fresh(self, address: int) -> None:
        """An allocation of the program's holds nothing yet."""
        self._library.kb_emu_fresh(ctypes.c_void_p(address))

    def freed(self, address: int, size: int, name: str) -> None:
        """An allocation of the program's is there no longer."""
        self._library.kb_emu_freed(ctypes.c_void_p(address), ctypes.c_uint64(size), name.encode())

    def dropped(self, address: int, line: int) -> int:
        """Before memory is freed: a number if another stream's operations may still access it."""
        return int(self._library.kb_emu_dropped(ctypes.c_void_p(address), line))

    def reused(self, number: int, name: str) -> None:
        """The operation that is done is the first to use memory that was dropped."""
        self._library.kb_emu_reused(ctypes.c_uint64(number), name.encode())

    def program_report(self) -> dict[str, Any]:
        """What was found of the last program where no launch was, as :meth:`report` has it."""
        found: dict[str, Any] = json.loads(self._library.kb_emu_program_report())
        return found


@functools.cache
def runtime(common: Path) -> Runtime:
    """The runtime of a folder of building blocks, built and loaded once."""
    return Runtime(runtime_library(common))


def load_emulated(library: Path) -> ctypes.CDLL:
    """Load a step's library; its runtime must be loaded."""
    try:
        return ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise EnvironmentProblem(f"{library.name} cannot be loaded: {error}") from error
