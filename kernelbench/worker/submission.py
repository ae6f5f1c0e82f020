"""The process of one submission: it loads it, calls it when its judge says so, and tells what it
returned.

The judge (:mod:`kernelbench.worker.judge`) is another process, with the inputs, the references and
the verdict; nothing here is trusted. What this module needs is bound before the submission is
loaded, so that one that replaces ``time.perf_counter`` or ``torch.empty`` harms nobody but itself.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import pickle
import socket
import time
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.base.errors import KernelbenchError
from kernelbench.executors.callables import (
    LoadError,
    beforehand_of,
    describe_exception,
    notes_of,
)
from kernelbench.executors.executor import Target
from kernelbench.measure.outcomes import status_of
from kernelbench.measure.returned_memory import poison_free_memory
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Kernel, judging
from kernelbench.project.problem_loading import load_problem
from kernelbench.worker.shared_data import DataMessage, Mapped
from kernelbench.worker.wire import Closed, receive_frame, send_frame

_LONGEST = 400
_MAX_NOTES = 8
#: Of what torch.sort, torch.geqrf and others return.
_NAMED_TUPLES = "torch.return_types"


@dataclass(frozen=True)
class Load:
    """Load a submission."""

    step: Step
    lineage: Lineage
    target: Target
    limit_s: float


@dataclass(frozen=True)
class Prepare:
    """Data for the next call. ``forget``: results of earlier ones that nobody holds any more."""

    message: DataMessage
    forget: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Call it on them. ``rehearsal``: nobody asks what it returns or how long it takes."""

    rehearsal: bool = False


@dataclass(frozen=True)
class Poison:
    """Fill memory of these shapes and types with random bits, and free it."""

    like: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    seed: int


@dataclass(frozen=True)
class Ping:
    """Answer."""


Request = Load | Prepare | Call | Poison | Ping


def encode_request(nonce: str, request: Request) -> bytes:
    """What :func:`serve` understands."""
    return pickle.dumps((nonce, request), pickle.HIGHEST_PROTOCOL)


class Results:
    """What the submission returned and the judge may still hold: memory that is not given away."""

    def __init__(self, mapped: Mapped) -> None:
        self._mapped = mapped
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
        if tensor.layout is not torch.strided or where not in ("cpu", "meta"):
            return {"other": f"{dtype} tensor on {where}", "tensor": False}
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        form: dict[str, Any] = {
            "dtype": dtype, "size": list(tensor.shape), "stride": list(tensor.stride()),
            "offset": tensor.storage_offset(), "parameter": type(tensor) is not torch.Tensor,
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

    def handed_over(self) -> tuple[list[tuple[int, int, int]], int | None]:
        """The last result's own storages in one piece of shared memory: number, offset, size."""
        fresh, self._fresh = self._fresh, {}
        total = sum(storage.nbytes() for storage in fresh.values())
        if not total:
            return [], None
        descriptor = os.memfd_create("kernelbench", os.MFD_CLOEXEC)
        os.ftruncate(descriptor, total)
        places, offset = [], 0
        with mmap.mmap(descriptor, total) as memory:
            start = ctypes.c_char.from_buffer(memory)
            base = ctypes.addressof(start)
            for number, storage in fresh.items():
                ctypes.memmove(base + offset, storage.data_ptr(), storage.nbytes())
                places.append((number, offset, storage.nbytes()))
                offset += storage.nbytes()
            del start
        return places, descriptor


class _Server:
    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._mapped = Mapped()
        self._results = Results(self._mapped)
        self._kernel: Kernel | None = None
        self._step: Step | None = None
        self._data: Any = None
        self._used: tuple[int, ...] = ()
        self._clock = time.perf_counter

    def serve(self) -> None:
        """Answer until the judge has gone."""
        while True:
            try:
                payload, descriptors = receive_frame(self._link)
            except Closed:
                return
            nonce, request = pickle.loads(payload)
            answer: dict[str, Any] = {}
            shared = None
            if isinstance(request, Load):
                answer = self._load(request)
            elif isinstance(request, Prepare):
                self._results.forget(request.forget)
                self._used = request.message.used
                self._data = self._mapped.data(request.message, next(iter(descriptors), None))
            elif isinstance(request, Call):
                answer, shared = self._call(request.rehearsal)
            elif isinstance(request, Poison):
                like = [torch.empty(size, dtype=dtype) for size, dtype in request.like]
                poison_free_memory(like, request.seed)
                del like
            text = json.dumps(answer | {"nonce": nonce}).encode()
            send_frame(self._link, text, () if shared is None else (shared,))
            if shared is not None:
                os.close(shared)

    def _load(self, request: Load) -> dict[str, Any]:
        self._step = request.step
        try:
            problem = judging(load_problem(request.lineage), request.step)
            self._kernel = request.target.executor.load(
                request.step, problem, request.target, request.limit_s
            )
        except LoadError as error:
            return {"load_error": str(error)}
        except KernelbenchError as error:
            return {"failed": status_of(error), "reason": str(error)}
        return {"beforehand": beforehand_of(self._kernel) is not None}

    def _call(self, rehearsal: bool) -> tuple[dict[str, Any], int | None]:
        kernel, clock, data = self._kernel, self._clock, self._data
        assert kernel is not None and self._step is not None
        collecting = gc.isenabled()
        gc.disable()
        try:
            self._mapped.touch(self._used)
            begin = clock()
            result = kernel(data)
            elapsed = clock() - begin
            if rehearsal:
                return {}, None
            described = self._results.described(result)
        except Exception as error:
            return {"raised": _kind(error), "reason": _line(error, self._step)}, None
        finally:
            if collecting:
                gc.enable()
        places, descriptor = self._results.handed_over()
        notes = [note[:_LONGEST] for note in notes_of(kernel)[:_MAX_NOTES]]
        answer = {"elapsed": elapsed, "result": described, "own": places, "notes": notes}
        return answer, descriptor


def _kind(error: Exception) -> str:
    if isinstance(error, NotImplementedError):
        return "unable"
    if isinstance(error, torch.OutOfMemoryError):
        return "memory"
    return "other"


def _line(error: Exception, step: Step) -> str:
    if isinstance(error, NotImplementedError | torch.OutOfMemoryError):
        return " ".join(str(error).split())[:_LONGEST]
    return describe_exception(error, step.entry)


def serve(link: socket.socket) -> None:
    """Be the process of a submission until the judge closes its end of ``link``."""
    torch.set_grad_enabled(False)
    _Server(link).serve()
