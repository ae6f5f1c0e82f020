"""One call of a compiled step under the checker: its outputs, its findings, and what ended it."""

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelbench.base.errors import MachineFault, ProblemError
from kernelbench.base.seeds import derive
from kernelbench.emulator import findings
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.emulator.runtime import Runtime
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.emulator.symbols import Symbols
from kernelbench.executors.emulated import EMULATOR, OpenedStep
from kernelbench.kinds.callables import describe_exception
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.kinds.protocol import CompiledProblem
from kernelbench.measure.correctness import why_wrong
from kernelbench.project.problem import Case, Inputs, refill
from kernelbench.worker.jobs import CheckJob

#: Handle of the stream that calls are made on, which is not the default one. The emulator asks for
#: no more than that handles differ.
A_STREAM = 16


@dataclass(frozen=True)
class Called:
    """What came of a call."""

    #: Copies; None if the call did not end well, and then ``reason`` says why.
    outputs: list[torch.Tensor] | None
    report: EmulatorReport
    reason: str
    poison: torch.Tensor  #: What the outputs held before.


class CheckedStep:
    """A step that is loaded for the checker; every call is made by way of it."""

    def __init__(self, job: CheckJob, problem: CompiledProblem, opened: OpenedStep) -> None:
        self.job = job
        self.problem = problem
        #: Sets what else the launches of each call need, after the options are set.
        self.prepare: Callable[[Runtime], None] = lambda _runtime: None
        self.runtime: Runtime = opened.runtime
        self._opened = opened
        self._by_sms: dict[int, OpenedStep] = {}
        self._copies: Path | None = None

    @property
    def symbols(self) -> Symbols:
        """What names the places of the last call."""
        return self._opened.symbols

    @property
    def libraries(self) -> list[ctypes.CDLL]:
        """What the calls so far were made in."""
        return [each.library for each in self._by_sms.values() if each.library is not None]

    def _instance(self, sms: int) -> OpenedStep:
        """The step for a GPU of so many SMs, loaded when first asked for.

        A host path may keep what it has made for this many, such as a graph: no process sees two.
        """
        if not self._by_sms:
            return self._opened
        if self._copies is None:
            folder = tempfile.mkdtemp(prefix="kernelbench-", dir=self.job.counters or None)
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self._copies = Path(folder)
        copy = self._copies / f"{sms}.so"
        job = self.job
        return EMULATOR.opened(
            job.step, self.problem, job.target.device, sms, check=True, copy=copy
        )

    def call(self, inputs: Inputs, sms: int, seed: int) -> Called:
        """One call, done when it returns."""
        self._configure(sms, seed)
        poison = self._poison(inputs, seed)
        self.runtime.stream = A_STREAM
        try:
            attempt = self._attempt(inputs)
        finally:
            self.runtime.stream = 0
        return self._called(*attempt, poison)

    def call_queued(
        self, sequence: list[Inputs], sms: int, seed: int, streams: Sequence[int]
    ) -> list[Called]:
        """Calls of which none waits for the one before: the host is through before the GPU starts.

        What is found is told with the last of them.

        Args:
            streams: The handle of each call's stream.
        """
        self._configure(sms, seed)
        poisons = [self._poison(inputs, seed) for inputs in sequence]
        self.runtime.queue()
        try:
            attempts = []
            for inputs, stream in zip(sequence, streams, strict=True):
                self.runtime.stream = stream
                attempts.append(self._attempt(inputs))
        finally:
            self.runtime.stream = 0
            failed = self.runtime.finish()
        return [
            self._called(outputs, reason or failed, poison)
            for (outputs, reason), poison in zip(attempts, poisons, strict=True)
        ]

    @property
    def recordable(self) -> bool:
        """Whether the step says that no call of it waits for its stream."""
        step = self.job.step
        return step.compiled and bool(step.config.get("synchronize") == "none")

    def call_recorded(self, inputs: Inputs, values: Inputs, sms: int, seed: int) -> Called:
        """A call that its caller records, and replays once ``inputs`` hold new ``values``."""
        (outputs,), reason = self._record([inputs], sms, seed)
        refill(inputs, values)
        poison = self._poison(inputs, seed)
        failed = self.runtime.replay()
        return self._called(outputs, reason or failed, poison)

    def record(self, calls: Sequence[Inputs], sms: int, seed: int) -> str:
        """Calls that the caller records and never replays; why that is not possible, or nothing."""
        _, reason = self._record(calls, sms, seed)
        self.runtime.forget_recording()
        return reason

    def _record(
        self, calls: Sequence[Inputs], sms: int, seed: int
    ) -> tuple[list[list[torch.Tensor]], str]:
        """The outputs of calls that the caller records, and what failed first, or nothing."""
        self._configure(sms, seed)
        self.runtime.record()
        try:
            attempts = [self._attempt(inputs) for inputs in calls]
        finally:
            ended_by = self.runtime.end_recording()
        ended = f"the caller's recording was ended by {ended_by}" if ended_by else ""
        outputs, reasons = zip(*attempts, strict=True)
        return [*outputs], next(filter(None, (*reasons, ended)), "")

    def judge(self, called: Called, inputs: Inputs, case: Case, reference: Any) -> str:
        """Why the outputs of a call are wrong; empty if they are right."""
        if called.outputs is None:
            return called.reason
        verdict = case.compare(called.outputs, reference)
        return "" if verdict.ok else f"wrong: {why_wrong(verdict, inputs, called.poison)}"

    def _configure(self, sms: int, seed: int) -> None:
        job = self.job
        if sms not in self._by_sms:
            self._by_sms[sms] = self._instance(sms)
        self._opened = self._by_sms[sms]
        self.runtime.configure(
            dataclasses.replace(job.target.emulation or DEFAULT_EMULATION, sms=sms),
            check=True,
            seed=seed,
            max_findings=job.max_findings,
            os_threads=job.os_threads,
            limit_s=job.call_limit_s,
        )
        self.prepare(self.runtime)

    @staticmethod
    def _poison(inputs: Inputs, seed: int) -> torch.Tensor:
        poison = inputs.arena.draw_poison(derive(seed, "poison"))
        inputs.arena.fill(poison)
        return poison

    def _attempt(self, inputs: Inputs) -> tuple[list[torch.Tensor], str]:
        """Call the step: its outputs, and why it failed, or nothing."""
        try:
            result = self._opened.kernel(inputs.data)
            return self.problem.outputs_of(result, inputs), ""
        except (ProblemError, MachineFault):
            raise
        except KernelFault as fault:
            return [], str(fault)
        except NotImplementedError as error:
            return [], f"skipped: {' '.join(str(error).split())}"
        except Exception as error:
            return [], f"raised {describe_exception(error, self.job.step.entry)}"

    def _called(self, outputs: list[torch.Tensor], reason: str, poison: torch.Tensor) -> Called:
        found = findings.resolve_report(self.runtime.report(), self.symbols)
        if reason and found.faults:
            reason = found.headline()
        copies = None if reason else [output.clone() for output in outputs]
        return Called(copies, found, reason, poison)
