"""The process of one submission: it loads it, calls it when its judge says so, and tells what it
returned.

The judge (:mod:`kernelbench.isolation.sandbox`) is another process, with the inputs, the references
and the verdict; nothing here is trusted. What this module needs is bound before the submission is
loaded, so that one that replaces ``time.perf_counter`` or ``torch.empty`` harms nobody but itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import select
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from kernelbench.base.errors import KernelbenchError
from kernelbench.isolation.device_memory import DeviceRegion
from kernelbench.isolation.isolated_timing import generator_lost, time_series
from kernelbench.isolation.requests import (
    Call,
    Closed,
    Load,
    Ping,
    Poison,
    Prepare,
    Request,
    Time,
    Trial,
    TrialData,
    close,
    receive_frame,
    run_trial,
    send_frame,
)
from kernelbench.isolation.shared_data import HostRegion, Mapped, bytes_of
from kernelbench.kinds.callables import LoadError, describe_exception, notes_of, untimed_setup_of
from kernelbench.measure.results import status_of
from kernelbench.measure.returned_memory import poison_free_memory
from kernelbench.measure.timing import SYNCHRONIZE
from kernelbench.project.model import Step
from kernelbench.project.problem import Kernel, judging
from kernelbench.project.problem_loading import load_problem

#: Of what torch.sort, torch.geqrf and others return.
_NAMED_TUPLES = "torch.return_types"
_synchronize = torch.cuda.synchronize

_LONGEST = 400
_MAX_NOTES = 8
#: Seconds that a process on a GPU stays awake for the next question while it is timed: the host's
#: part of a call takes longer in one that has slept.
_AWAKE_S = 0.05
#: What is answered, and the descriptors that go with it.
_Answer = tuple[dict[str, Any], Sequence[int]]


class Results:
    """What the submission returned and the judge may still hold: memory that is not given away.

    Args:
        device: Where tensors may lie beside the host.
    """

    def __init__(self, mapped: Mapped, device: str = "cpu") -> None:
        self._mapped = mapped
        self._device = torch.device(device)
        self._region: tuple[DeviceRegion, int] | None = None
        self._held: dict[int, tuple[int, Any]] = {}
        self._last = 0
        self._fresh: dict[int, Any] = {}

    def forget(self, numbers: tuple[int, ...]) -> None:
        """Let go of these storages."""
        self._held = {at: held for at, held in self._held.items() if held[0] not in numbers}

    def described(self, value: Any) -> Any:
        """A result as JSON: containers and plain values of exactly these types, tensors by form."""
        kind = type(value)
        if kind is list:
            return {"list": [self.described(item) for item in value]}
        if kind is tuple or kind.__module__ == _NAMED_TUPLES:
            return {"tuple": [self.described(item) for item in tuple.__iter__(value)]}
        if kind is dict:
            return {"dict": [[key, self.described(item)] for key, item in value.items()]}
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._tensor(value)
        if value is None or kind in (bool, int, float, str):
            return {"value": value}
        return {"other": kind.__name__, "tensor": issubclass(kind, torch.Tensor)}

    def _tensor(self, tensor: torch.Tensor) -> Any:
        dtype = str(tensor.dtype).removeprefix("torch.")
        where = tensor.device.type
        known = where in ("cpu", "meta") or tensor.device == self._device
        if tensor.layout is not torch.strided or not known:
            return {"other": f"{dtype} tensor on {tensor.device}", "tensor": False}
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        form: dict[str, Any] = {
            "dtype": dtype, "size": list(tensor.shape), "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(), "parameter": type(tensor) is not torch.Tensor,
            "device": where,
        }  # fmt: skip
        if where == "meta":
            return {"tensor": form | {"in": "meta"}}
        storage = tensor.untyped_storage()
        pointer, size = storage.data_ptr(), storage.nbytes()
        if not size or not pointer:
            return {"tensor": form | {"in": "nothing"}}
        shared = self._mapped.find(pointer)
        if shared is not None:
            number, before = shared
            return {"tensor": form | {"in": "shared", "storage": number, "before": before}}
        if pointer not in self._held:
            self._last += 1
            self._held[pointer] = self._last, storage
        number = self._held[pointer][0]
        self._fresh[number] = storage
        return {"tensor": form | {"in": "own", "storage": number, "bytes": size}}

    def handed_over(self) -> tuple[dict[str, Any], list[int]]:
        """The last result's own storages, as number, offset and size, and the memory they are in.

        Those of the host lie in a memory file of their own, those of a GPU in a region that is kept
        from result to result: its descriptor goes once, with its size as ``region``.
        """
        fresh, self._fresh = self._fresh, {}
        host = {n: one for n, one in fresh.items() if one.device.type == "cpu" and one.nbytes()}
        device = {n: one for n, one in fresh.items() if one.device.type != "cpu" and one.nbytes()}
        own: dict[str, Any] = {}
        descriptors = []
        if host:
            own["host"], descriptor = _in_memory_file(host)
            descriptors.append(descriptor)
        if device:
            places, total = _one_after_another(device)
            own["device"] = places
            if self._region is None or self._region[1] < total:
                self._region = None
                region, size, descriptor = DeviceRegion.create(self._device, total)
                self._region = region, size
                own["region"] = size
                descriptors.append(descriptor)
            for number, offset, size in places:
                bytes_of(self._region[0].storage(offset, size)).copy_(bytes_of(device[number]))
            _synchronize(self._device)
        return own, descriptors


def _one_after_another(storages: dict[int, Any]) -> tuple[list[tuple[int, int, int]], int]:
    places, offset = [], 0
    for number, storage in storages.items():
        places.append((number, offset, storage.nbytes()))
        offset += -(-storage.nbytes() // 256) * 256
    return places, offset


def _in_memory_file(storages: dict[int, Any]) -> tuple[list[tuple[int, int, int]], int]:
    places, total = _one_after_another(storages)
    region, _, descriptor = HostRegion.create(total)
    for number, offset, size in places:
        bytes_of(region.storage(offset, size)).copy_(bytes_of(storages[number]))
    return places, descriptor


class _JudgeGone(BaseException):
    """There is nobody to answer; no error of a submission's that could be caught."""


