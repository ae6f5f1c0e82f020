"""CUDA programs on the emulator: nvcc's host code runs as it is, the kernels by their PTX.

The program is built as a library whose ``main`` is called here, or is an executable that is loaded
as one. In place of the CUDA runtime and the driver it gets :file:`cuda_runtime/`, which hands
launches on.
"""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.emulator.runtime import runtime
from kernelbench.emulator.settings import require_arch
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.hosts.built_program import LoadedProgram, is_executable, loadable_copy
from kernelbench.ptx.hosts.checked_launches import CheckedLaunches
from kernelbench.ptx.hosts.cuda_build import ProgramSources, is_one_thread, program_library
from kernelbench.ptx.hosts.cuda_host import CudaHost, cuda_host
from kernelbench.ptx.hosts.cuda_launch import FAILED, CudaLaunch, cuda_status
from kernelbench.ptx.hosts.repeated_runs import (
    AT_ONCE,
    CHECKED,
    FEW_SMS,
    LARGE,
    MORE_SMS,
    MOST_RUNS,
    NOT_LATE,
    SCALED,
    SET_BACK,
    SMS_TIMES,
    RepeatedRuns,
    fails_beside_only,
    fails_on_more_sms,
    needs_new_memory,
    not_waited_for,
    seed_of_failure,
    stale_memory,
    wrong_size,
)
from kernelbench.ptx.report import Launched
from kernelbench.ptx.script_symbols import sources_are_in

#: What to do about sources without a ``main``.
NEEDS_MAIN = "name the source that has it, too, or write one that launches the kernels"

#: Bytes that are large numbers, and no NaN, in every format of 8, 16, 32 and 64 bits.
LARGE_BYTES = 0x5B


