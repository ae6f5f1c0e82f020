"""A submission's callable whose call happens in another process.

The time of a call is taken there, by a clock that was bound before the submission was loaded, and
compared with what has passed here. On a GPU whole series are timed there
(:mod:`kernelbench.isolation.timing_supervisor`).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from kernelbench.base.child_process import queued_s
from kernelbench.base.errors import KernelbenchError, MachineFault, ProblemError
from kernelbench.isolation.requests import (
    Call,
    Load,
    Ping,
    Poison,
    Prepare,
    Request,
    Trial,
    TrialData,
    close,
)
from kernelbench.isolation.returned_data import BadAnswer, Returned
from kernelbench.isolation.sandbox import SandboxProcess, read_answer
from kernelbench.isolation.shared_data import DataMessage, SharedData
from kernelbench.kinds.callables import LoadError, RaisedElsewhere
from kernelbench.measure.results import error_of
from kernelbench.problems.pytree import rebuilt
from kernelbench.project.problem import Inputs, Kernel

#: A sleeping core and cold caches take up to some 200 µs to answer, however short the question.
_WAKING_S = 200e-6
#: Between calls other processes run, this one too. A short call would find their code and data in
#: the caches, which cost one of 0.5 ms some 20 %: it is made once before, without being timed.
_SHORT_S = 20e-3
_CLOCK = time.perf_counter


class Submissions:
    """The submissions that one process has loaded, and what it shares with this one.

    Args:
        process: Without a submission so far.
        idle: A process that gets none, by which waiting is told from computing.
        device: ``cpu``, or the GPU that they run on.
    """

    def __init__(
        self, process: SandboxProcess, idle: SandboxProcess | None, device: str = "cpu"
    ) -> None:
        self.process = process
        self.idle = idle
        self.device = device
        self.shared = SharedData()
        self.returned = Returned(self.shared, device)
        self._loaded = 0

    def load(self, request: Load) -> Kernel:
        """A submission's callable.

        Raises:
            LoadError: If its file cannot be loaded.
            KernelbenchError: If something else than it is to blame.
        """
        answer = self.process.answer(request)
        if "load_error" in answer:
            raise LoadError(str(answer["load_error"]))
        if "failed" in answer:
            raise error_of(answer["failed"], str(answer.get("reason", "")))
        kernel = IsolatedKernel(self, self._loaded)
        self._loaded += 1
        if answer.get("untimed_setup"):
            kernel.untimed_setup = kernel  # which the worker refuses
        return kernel

    def nothing_s(self) -> float:
        """Seconds that a question takes, and nothing on the GPU, if they run on one."""
        if self.idle is None:
            return 0.0
        return self.idle.ping(Ping("" if self.device == "cpu" else self.device))

    def settle(self) -> None:
        """Wait for what this process has queued."""
        if self.device != "cpu":
            torch.cuda.synchronize(self.device)

    def message(self, data: Any) -> DataMessage:
        """Data as a message.

        Raises:
            ProblemError: If they cannot be handed over.
            EnvironmentProblem: If the machine shares no memory.
        """
        try:
            return self.shared.message(data)
        except KernelbenchError:
            raise
        except torch.OutOfMemoryError as error:
            text = " ".join(str(error).split())[:200]
            raise MachineFault(
                f"no memory for what a submission's process shares: {text}",
                "smaller shapes take less: data lie there once more",
            ) from error
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise ProblemError(
                f"the data cannot be handed to a submission's process: {text}",
                "tensors, numbers, texts, and objects that pickle can",
            ) from error

    def prepare(self, data: Any) -> DataMessage:
        """Hand data over but for their values.

        Raises:
            ProblemError, EnvironmentProblem: If that cannot be.
        """
        message = self.message(data)
        try:
            request = Prepare(message, self.returned.expired())
            answer = self.process.answer(request, message.descriptors)
        finally:
            close(message.descriptors)
        if "failed" in answer:
            raise error_of(answer["failed"], str(answer.get("reason", "")))
        return message

    def results(self, answer: dict[str, Any], found: list[int]) -> tuple[Any, int]:
        """What an answer says was returned, and how many bytes were copied for it.

        Raises:
            RaisedElsewhere: If it says nothing that can be.
        """
        try:
            copied = self.returned.take(answer.get("own"), found)
            return self.returned.rebuilt(answer.get("result")), copied
        except BadAnswer as error:
            raise RaisedElsewhere(f"the submission's process answered {error}") from error


class IsolatedKernel:
    """A submission's callable as the judge calls it.

    Attributes:
        notes: What it says of its last call.
        untimed_setup: Set if the submission wants something done first.
        lost: Whether its process has lost its CUDA context.
        generator_lost: Whether torch's generator there is as if capturing.
        apart: Its process; arm: its number there.
        waited_s: Seconds of the last call in which both processes were ready and did not run.
    """

    untimed_setup: Any = None
    lost: bool = False
    generator_lost: bool = False

    def __init__(self, apart: Submissions, arm: int) -> None:
        self.apart = apart
        self.arm = arm
        self.notes: tuple[str, ...] = ()
        self._passed: list[float] = []
        self._said: list[float] = []
        self._pings: list[float] = []
        self._excess: list[float] = []
        self.waited_s = 0.0

    def __call__(self, data: Any) -> Any:
        """What the submission returns for ``data``, its tensors the judge's own.

        Raises:
            RaisedElsewhere, NotImplementedError, torch.OutOfMemoryError: What it raised.
            ProblemError: If the data cannot be handed over.
        """
        return self._call(data)[0]

    def timed(self, data: Any) -> tuple[Any, float]:
        """The same, and the seconds that the call took by the other process's clock."""
        rehearse = bool(self._said) and self._said[-1] < _SHORT_S
        result, said, passed, alike = self._call(data, rehearse)
        self._said.append(said)
        self._passed.append(passed)
        self._excess.append(passed - said - self.waited_s)
        if self.apart.idle is not None:
            self._pings.append(self.apart.idle.ping(alike))
        return result, said

    def clock_fault(self) -> str:
        """Why the times that it said since the last time cannot be; empty if they can.

        A call cannot take longer than what has passed here. Nor can much more have passed than the
        call, what they waited for a core (the kernel counts it), and what a process that computes
        nothing takes to read and return as many bytes. Looked at are the faster half of the calls,
        which decide the median, and of these the quarter that was disturbed least.
        """
        said, passed, pings = self._said, self._passed, self._pings
        excess = self._excess
        self._said, self._passed, self._pings, self._excess = [], [], [], []
        if not said or not pings:
            return ""
        for one, all_of_it in zip(said, passed, strict=True):
            if not 0 <= one <= all_of_it:
                return (
                    f"its clock says {one * 1e6:.0f} µs of a call for which the judge has waited "
                    f"{all_of_it * 1e6:.0f} µs"
                )
        faster = sorted(zip(said, excess, strict=True))[: (len(said) + 1) // 2]
        beyond = sorted(extra for _, extra in faster)[len(faster) // 4]
        waited = statistics.median(passed)
        if beyond <= _WAKING_S + statistics.median(pings) + 0.05 * waited:
            return ""
        return (
            f"its clock says {statistics.median(said) * 1e6:.0f} µs a call, the judge has waited "
            f"{waited * 1e6:.0f} µs, and waiting takes {statistics.median(pings) * 1e6:.0f} µs"
        )

    def poison_free_memory(self, like: Sequence[torch.Tensor], seed: int) -> None:
        """See :func:`kernelbench.measure.output_verifier.poison_free_memory`, in its process."""
        if like:
            specs = tuple((tuple(one.shape), one.dtype) for one in like)
            self.apart.process.answer(Poison(specs, seed, self.apart.device))

    def stream_ordering_check(
        self, device: torch.device, current: Inputs, stale: Inputs, poison: torch.Tensor
    ) -> IsolatedTrial:
        """See :class:`.StreamOrderingCheck`, in its process."""
        return IsolatedTrial(self, device, TrialData(current, stale, poison))

    def _call(self, data: Any, rehearse: bool = False) -> tuple[Any, float, float, Ping]:
        apart = self.apart
        message = apart.prepare(data)
        if rehearse:  # on what the memory holds from the last call
            said_so = apart.process.answer(Call(self.arm, rehearsal=True))
            if "raised" in said_so:
                self.reraise(said_so)
        answer, passed, found = self.asked(Call(self.arm), message.used, message.used)
        try:
            said = answer.get("elapsed")
            if type(said) is not float or not math.isfinite(said):
                raise RaisedElsewhere("the submission's process answered no time")
            result, copied = apart.results(answer, found)
        finally:
            close(found)
        notes = answer.get("notes")
        self.notes = tuple(map(str, notes)) if isinstance(notes, list) else ()
        alike = Ping(read=apart.shared.touched_bytes(message.used), returned=copied)
        return result, said, passed, alike

    def asked(
        self, request: Request, given: Sequence[int], taken: Sequence[int]
    ) -> tuple[dict[str, Any], float, list[int]]:
        """Ask for a call: the answer, the seconds that it took, and its descriptors.

        Values come after everything else, and go before the answer is read: there is no other time
        to compute in than that of the call.

        Args:
            given: The storages whose values go over; taken: those whose values come back.

        Raises:
            RaisedElsewhere, NotImplementedError, torch.OutOfMemoryError: What it raised.
        """
        apart = self.apart
        apart.shared.copy_in(given)
        apart.settle()
        queued = self._queued_s()
        begin = _CLOCK()
        raw, found, nonce = apart.process.ask(request)
        passed = _CLOCK() - begin
        apart.shared.copy_out(taken)
        apart.settle()
        self.waited_s = self._queued_s() - queued
        try:
            answer = read_answer(raw, nonce)
            if "raised" in answer:
                self.reraise(answer)
        except BaseException:
            close(found)
            raise
        return answer, passed, found

    def _queued_s(self) -> float:
        """Seconds that this process and the other have been ready to run, and have not run."""
        return queued_s("self") + queued_s(str(self.apart.process.pid))

    def reraise(self, answer: dict[str, Any]) -> NoReturn:
        """Raise what the submission raised."""
        self.lost = self.lost or answer.get("lost") is True
        reason = " ".join(str(answer.get("reason", "")).split())[:500]
        match answer["raised"]:
            case "unable":
                raise NotImplementedError(reason)
            case "memory":
                raise torch.OutOfMemoryError(reason)
        raise RaisedElsewhere(reason)


class IsolatedTrial:
    """The calls that show whether a submission's work is ordered with the current stream."""

    def __init__(self, kernel: IsolatedKernel, device: torch.device, data: TrialData) -> None:
        self._kernel = kernel
        self._device = device
        self._data = data

    def on_late_inputs(self, stream: torch.cuda.Stream) -> Any:
        """See :meth:`.StreamOrderingCheck.on_late_inputs`."""
        return self._run(Trial(self._kernel.arm, "late inputs", self._is_own(stream)))

    def on_busy_device(
        self,
        stream: torch.cuda.Stream,
        like: Sequence[torch.Tensor],
        outputs_of: Callable[[Any], list[torch.Tensor]],
    ) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        """See :meth:`.StreamOrderingCheck.on_busy_device`."""
        specs = tuple((tuple(one.shape), one.dtype) for one in like)
        own = self._is_own(stream)
        found = self._run(Trial(self._kernel.arm, "busy device", own, specs))
        if not isinstance(found, dict) or set(found) != {"result", "snapshot", "early"}:
            raise RaisedElsewhere("the submission's process answered what was not asked")
        snapshot = found["snapshot"]
        flat = self._data.current.arena.flat
        if not isinstance(snapshot, torch.Tensor) or snapshot.shape != flat.shape:
            raise RaisedElsewhere("the submission's process answered what was not asked")
        if not like:
            return found["result"], snapshot, []
        early = rebuilt(
            found["early"],
            lambda _, leaf: leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf,
        )
        return found["result"], snapshot, outputs_of(early)

    def _is_own(self, stream: torch.cuda.Stream) -> bool:
        return stream != torch.cuda.default_stream(self._device)

    def _run(self, request: Trial) -> Any:
        apart, data = self._kernel.apart, self._data
        message = apart.prepare(data)
        taken = apart.shared.used_by(data.current.data)
        answer, _, found = self._kernel.asked(request, message.used, taken)
        try:
            return apart.results(answer, found)[0]
        finally:
            close(found)