class _Server:
    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._mapped = Mapped()
        self._results = Results(self._mapped)
        self._device = "cpu"
        self._kernels: list[tuple[Kernel, Step]] = []
        self._data: Any = None
        self._used: tuple[int, ...] = ()
        self._idle = torch.empty(0), torch.empty(0)
        self._clock = time.perf_counter
        self._asked = select.select
        self._settle: Callable[[], None] = lambda: None
        self._nonce = ""

    def serve(self) -> None:
        """Answer until the judge has gone."""
        with contextlib.suppress(_JudgeGone):
            request, descriptors = self._next()
            while True:
                try:
                    answer, given = self._answer(request, descriptors)
                except KernelbenchError as error:
                    answer, given = {"failed": status_of(error), "reason": str(error)}, ()
                request, descriptors = self._tell(answer, given)

    def _next(self) -> tuple[Request, list[int]]:
        try:
            payload, descriptors = receive_frame(self._link)
        except Closed as error:
            raise _JudgeGone from error
        self._nonce, request = pickle.loads(payload)
        return request, descriptors

    def _tell(
        self, answer: dict[str, Any], given: Sequence[int] = (), awake: bool = False
    ) -> tuple[Request, list[int]]:
        """Answer, and wait for what is asked next."""
        text = json.dumps(answer | {"nonce": self._nonce}).encode()
        send_frame(self._link, text, given)
        close(given)
        until = self._clock() + _AWAKE_S * awake
        while self._clock() < until and not self._asked([self._link], [], [], 0)[0]:
            pass
        return self._next()

    def _answer(self, request: Request, descriptors: list[int]) -> _Answer:
        match request:
            case Load():
                return self._load(request), ()
            case Prepare():
                self._results.forget(request.forget)
                self._used = request.message.used
                self._data = self._mapped.data(request.message, descriptors)
            case Call():
                return self._call(request)
            case Trial():
                return self._guarded(request.arm, lambda: self._trial(request))
            case Poison():
                like = [
                    torch.empty(size, dtype=dtype, device=request.device)
                    for size, dtype in request.like
                ]
                poison_free_memory(like, request.seed)
                del like
            case Time():
                return self._time(request, self._mapped.data(request.message, descriptors)), ()
            case Ping():
                if request.device:
                    self._settle = partial(SYNCHRONIZE, torch.device(request.device))
                    torch.cuda.set_device(request.device)
                    torch.cuda._sleep(1)
                    self._settle()
                return {}, self._idle_bytes(request)
        return {}, ()

    def _idle_bytes(self, request: Ping) -> list[int]:
        """Read and hand over as many bytes as a call would."""
        read, returned = self._idle
        if (read.numel(), returned.numel()) != (request.read, request.returned):
            read = torch.zeros(request.read, dtype=torch.uint8)
            returned = torch.zeros(request.returned, dtype=torch.uint8)
            self._idle = read, returned
        read.sum()
        if not request.returned:
            return []
        return [_in_memory_file({0: returned.untyped_storage()})[1]]

    def _load(self, request: Load) -> dict[str, Any]:
        if request.target.gpu is not None and not self._kernels:
            self._device = request.target.device
            torch.cuda.set_device(self._device)
            self._settle = partial(SYNCHRONIZE, torch.device(self._device))
            self._results = Results(self._mapped, self._device)
        try:
            problem = judging(load_problem(request.lineage), request.step)
            kernel = request.target.executor.load(
                request.step, problem, request.target, request.limit_s
            )
        except LoadError as error:
            return {"load_error": str(error)}
        except KernelbenchError as error:
            return {"failed": status_of(error), "reason": str(error)}
        self._kernels.append((kernel, request.step))
        return {"untimed_setup": untimed_setup_of(kernel) is not None}

    def _guarded(self, arm: int, work: Callable[[], _Answer]) -> _Answer:
        """What the work answers, or what the submission raised."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return work()
        except Exception as error:
            return _raised(error, self._kernels[arm][1]) | {"lost": self._lost()}, ()
        finally:
            if collecting:
                gc.enable()

    def _lost(self) -> bool:
        """Whether nothing works any more in this process's CUDA context."""
        try:
            self._settle()
        except RuntimeError:
            return True
        return False

    def _call(self, request: Call) -> _Answer:
        kernel, _ = self._kernels[request.arm]
        clock, settle, data = self._clock, self._settle, self._data

        def work() -> _Answer:
            self._mapped.touch(self._used)
            begin = clock()
            result = kernel(data)
            settle()
            elapsed = clock() - begin
            if request.rehearsal:
                return {}, ()
            answer, given = self._told(result)
            notes = [note[:_LONGEST] for note in notes_of(kernel)[:_MAX_NOTES]]
            return answer | {"elapsed": elapsed, "notes": notes}, given

        return self._guarded(request.arm, work)

    def _told(self, result: Any) -> tuple[dict[str, Any], list[int]]:
        described = self._results.described(result)
        own, given = self._results.handed_over()
        return {"result": described, "own": own}, given

    def _trial(self, request: Trial) -> tuple[dict[str, Any], list[int]]:
        trial_data: TrialData = self._data
        kernel, _ = self._kernels[request.arm]
        return self._told(run_trial(kernel, trial_data, request, torch.device(self._device)))

    def _time(self, request: Time, sets: Any) -> dict[str, Any]:
        """Time a series; what is asked meanwhile is answered by the verifier of the timer."""

        def ask(answer: dict[str, Any], results: Any) -> Request:
            told, given = ({}, []) if results is None else self._told(results)
            return self._tell(answer | told, given, awake=self._device != "cpu")[0]

        kernels = [self._kernels[arm][0] for arm in request.arms]
        timed, _ = self._guarded(
            request.arms[0],
            lambda: (time_series(kernels, request, sets, torch.device(self._device), ask), ()),
        )
        return timed | {"lost": self._lost(), "generator": generator_lost(self._device)}


def _raised(error: Exception, step: Step) -> dict[str, Any]:
    text = " ".join(str(error).split())[:_LONGEST]
    if isinstance(error, NotImplementedError):
        return {"raised": "unable", "reason": text}
    if isinstance(error, torch.OutOfMemoryError):
        return {"raised": "memory", "reason": text}
    return {"raised": "other", "reason": describe_exception(error, step.entry)}


def serve(link: socket.socket) -> None:
    """Be the process of a submission until the judge closes its end of ``link``."""
    torch.set_grad_enabled(False)
    _Server(link).serve()