class CudaProgram:
    """A program that is built and can be run once, in a process of its own.

    Args:
        program: What it is built from; or an executable.
        arch: What nvcc compiles for: 90 for ``sm_90a``.
        check: Schedules of each launch of a new form.
        sms: SMs of the emulated GPU, as the program is told.
        gpu_sms: SMs on which what has to reside together does; 0 for those of the arch's GPU.
        gpus: GPUs that the program has.

    Attributes:
        unnoticed: After :meth:`run`, which launch was refused without the program asking for
            errors; empty if none was.
        failed_call: After it, calls of the runtime that have failed; empty if none has.
        not_waited_for: After it, what main goes on too early behind, if nothing else tells why it
            fails; empty if that is not why.
        wrong_size: After it, likewise, which copy has too few bytes.
        goes_on: After it, where main was when the process was told to end; empty if it has ended.
        lacks_gpus: After it, whether it has asked how many GPUs there are, and was told of one.
        asks_sms: After it, whether it has asked how many SMs a GPU has.
        needs_new_memory: After a run without an error, whether main fails once memory that nothing
            has written holds other values.
        fails_on_sms: After such a run of a program that has asked for SMs, on how many more of
            them it fails; 0 if it does not.
        fails_with: After a run without an error, the seed of one whose main fails; None if main
            returns 0 in other schedules, too.
        fails_beside: Where it fails only as nothing orders a kernel with other work, that kernel.

    Raises:
        UsageError: If it does not compile, or calls what the runtime here lacks.
        EnvironmentProblem: Without nvcc or a host compiler.
    """

    check = True

    def __init__(
        self, program: ProgramSources, arch: int, *, check: int, seed: int, sms: int,
        limit_s: float, gpu_sms: int = 0, gpus: int = 1,
    ) -> None:  # fmt: skip
        require_arch(arch)
        self.arch, self.sms, self.gpu_sms, self.gpus = arch, sms, gpu_sms, gpus
        self.unnoticed = self.failed_call = self.not_waited_for = self.fails_beside = ""
        self.wrong_size = self.goes_on = ""
        self.lacks_gpus = self.asks_sms = self.needs_new_memory = False
        self.fails_on_sms = 0
        self.limit_s = limit_s
        self._program = program
        self._loaded: LoadedProgram | None = None
        self._file = program.file
        self._seed, self._setting = seed, (sms, limit_s, gpu_sms, gpus)
        self._launches = CheckedLaunches(check, seed, *self._setting)
        self.fails_with: int | None = None
        sources_are_in([Path.cwd(), *(each.parent for each in (program.file, *program.others))])
        built = is_executable(program.file)
        self._library = None if built else program_library(program, arch)

    @property
    def launches(self) -> list[Launched]:
        """Those that were made, in order."""
        return self._launches.made

    def run(self, arguments: Sequence[str] = ()) -> int:
        """Call ``main``; its status.

        Raises:
            UsageError: Without a main, for PTX that is not supported, for a launch that does not
                fit its kernel, and for what it asks of the runtime that is not there.
        """
        host = cuda_host()
        words = [each.encode() for each in (self._program.command, *arguments)]
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
            host.of_other_gpus = Path(folder)
            host.library.kb_cudart_keep_texts(folder.encode())
            with host.driven_by(self, self._file):
                main = self._main(host, Path(folder), words)
            runs = RepeatedRuns(lambda seeds, how: self._again(host, main, words, seeds, how))
            try:
                status = self._run_main(host, main, words)
                self.unnoticed, self.failed_call = host.unnoticed(), host.failed_calls()
                self.lacks_gpus = self.gpus == 1 and host.asked_for_gpus
                self.asks_sms, self.goes_on = host.asked_for_sms, host.left_at
                self._explain_what_was_found(host, runs, status, began_s)
            finally:
                runs.end()
                host.library.kb_cudart_keep_texts(b"")
        return status

    def _explain_what_was_found(
        self, host: CudaHost, runs: RepeatedRuns, status: int, began_s: float
    ) -> None:
        made = self._launches
        kept = made.seeds_of_errors
        every = range(self._seed, self._seed + MOST_RUNS)
        known = made.known_runs(every) if self._library and is_one_thread(self._library) else {}
        made.note_program(runtime(shipped_blocks()).program_report())
        if self.goes_on:
            made.name_allocations(host.allocated_at)
            return
        found = self._finds_errors
        clean = status == 0 and not found and made.can_be_repeated
        if clean and made.order_matters:
            self.fails_with = seed_of_failure(runs, kept, self._seed, began_s, known)
            if self.fails_with is not None:
                kept = [self.fails_with]
                beside = made.beside_others if self.gpus == 1 else ""
                alone = beside and fails_beside_only(runs, self.fails_with, began_s)
                self.fails_beside = beside if alone else ""
        if clean and self.fails_with is None and made.reads_new_memory:
            self.needs_new_memory = needs_new_memory(runs, kept, began_s)
        failed = status != 0 or self.fails_with is not None or self.needs_new_memory
        few = self.asks_sms and self.sms <= FEW_SMS and bool(self.launches)
        if few and clean and not failed and fails_on_more_sms(runs, self._seed, began_s):
            self.fails_on_sms = self.sms * SMS_TIMES
        stale = stale_memory(runs, kept, began_s, made.memory_with_leftovers)
        unexplained = failed and not found and not self.failed_call
        late = unexplained and made.sees_late_stores
        late = late and runs.status(kept, time.monotonic() - began_s, NOT_LATE) == 0
        made.explain(unexplained, stale, late=late)
        made.name_allocations(host.allocated_at)
        if status and not self._finds_errors and made.can_be_repeated:
            at = not_waited_for(runs, kept, began_s, host.asked(0)[0])
            self.not_waited_for = "" if at is None else host.asked(at)[1]
            sites = {} if self.not_waited_for else host.sized_sites()
            if sized := wrong_size(runs, kept, began_s, sites):
                self.wrong_size = f"{sites[sized[0]]} has {sized[1]} times its bytes"
        if not self.launches and not host.has_kernels:
            made.note_no_kernel()
        if self.launches:
            made.put_inputs_first()
            made.put_hangs_last()

    def _run_main(self, host: CudaHost, main: Any, words: list[bytes]) -> int:
        ordered = host.ordered() if self.check else contextlib.nullcontext()
        host.done_in(self._launches.order)
        with host.driven_by(self, self._file), ordered:
            return host.run_main(main, words)

    def _again(
        self, host: CudaHost, main: Any, words: list[bytes], seeds: Sequence[int], how: str
    ) -> int:
        """Main's status with one schedule of each launch, or 1 if what is found counts."""
        if how == MORE_SMS:
            self.sms *= SMS_TIMES
        self._launches = CheckedLaunches(1, seeds[-1], self.sms, *self._setting[1:], seeds)
        if how.startswith(AT_ONCE):
            host.at_once(int(how.removeprefix(AT_ONCE)))
        if how.startswith(SCALED):
            host.scale(*map(int, how.removeprefix(SCALED).split("x")))
        if how == LARGE:
            host.fill(LARGE_BYTES)
        if how == NOT_LATE:
            runtime(shipped_blocks()).see_stores_at_once()
        if how.startswith(SET_BACK):
            runtime(shipped_blocks()).set_back(how.removeprefix(SET_BACK))
        status = self._run_main(host, main, words)
        return status or int(how.startswith((CHECKED, SET_BACK, MORE_SMS)) and self._finds_errors)

    @property
    def _finds_errors(self) -> bool:
        return any(each.report.errors for each in self.launches)

    def _main(self, host: CudaHost, folder: Path, words: list[bytes]) -> Any:
        """Where its ``main`` is."""
        if self._library is None:
            copy = loadable_copy(self._file, folder)
            self._loaded = LoadedProgram(copy, host.library, host.load(copy.file))
            self._loaded.initialise(words)
            return self._loaded.main
        program = host.load(self._library)
        if not hasattr(program, "main"):
            raise UsageError(f"{self._file}: it has no main", NEEDS_MAIN)
        return ctypes.cast(program.main, ctypes.c_void_p)

    def run_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> int:
        """A launch: of a form not seen before in all schedules, else in one."""
        if self._launches.stuck:
            return FAILED  # as on a GPU, nothing of the program runs after it
        report = self._launches.make_cuda(launch, memory)
        return cuda_status(report)
