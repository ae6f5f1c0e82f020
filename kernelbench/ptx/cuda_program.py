"""CUDA programs on the emulator: nvcc's host code runs as it is, the kernels by their PTX.

The program is built as a library whose ``main`` is called here. In place of the CUDA runtime and
the driver it is linked with :file:`cuda_runtime/`, which hands launches on.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.emulator.runtime import runtime
from kernelbench.emulator.settings import SHARED_BYTES, Emulation
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.cuda_build import cuda_runtime_library, program_library, program_ptx
from kernelbench.ptx.demangle import source_name
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.report import Launched
from kernelbench.ptx.script_symbols import ScriptSymbols

_FAILED = 719  # cudaErrorLaunchFailure
_Triple = ctypes.POINTER(ctypes.c_uint)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_char_p, _Triple, _Triple, _Triple, ctypes.c_uint64,
    ctypes.c_int, ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)
_MISSING = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)


class CudaProgram:
    """A program that is built and can be run once, in a process of its own.

    Args:
        arch: What nvcc compiles for: 90 for ``sm_90a``.
        check: Schedules of each launch of a new form.
        sms: SMs of the emulated GPU.

    Attributes:
        launches: Those that were made, in order.
        unnoticed: After :meth:`run`, which launch was refused without the program asking for
            errors; empty if none was.

    Raises:
        UsageError: If it does not compile, calls what the runtime here lacks, or has PTX that is
            not supported.
        EnvironmentProblem: Without nvcc or a host compiler.
    """

    def __init__(
        self, file: Path, arch: int, *, check: int, seed: int, sms: int, limit_s: float
    ) -> None:
        if arch not in SHARED_BYTES:
            raise UsageError(f"arch {arch}", f"known: {', '.join(map(str, SHARED_BYTES))}")
        self.launches: list[Launched] = []
        self._check, self._seed, self._limit_s = check, seed, limit_s
        self.unnoticed = ""
        self._sms = sms
        self._file, self._arch = file, arch
        self._memory: dict[int, int] = {}
        self._forms: set[tuple[Any, ...]] = set()
        self._error: PtxError | EnvironmentProblem | None = None
        self._runtime = cuda_runtime_library()
        self._library = program_library(file, arch, self._runtime)
        self._modules = [
            load_ptx(file.with_suffix(".ptx"), text=text, symbols=ScriptSymbols)
            for text in program_ptx(file, self._library)
        ]

    def run(self, arguments: Sequence[str] = ()) -> int:
        """Call ``main``; its status.

        Raises:
            UsageError: Without a main, for a launch that does not fit its kernel, and for what it
                asks of the runtime that is not there.
        """
        runtime(shipped_blocks())  # the translated kernels' libraries find what they call in it
        library = ctypes.CDLL(str(self._runtime), mode=ctypes.RTLD_GLOBAL)
        # Kept, since the library has their addresses only.
        self._callbacks = (
            _LAUNCH(self._launched), _MEMORY(self._memory_changed), _MISSING(self._missing),
            _LOAD(self._loaded),
        )  # fmt: skip
        library.kb_cudart_start(*self._callbacks, self._sms, self._arch, SHARED_BYTES[self._arch])
        for number in range(len(self._modules)):
            self._describe(library, number)
        program = ctypes.CDLL(str(self._library))
        words = [b"program", *(each.encode() for each in arguments), None]
        vector = (ctypes.c_char_p * len(words))(*words)
        if not hasattr(program, "main"):
            raise UsageError(f"{self._file}: it has no main", "check takes programs")
        main = ctypes.cast(program.main, ctypes.c_void_p)
        status = int(library.kb_cudart_run(main, len(words) - 1, vector))
        library.kb_cudart_unnoticed.restype = ctypes.c_char_p
        name, _, rest = library.kb_cudart_unnoticed().decode().partition(" ")
        self.unnoticed = f"{source_name(name)} {rest}" if name else ""
        if self._error is not None:
            raise self._error
        return status

    def _describe(self, library: ctypes.CDLL, number: int) -> None:
        """Tell the runtime of a module's kernels and variables. The program's own are number 0."""
        module = self._modules[number]
        for kernel in module.kernels:
            shape = module.shape(kernel)
            count = len(shape.sizes)
            library.kb_cudart_kernel(
                number, kernel.encode(), count, (ctypes.c_uint32 * count)(*shape.offsets),
                (ctypes.c_uint32 * count)(*shape.sizes), shape.static_shared, shape.most_threads,
            )  # fmt: skip
        for name, bytes_of in module.variables(check=True).items():
            address = ctypes.c_void_p(bytes_of.ctypes.data)
            size = ctypes.c_uint64(bytes_of.nbytes)
            library.kb_cudart_variable(number, name.encode(), address, size)

    def _memory_changed(self, address: int, size: int) -> None:
        if size:
            self._memory[address] = size
        else:
            self._memory.pop(address, None)

    def _missing(self, what: bytes) -> None:
        self._error = self._error or PtxError(
            f"{self._file}: asks for {what.decode()}, which the CUDA runtime here does not have",
            "docs/ptx.md, CUDA programs, lists what it has",
        )

    def _loaded(self, text: bytes) -> int:
        """The number of a module that the program loads, or -1."""
        try:
            name = self._file.with_suffix(f".{len(self._modules)}.ptx")
            self._modules.append(load_ptx(name, text=text.decode(), symbols=ScriptSymbols))
            library = ctypes.CDLL(str(self._runtime))
            self._describe(library, len(self._modules) - 1)
        except (PtxError, EnvironmentProblem) as error:
            self._error = self._error or error
            return -1
        return len(self._modules) - 1

    def _launched(
        self, module: int, name: bytes, grid: Any, block: Any, cluster: Any, shared: int,
        cooperative: int, arguments: Any,
    ) -> int:  # fmt: skip
        """A status of CUDA: nothing may be raised through the program."""
        if self._error is not None:
            return _FAILED
        try:
            return self._launch(
                self._modules[module], name.decode(), tuple(grid[:3]), tuple(block[:3]),
                tuple(cluster[:3]), shared, bool(cooperative), arguments,
            )  # fmt: skip
        except (PtxError, EnvironmentProblem) as error:
            self._error = error
            return _FAILED

    def _launch(
        self, module: PtxModule, kernel: str, grid: tuple[int, ...], block: tuple[int, ...],
        cluster: tuple[int, ...], shared: int, cooperative: bool, arguments: Any,
    ) -> int:  # fmt: skip
        sizes = module.shape(kernel).sizes
        args = [ctypes.string_at(arguments[at], size) for at, size in enumerate(sizes)]
        form = (id(module), kernel, grid, block, cluster, shared)
        count = 1 if form in self._forms else self._check
        self._forms.add(form)
        # An SM of a GPU holds several CTAs of a cooperative grid, one of the emulator holds one.
        sms = max(self._sms, math.prod(grid)) if cooperative else self._sms
        report = module.launch(
            kernel, grid, block, args, shared=shared,
            cluster=cluster if math.prod(cluster) > 1 else None, cooperative=cooperative,
            check=count, seed=self._seed, memory=self._arrays(), emulation=Emulation(sms=sms),
            limit_s=self._limit_s,
        )  # fmt: skip
        self.launches.append(Launched(_words(grid, block, cluster, shared), self._seed, report))
        self._seed += report.schedules
        return _FAILED if report.error or report.waits else 0

    def _arrays(self) -> dict[str, Any]:
        """What the program has allocated."""
        import numpy as np

        return {
            f"allocation {at}": np.ctypeslib.as_array(
                (ctypes.c_uint8 * size).from_address(address)
            )
            for at, (address, size) in enumerate(self._memory.items(), start=1)
        }  # fmt: skip


def _words(
    grid: tuple[int, ...], block: tuple[int, ...], cluster: tuple[int, ...], shared: int
) -> str:
    words = f"grid {'×'.join(map(str, grid))}, block {'×'.join(map(str, block))}"
    if math.prod(cluster) > 1:
        words += f", clusters of {'×'.join(map(str, cluster))}"
    return f"{words}, {shared} bytes shared" if shared else words
