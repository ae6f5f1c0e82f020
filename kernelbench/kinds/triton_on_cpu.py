"""Triton steps on the emulator: their kernels' PTX runs there, and ``cuda`` is the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernelbench.emulator.runtime import Runtime
from kernelbench.kinds.cuda_function import data_leaves
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.kinds.python_step import load_python_step
from kernelbench.machine.arch import emulated_arch
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, Problem
from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu
from kernelbench.ptx.hosts.triton_arguments import Given
from kernelbench.ptx.hosts.triton_driver import triton_driven_by
from kernelbench.ptx.hosts.triton_session import TritonLaunches
from kernelbench.ptx.launcher import PtxModule
from kernelbench.ptx.module_symbols import ModuleSymbols


class TritonStepKernel(TritonLaunches):
    """A Triton step's callable on tensors of the CPU; see :class:`ptx.triton_driver.KernelRunner`.

    Args:
        sms: What the step is told of the number of SMs.
        check: Whether the runtime checks.

    Raises:
        LoadError: If its file cannot be imported.
        EnvironmentProblem: Without Triton.
    """

    def __init__(
        self, step: Step, problem: Problem, running: Runtime, sms: int, *, check: bool
    ) -> None:
        super().__init__(LiveTensors())
        self.arch, self.sms = emulated_arch(step), sms
        self.symbols = ModuleSymbols()  #: What names places in its kernels.
        self._running, self._check = running, check
        with self._on_cpu():
            self._kernel: Kernel = load_python_step(step, problem)

    def __call__(self, data: Any) -> Any:
        """Call the step.

        Raises:
            KernelFault: If a launch fails, or does not fit its kernel.
            NotImplementedError: For a kernel with instructions that are not supported.
        """
        with self._on_cpu() as live:
            live.keep(list(data_leaves(data)))
            try:
                return self._kernel(data)
            except PtxError as error:
                raise NotImplementedError(error.message) from error

    @contextlib.contextmanager
    def _on_cpu(self) -> Iterator[LiveTensors]:
        with cuda_on_cpu(self.arch, self.sms) as live, triton_driven_by(self):
            self._live = live
            yield live

    def run(
        self, module: PtxModule, kernel: str, grid: tuple[int, int, int], given: Given,
        scratch: tuple[int, ...], metadata: Any,
    ) -> None:  # fmt: skip
        """One launch, as the runtime is set up."""
        if self._tuning:
            return
        failed = module.launch_once(
            self._running, kernel, grid, None, [*given.values, *scratch], check=self._check,
            **self._options(given, metadata),
        )  # fmt: skip
        self._scratch.clear()
        if failed:
            raise KernelFault(failed)
