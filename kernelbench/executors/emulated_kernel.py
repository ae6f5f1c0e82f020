"""A compiled step's callable on the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelbench.emulator import findings
from kernelbench.emulator.runtime import Runtime
from kernelbench.emulator.settings import Emulation
from kernelbench.emulator.symbols import Symbols
from kernelbench.executors.fault import KernelFault

if TYPE_CHECKING:
    from kernelbench.project.problem import Kernel


class EmulatedKernel:
    """A compiled step's callable on the emulator: a finding is a fault of the call."""

    def __init__(
        self,
        kernel: Kernel,
        runtime: Runtime,
        symbols: Symbols,
        emulation: Emulation,
        limit_s: float,
    ) -> None:
        self._kernel = kernel
        self._runtime = runtime
        self._symbols = symbols
        self._emulation = emulation
        self._limit_s = limit_s
        self._seconds: list[float] = []

    def __call__(self, data: Any) -> Any:
        """Call the step.

        Raises:
            KernelFault: If the emulator found something, with its report.
        """
        self._runtime.configure(self._emulation, limit_s=self._limit_s)
        fault: KernelFault | None = None
        result = None
        try:
            result = self._kernel(data)
        except KernelFault as error:
            fault = error
        report = findings.resolve_report(self._runtime.report(), self._symbols)
        if report.faults:
            hang = report.findings[0].kind == "hang"
            text = report.headline().removeprefix("hang: ")
            raise KernelFault(text, hang=hang, report=report) from fault
        if fault is not None:
            raise fault
        self._seconds.append(report.seconds)
        return result

    def take_note(self) -> str:
        """How long a call took to emulate since the last note, in words; empty without a call."""
        if not self._seconds:
            return ""
        note = f"emulated in {max(self._seconds):.2g} s a call"
        self._seconds.clear()
        return note
