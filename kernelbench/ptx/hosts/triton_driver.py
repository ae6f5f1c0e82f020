"""Triton's interface to a device, with the emulator behind it (Triton 3.6 to 3.9).

Triton compiles as for a GPU, up to PTX: ptxas is not run. What Triton asks of a driver is in its
``triton/backends/driver.py``, ``compiler/compiler.py`` and ``runtime/jit.py``.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kernelbench.base.cache_folder import cache_dir
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.base.files import write_text
from kernelbench.machine.arch import ARCHES
from kernelbench.ptx.hosts.triton_arguments import Given
from kernelbench.ptx.launcher import PtxModule, load_ptx
from kernelbench.ptx.script_symbols import ScriptSymbols

if TYPE_CHECKING:
    import torch

_THREADS = 1024
#: No GPU has this number: kernels that Triton compiled for one stay where they are.
_FIRST_DEVICE = 1000
_ASM = re.compile(r"// begin inline asm.*?// end inline asm", re.DOTALL)
_PLACE = re.compile(r"^[ \t]*\.loc\b.*\n", re.MULTILINE)


class KernelRunner(Protocol):
    """Who runs the launches; see :class:`kernelbench.ptx.hosts.triton_session.TritonSession`."""

    arch: int
    sms: int

    def run(
        self, module: PtxModule, kernel: str, grid: tuple[int, int, int], given: Given,
        scratch: tuple[int, ...], metadata: Any,
    ) -> None: ...  # fmt: skip

    def tuning(self) -> contextlib.AbstractContextManager[None]: ...

    def allocate(self, size: int) -> int: ...


class EmulatedDriver:
    """What Triton calls its driver."""

    def __init__(self, runner: KernelRunner) -> None:
        self.utils = _Utils(runner)
        self.launcher_cls = functools.partial(_Launcher, runner)
        self._runner = runner
        self._tried = 0.0

    def get_current_target(self) -> Any:
        """A GPU of the arch that was asked for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._runner.arch, 32)

    def get_active_torch_device(self) -> torch.device:
        """Where tensors are."""
        import torch

        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """``torch.cuda``, which :mod:`kernelbench.ptx.hosts.cuda_on_cpu` stands in for."""
        import torch

        return torch.cuda

    def get_current_device(self) -> int:
        """A number of its own for each arch."""
        return _FIRST_DEVICE + self._runner.arch

    def set_current_device(self, _device: int) -> None:
        """Do nothing: there is one device."""

    def get_current_stream(self, _device: int = 0) -> int:
        """0: there is one stream."""
        return 0

    def get_device_capability(self, _device: int = 0) -> tuple[int, int]:
        """(9, 0) for sm_90."""
        major, minor = divmod(self._runner.arch, 10)
        return major, minor

    def map_python_to_cpp_type(self, kind: str) -> str:
        """Not asked for: launches are made here."""
        return kind

    def is_active(self) -> bool:
        """True: Triton asks this of the driver that it was given."""
        return True

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Later configurations seem slower, so that autotuning takes the first that fits."""

        def bench(call: Callable[[], Any], *_: Any, **__: Any) -> list[float]:
            with self._runner.tuning():
                call()
            self._tried += 1
            return [self._tried] * 3

        return bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """The emulator has no cache."""
        import torch

        return torch.empty(1)

    def clear_cache(self, _cache: torch.Tensor) -> None:
        """The emulator has no cache."""


class _Utils:
    """What Triton's compiler asks of the device."""

    def __init__(self, runner: KernelRunner) -> None:
        self._runner = runner
        self._loaded: dict[Path, PtxModule] = {}

    def load_binary(
        self, name: str, kernel: bytes, _shared: int, _device: int
    ) -> tuple[None, PtxModule, int, int, int]:
        """Module, function, registers, spills, most threads: here the function is all of it.

        Without a module Triton has nothing to unload when this driver is gone; it then asks again
        at each launch.
        """
        # Of all instructions of an asm Triton means one line; LLVM counts on at each.
        text = _ASM.sub(lambda block: _PLACE.sub("", block[0]), kernel.decode())
        folder = cache_dir() / "triton" / hashlib.sha256(text.encode()).hexdigest()[:16]
        file = folder / f"{name}.ptx"
        if not file.exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
        if file not in self._loaded:
            self._loaded[file] = load_ptx(file, text=text, symbols=ScriptSymbols)
        return None, self._loaded[file], 0, 0, _THREADS

    def get_device_properties(self, _device: int) -> dict[str, int]:
        """Of a GPU of the arch."""
        return {
            "max_shared_mem": ARCHES[self._runner.arch].cta_shared_bytes,
            "multiprocessor_count": self._runner.sms,
            "max_num_regs": 65536, "warpSize": 32,
            "sm_clock_rate": 1, "mem_clock_rate": 1, "mem_bus_width": 1,
        }  # fmt: skip


