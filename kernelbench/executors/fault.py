"""What a call of a step raises when its kernel fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelbench.emulator.findings import EmulatorReport


class KernelFault(Exception):
    """A compiled step's kernel or host path failed while it ran.

    Args:
        message: What happened, in one line.
        hang: Whether it would have gone on for ever.
        report: All that the emulator found.
    """

    def __init__(
        self, message: str, *, hang: bool = False, report: EmulatorReport | None = None
    ) -> None:
        super().__init__(message)
        self.hang = hang
        self.report = report
