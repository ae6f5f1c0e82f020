"""CUDA programs on the emulator: nvcc's host code runs as it is, the kernels by their PTX.

The program is built as a library whose ``main`` is called here. In place of the CUDA runtime it is
linked with :file:`cuda_runtime/cudart.cpp`, which hands launches on.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build import compiler
from kernelbench.build.compiler import CompileFailure
from kernelbench.emulator.settings import Emulation
from kernelbench.machine.toolchain import emulator_compiler, gencode
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.report import Launched
from kernelbench.ptx.script_symbols import ScriptSymbols

_RUNTIME = Path(__file__).parent / "cuda_runtime" / "cudart.cpp"
_FAILED = 719  # cudaErrorLaunchFailure
_FLAGS = ("-std=c++17", "-O2")
_UNDEFINED = re.compile(r"undefined reference to [`']([^'`(]+)")
_Triple = ctypes.POINTER(ctypes.c_uint)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, _Triple, _Triple, ctypes.c_uint64, ctypes.c_uint, ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
)  # fmt: skip
_MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class CudaProgram:
    """A program that is built and can be run once, in a process of its own.

    Args:
        arch: What nvcc compiles for: 90 for ``sm_90a``.
        check: Schedules of each launch of a new form.
        sms: SMs of the emulated GPU.

    Attributes:
        launches: Those that were made, in order.

    Raises:
        UsageError: If it does not compile, calls what the runtime here lacks, or has PTX that is
            not supported.
        EnvironmentProblem: Without nvcc or a host compiler.
    """

    def __init__(
        self, file: Path, arch: int, *, check: int, seed: int, sms: int, limit_s: float
    ) -> None:
        self.launches: list[Launched] = []
        self._check, self._seed, self._limit_s = check, seed, limit_s
        self._emulation = Emulation(sms=sms)
        self._file, self._arch = file, arch
        self._memory: dict[int, int] = {}
        self._forms: set[tuple[Any, ...]] = set()
        self._error: PtxError | EnvironmentProblem | None = None
        self._module = _module_of(file, arch)
        self._runtime = _runtime_library()
        self._library = _program_library(file, arch, self._runtime)

    def run(self, arguments: Sequence[str] = ()) -> int:
        """Call ``main``; its status.

        Raises:
            UsageError: Without a main, and for a launch that does not fit its kernel.
        """
        runtime = ctypes.CDLL(str(self._runtime), mode=ctypes.RTLD_GLOBAL)
        # Kept, since the library has their addresses only.
        self._callbacks = _LAUNCH(self._launched), _MEMORY(self._memory_changed)
        runtime.kb_cudart_start(*self._callbacks, self._emulation.sms, self._arch)
        program = ctypes.CDLL(str(self._library))
        words = [b"program", *(each.encode() for each in arguments), None]
        vector = (ctypes.c_char_p * len(words))(*words)
        if not hasattr(program, "main"):
            raise UsageError(f"{self._file}: it has no main", "check takes programs")
        main = ctypes.cast(program.main, ctypes.c_void_p)
        status = int(runtime.kb_cudart_run(main, len(words) - 1, vector))
        if self._error is not None:
            raise self._error
        return status

    def _memory_changed(self, address: int, size: int) -> None:
        if size:
            self._memory[address] = size
        else:
            self._memory.pop(address, None)

    def _launched(
        self, name: bytes, grid: Any, block: Any, shared: int, cluster: int, cooperative: int,
        arguments: Any,
    ) -> int:  # fmt: skip
        """A status of CUDA: nothing may be raised through the program."""
        if self._error is not None:
            return _FAILED
        try:
            return self._launch(
                name.decode(), tuple(grid[:3]), tuple(block[:3]), shared, cluster or None,
                bool(cooperative), arguments,
            )  # fmt: skip
        except (PtxError, EnvironmentProblem) as error:
            self._error = error
            return _FAILED

    def _launch(
        self, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int,
        cluster: int | None, cooperative: bool, arguments: Any,
    ) -> int:  # fmt: skip
        sizes = self._module.parameter_sizes(kernel)
        args = [ctypes.string_at(arguments[at], size) for at, size in enumerate(sizes)]
        form = (kernel, grid, block, shared)
        count = 1 if form in self._forms else self._check
        self._forms.add(form)
        report = self._module.launch(
            kernel, grid, block, args, shared=shared, cluster=cluster, cooperative=cooperative,
            check=count, seed=self._seed, memory=self._arrays(), emulation=self._emulation,
            limit_s=self._limit_s,
        )  # fmt: skip
        words = f"grid {'×'.join(map(str, grid))}, block {'×'.join(map(str, block))}"
        if shared:
            words += f", {shared} bytes shared"
        self.launches.append(Launched(words, self._seed, report))
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


def _target(arch: int) -> list[str]:
    return gencode(f"sm_{arch}a" if arch >= 90 else f"sm_{arch}")


def _module_of(file: Path, arch: int) -> PtxModule:
    flags = [*_FLAGS, "-ptx", "-lineinfo", *_target(arch)]
    text = _made(file, "PTX", flags, None).read_text()
    return load_ptx(file.with_suffix(".ptx"), text=text, symbols=ScriptSymbols)


def _program_library(file: Path, arch: int, runtime: Path) -> Path:
    link = [
        "--cudart", "none", "-Xlinker", "--wrap=exit", "-Xlinker", "-z,defs",
        "-Xlinker", str(runtime),
    ]  # fmt: skip
    return _made(file, "program", [*_FLAGS, *_target(arch)], link)


def _made(file: Path, what: str, flags: Sequence[str], link: Sequence[str] | None) -> Path:
    name = f"{file.name} ({what})"
    nvcc = compiler.needed_nvcc(name)
    recipe = compiler.Recipe(name, nvcc, [file.resolve()], flags, (file.resolve().parent,), link)
    try:
        return compiler.build(recipe)
    except CompileFailure as error:
        missing = _UNDEFINED.search(error.reason)
        if missing is None:
            raise UsageError(error.message, error.hint) from error
        raise UsageError(
            f"{file}: calls {missing[1]}, which the CUDA runtime here does not have",
            "docs/ptx.md, CUDA programs, lists what it has",
        ) from error


def _runtime_library() -> Path:
    return compiler.compile_shared(
        "CUDA runtime for the emulator", [_RUNTIME], ("-std=c++20", "-O1"),
        compiler=emulator_compiler(), link_flags=(),
    )  # fmt: skip