class _Launcher:
    """Called for each launch of one compiled kernel."""

    def __init__(self, runner: KernelRunner, source: Any, metadata: Any) -> None:
        self._runner = runner
        self._signature = dict(source.signature)
        self._metadata = metadata
        self._maps = tuple(getattr(metadata, "tensordesc_meta", None) or ())

    def __call__(
        self, x: int, y: int, z: int, _stream: int, function: PtxModule,
        _packed: Any, launch: Any, enter: Any, leave: Any, *args: Any,
    ) -> None:  # fmt: skip
        if x * y * z == 0:
            return
        metadata = self._metadata
        given = Given(self._signature, self._maps, args)
        ctas = x * y * z * metadata.num_ctas
        scratch = tuple(
            self._runner.allocate(ctas * size)
            for size in (metadata.global_scratch_size, metadata.profile_scratch_size)
        )
        if enter is not None:
            enter(launch)
        grid = (x * metadata.num_ctas, y, z)
        self._runner.run(function, metadata.name, grid, given, scratch, metadata)
        if leave is not None:
            leave(launch)


@contextlib.contextmanager
def triton_driven_by(runner: KernelRunner) -> Iterator[None]:
    """While it lasts, Triton's kernels are compiled for the emulator and run there.

    Raises:
        EnvironmentProblem: Without Triton, or with one that is too old.
    """
    try:
        import triton
        from triton import knobs
        from triton.runtime import driver
    except ImportError as error:
        raise EnvironmentProblem(
            f"Triton is not there: {error}", "`pip install triton==3.6.0`; it needs no GPU here"
        ) from error
    if not hasattr(knobs.runtime, "add_stages_inspection_hook"):
        raise EnvironmentProblem(
            f"Triton {triton.__version__} cannot be stopped at PTX", "use Triton 3.6"
        )
    settings = knobs.runtime, knobs.cache
    before = knobs.runtime.add_stages_inspection_hook, knobs.cache.dir, driver._active
    try:
        settings[0].add_stages_inspection_hook = _stop_at_ptx
        # Not among kernels that ptxas has compiled, nor among those of a script with another name:
        # Triton knows a kernel by its text, and PTX has the file's name.
        script = hashlib.sha256(os.path.realpath(sys.argv[0]).encode()).hexdigest()[:16]
        settings[1].dir = str(Path(cache_dir()) / "triton" / triton.__version__ / script)
        driver.set_active(EmulatedDriver(runner))
        yield
    finally:
        settings[0].add_stages_inspection_hook, settings[1].dir = before[:2]
        driver._active = before[2]


def _stop_at_ptx(_backend: Any = None, stages: Any = None, *_: Any) -> tuple[str, str]:
    """In place of machine code comes the PTX itself."""
    if stages is not None:
        stages["cubin"] = lambda text, _metadata: text.encode()
    return "kernelbench", "kernelbench"
