"""CUDA steps on the emulator: nvcc's host code runs as it is, kernels by their PTX."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelbench.emulator.runtime import Runtime
from kernelbench.kinds import cuda_build, cuda_step
from kernelbench.kinds.cuda_function import data_leaves, open_function
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.machine.arch import emulated_arch
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel
from kernelbench.ptx.arguments import memory_at, span_of
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.hosts.cuda_build import torch_allocator_library
from kernelbench.ptx.hosts.cuda_host import cuda_host, linked_first
from kernelbench.ptx.hosts.cuda_launch import CudaLaunch
from kernelbench.ptx.hosts.fatbin import ptx_in
from kernelbench.ptx.launcher import load_ptx
from kernelbench.ptx.module_symbols import ModuleSymbols


def built_cuda_step(step: Step, *, check: bool) -> Path:
    """A CUDA step's library, with what its calls take on the emulator in the cache.

    Raises:
        CompileFailure: If it does not compile, or needs what the CUDA runtime here lacks.
        UsageError: For PTX that is not supported.
        EnvironmentProblem: Without nvcc or a host compiler.
    """
    library = cuda_build.emulated_library(step, emulated_arch(step))
    torch_allocator_library()
    for text in (each.text for each in ptx_in(library.read_bytes())):
        load_ptx(_ptx_name(step), text=text, whole=True).library_path(check)
    return library


class CudaStepKernel:
    """A CUDA step's callable on tensors of the CPU; see :class:`ptx.cuda_launch.CudaRunner`.

    A call has a stream of its own, and is over when that is: what the step puts on another one and
    does not join is a fault, as on a GPU.

    Args:
        sms: What the step is told of the number of SMs.
        check: Whether the runtime checks.
        copy: Where to copy the library to and load it from, with static variables of its own; those
            of its kernels are its own, too.

    Raises:
        CompileFailure: If it does not compile, or needs what the CUDA runtime here lacks.
        LoadError: If its function cannot be called.
        UsageError: For PTX that is not supported.
        EnvironmentProblem: Without nvcc or a host compiler.
    """

    def __init__(
        self, step: Step, running: Runtime, sms: int, *, check: bool, copy: Path | None
    ) -> None:
        self.arch, self.sms, self.check = emulated_arch(step), sms, check
        self.symbols = ModuleSymbols()  #: What names places in its kernels.
        self._step, self._running = step, running
        self._apart = copy.parent if copy is not None else None
        self._data: Mapping[str, Any] = {}
        self._host = cuda_host()
        self._stream = self._host.stream()
        path = built_cuda_step(step, check=check)
        if copy is not None:
            path = Path(shutil.copyfile(path, copy))
        with self._driving(), linked_first():
            self._kernel = self._opened(path)

    def _opened(self, path: Path) -> Kernel:
        if cuda_build.is_extension(self._step):
            return cuda_step.open_extension(self._step, path)
        return open_function(self._step, path, "cpu", self._stream)

    def __call__(self, data: Any) -> Any:
        """Call the step, and wait for the stream of the call.

        Raises:
            KernelFault: If a launch fails, does not fit its kernel, or is left on a stream that
                the call's does not wait for.
            NotImplementedError: For a kernel with instructions that are not supported.
        """
        self._data = _memory_of(data)
        try:
            with self._driving(), self._host.tensors_on_gpu():
                result = self._kernel(data)
                failed = self._host.synchronize(self._stream)
                left, refused = self._host.unwaited(), self._host.unnoticed()
        except PtxError as error:
            raise NotImplementedError(error.message) from error
        finally:
            self._data = {}
        if failed or refused:
            raise KernelFault(refused or f"{self._step.function}: its stream ended with {failed}")
        if left:
            raise KernelFault(
                f"{', '.join(left)}: on a stream that the stream of the call does not wait for"
            )
        return result

    @contextlib.contextmanager
    def _driving(self) -> Iterator[None]:
        extension = cuda_build.is_extension(self._step)
        with (
            self._host.driven_by(self, _ptx_name(self._step), apart=self._apart),
            self._host.current_stream(self._stream, at_once=extension),
        ):
            yield

    def run_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> int:
        """One launch, as the runtime is set up."""
        failed = launch.module.launch_once(
            self._running, launch.kernel, launch.grid, launch.block, launch.args,
            check=self.check, memory={**self._data, **memory}, **launch.options,
        )  # fmt: skip
        if failed:
            raise KernelFault(failed)
        return 0


def _ptx_name(step: Step) -> Path:
    return overlay.entry_of(step).with_suffix(".ptx")


def _memory_of(data: Any) -> dict[str, Any]:
    """What the data's tensors span, as bytes by name."""
    import torch

    found = {}
    for at, each in enumerate(data_leaves(data)):
        if isinstance(each, torch.Tensor) and each.numel():
            found[f"data {at}"] = memory_at(*span_of(each))
    return found
