"""Launches of a program or a script, each checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelbench.emulator.settings import Emulation
from kernelbench.ptx.cuda_launch import CudaLaunch
from kernelbench.ptx.launcher import PtxModule
from kernelbench.ptx.report import Launched, PtxReport


class CheckedLaunches:
    """Makes launches: one of a form that was not there before in all schedules, others in one.

    Args:
        check: Schedules; 0 for a plain run.
        seed: Of the first schedule.
        sms: SMs of the emulated GPU.
        limit_s: Seconds after which a schedule is ended, as a hang; 0 for never.

    Attributes:
        made: Those that were made, in order.
    """

    def __init__(self, check: int, seed: int, sms: int, limit_s: float) -> None:
        self.made: list[Launched] = []
        self.check = check
        self._seed, self._sms, self._limit_s = seed, sms, limit_s
        self._forms: set[tuple[Any, ...]] = set()

    def make(
        self, module: PtxModule, kernel: str, grid: Sequence[int], block: Sequence[int] | None,
        args: Sequence[Any], *, form: tuple[Any, ...], words: str, assumed: Sequence[str] = (),
        **options: Any,
    ) -> PtxReport:  # fmt: skip
        """Make one.

        Args:
            form: Equal for launches that are checked as one; words: the same for rows.
            assumed: What it rests on by the way it is launched.
            options: Others of :meth:`PtxModule.launch`.
        """
        check = min(self.check, 1) if form in self._forms else self.check
        self._forms.add(form)
        report = module.launch(
            kernel, grid, block, args, check=check, seed=self._seed,
            emulation=Emulation(sms=self._sms), limit_s=self._limit_s, **options,
        )  # fmt: skip
        report = replace(report, assumptions=(*report.assumptions, *assumed))
        self.made.append(Launched(words, self._seed, report))
        self._seed += report.schedules
        return report

    def make_cuda(self, launch: CudaLaunch, memory: Mapping[str, Any]) -> PtxReport:
        """Make one of CUDA's host code, which may touch ``memory``."""
        return self.make(
            launch.module, launch.kernel, launch.grid, launch.block, launch.args,
            form=launch.form, words=launch.words, assumed=launch.assumed, memory=memory,
            **launch.options,
        )  # fmt: skip
