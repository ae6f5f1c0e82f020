"""``kernelbench.triton_emulation``: Triton's kernels on the CPU, and what is found in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernelbench.emulator.assumptions import FIRST_TRIED, NEVER_WAITS
from kernelbench.emulator.settings import require_arch
from kernelbench.ptx.hosts.checked_launches import CheckedLaunches
from kernelbench.ptx.hosts.cuda_on_cpu import LiveTensors, cuda_on_cpu
from kernelbench.ptx.hosts.leftovers import Leftovers
from kernelbench.ptx.hosts.triton_arguments import Given
from kernelbench.ptx.hosts.triton_driver import triton_driven_by
from kernelbench.ptx.launcher import PtxModule
from kernelbench.ptx.report import Launched, PtxReport

_ALIGNMENT = 128

#: Configurations of an autotuner that run.
_MOST_TRIED = 8
#: What programs are told of the GPU's SMs: few, so that persistent kernels go round.
SCRIPT_SMS = 4


class TritonLaunches:
    """What a :class:`kernelbench.ptx.hosts.triton_driver.KernelRunner` does beside running.

    Attributes:
        tuned: Kernels that autotuning has run.
        untuned: One that it is not to run.
    """

    def __init__(self, live: LiveTensors) -> None:
        self._live = live
        self.tuned: dict[str, None] = {}
        self.untuned = ""
        self._tuning = self._left_out = False
        self._tried = 0
        self._scratch: list[Any] = []

    def allocate(self, size: int) -> int:
        """Memory of a kernel's own, until its launch is over; its address, 0 for none."""
        import torch

        if not size:
            return 0
        with self._live.order.aside():
            self._scratch.append(torch.zeros(size + _ALIGNMENT, dtype=torch.uint8))
        return -(-int(self._scratch[-1].data_ptr()) // _ALIGNMENT) * _ALIGNMENT

    @contextlib.contextmanager
    def tuning(self) -> Iterator[None]:
        """A kernel's next configuration. The first that compile run: what the kernel adds to then
        stays, as it does on a GPU unless ``reset_to_zero`` names it."""
        self._tuning = True
        try:
            yield
            self._tried += 1
        finally:
            self._tuning = False

    def _options(self, given: Given, metadata: Any) -> dict[str, Any]:
        """What a launch takes beside its arguments, by :class:`PtxModule`'s names."""
        named = given.tensors | {f"scratch {at}": each for at, each in enumerate(self._scratch)}
        return {
            "shared": metadata.shared,
            "cluster": metadata.num_ctas if metadata.num_ctas > 1 else None,
            "cooperative": bool(metadata.launch_cooperative_grid),
            "memory": self._live.storages(named),
        }


class TritonSession(TritonLaunches):
    """What happens while :func:`triton_emulation` lasts."""

    def __init__(
        self, arch: int, check: int, seed: int, sms: int, limit_s: float, live: LiveTensors
    ) -> None:
        super().__init__(live)
        self.arch, self.sms = arch, sms
        self._launches = CheckedLaunches(check, seed, sms, limit_s)
        self.leftovers = Leftovers()

    @property
    def launches(self) -> list[Launched]:
        """All launches so far, in order, and what was found between them."""
        raw = self._live.order.report()
        return [*self._launches.made, *([self._launches.outside(raw)] if raw["findings"] else [])]

    def explain(self, *, failed: bool) -> None:
        """Have what explains errors, or that the script has failed, come first."""
        if any(each.report.errors for each in self.launches):
            self._launches.put_decisions_first()
        elif failed:
            self._launches.explain_failure(self._live.order.report())

    @property
    def reads_new_memory(self) -> bool:
        """Whether launches have read memory that nothing has written."""
        return self._launches.reads_new_memory

    @property
    def memory_with_leftovers(self) -> list[str]:
        """Where launches have found what an earlier one of their kernel had left."""
        return self._launches.memory_with_leftovers

    @property
    def reports(self) -> tuple[PtxReport, ...]:
        """The report of each launch, in order."""
        return tuple(each.report for each in self.launches)

    def require_clean(self) -> None:
        """Raise unless every launch is clean.

        Raises:
            IncorrectError: With the first error, in one line.
        """
        for report in self.reports:
            report.require_clean()

    def run(
        self, module: PtxModule, kernel: str, grid: tuple[int, int, int], given: Given,
        scratch: tuple[int, ...], metadata: Any,
    ) -> None:  # fmt: skip
        """A launch: of a form not seen before in all schedules, else in one."""
        if self._tuning:
            self._left_out |= self._tried >= _MOST_TRIED
            if self._left_out or kernel == self.untuned:
                return
            self.tuned[kernel] = None
        capture = self._live.order.records
        if capture is not None and not self._tuning:
            kept, self._scratch = self._scratch, []
            held = {name: capture.held(each) for name, each in given.tensors.items()}

            def again() -> None:
                now = {name: each() for name, each in held.items()}
                given.tensors = {name: each for name, each in now.items() if each is not None}
                self._scratch = list(kept)
                self.run(module, kernel, grid, given, scratch, metadata)

            capture.record(again, launched=True)
            return
        words = f"grid {'×'.join(map(str, grid))}, {32 * metadata.num_warps} threads"
        programmatic = bool(getattr(metadata, "launch_pdl", False))
        waits = not programmatic or module.waits_for_ahead(kernel)
        with self._live.order.operation("launch", kernel, programmatic=programmatic):
            self._live.order.uses(given.tensors.values())
            assumed = {NEVER_WAITS: not waits, FIRST_TRIED: self._left_out}
            options = self._options(given, metadata)
            # Of those that share a storage one; a plain run explains nothing.
            memory = options["memory"].items() if self._launches.check else ()
            tensors = {name: each for name, each in memory if name in given.tensors}
            left = self.leftovers.meet(kernel, tensors)
            report = self._launches.make(
                module, kernel, grid, None, [*given.values, *scratch],
                form=(id(module), grid, given.form()), words=words,
                assumed=[name for name, holds in assumed.items() if holds],
                **options,
            )  # fmt: skip
            self._launches.note_last(left)
            self.leftovers.leave(kernel, tensors)
        self._scratch.clear()
        if not self._tuning:
            self._tried, self._left_out = 0, False
        if not self._launches.check:
            report.require_clean()


@contextlib.contextmanager
def triton_emulation(
    arch: int = 90, *, check: int = 0, seed: int = 0, sms: int = SCRIPT_SMS, limit_s: float = 0.0
) -> Iterator[TritonSession]:
    """While it lasts, ``@triton.jit`` kernels run on the emulator, and ``cuda`` is the CPU.

    Args:
        arch: What Triton compiles for: 80, 86, 89, 90 or 100.
        check: Schedules in which each launch of a new form looks for faults; 0 for a plain run,
            which raises where a kernel cannot go on.
        seed: Of the first schedule.
        sms: What programs are told of the number of SMs.
        limit_s: Seconds after which a schedule is ended, as a hang; 0 for never.

    Yields:
        The session, whose :attr:`~TritonSession.launches` has what was found.

    Raises:
        UsageError: For an arch that Triton's kernels cannot be compiled for here.
        EnvironmentProblem: Without Triton.
    """
    require_arch(arch)
    with cuda_on_cpu(arch, sms) as live:
        session = TritonSession(arch, check, seed, sms, limit_s, live)
        with triton_driven_by(session), live.order.checked() if check else contextlib.nullcontext():
            yield session
