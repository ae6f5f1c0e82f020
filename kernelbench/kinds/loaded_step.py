"""A step's library in this process: its entry points, called through C.

A library has two of them, ``kb_run`` and ``kb_describe``; what a call consists of is the problem's
to say (:meth:`kernelbench.kinds.protocol.CompiledProblem.bind`).
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    #: A tensor's memory: its name in reports, the tensor, whether a kernel may write it.
    Buffer = tuple[str, torch.Tensor, bool]
    from kernelbench.emulator.findings import EmulatorReport
    from kernelbench.emulator.runtime import Runtime


_INVALID_CALL, _FAILED = 1, 2
_MESSAGE_BYTES = 1024

_CONSTANTS = (
    "tile_m", "tile_n", "tile_k", "stages", "accumulators", "threads", "cluster", "shared_bytes",
    "tmem_columns",
)  # fmt: skip


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


class Description(ctypes.Structure):
    """``kb::Description``: a step's constants, 0 where there is no such thing."""

    _fields_ = tuple((name, ctypes.c_int32) for name in _CONSTANTS)


@dataclass(frozen=True)
class LoadedStep:
    """The entry points of a loaded step, as a problem binds them."""

    library: ctypes.CDLL
    path: Path  #: The library's file.
    emulation: Runtime | None = None  #: The emulator that the step runs in; None on a GPU.
    timed: bool = False  #: Whether calls are timed, so that what they cost on the host matters.

    def call(self, call: ctypes.Structure, memory: Iterable[Buffer] = ()) -> None:
        """Run one call.

        Args:
            memory: What the kernel may touch; looked at by the emulator only, during the call.

        Raises:
            NotImplementedError: If the call breaks a limit of the step.
            KernelFault: If the kernel or its host path failed.
        """
        emulation = self.emulation
        if emulation is not None:
            for name, tensor, writable in memory:
                size = tensor.numel() * tensor.element_size()
                # What a kernel may write is an output, and holds nothing when the call begins.
                emulation.register(tensor.data_ptr(), size, name, writable=writable, fresh=writable)
        run, message = self._entry
        try:
            status = run(ctypes.byref(call), message, _MESSAGE_BYTES)
        finally:
            if emulation is not None and not emulation.queueing:
                emulation.unregister_all()
        if status:
            self.check(status, message.value.decode(errors="replace"))

    @functools.cached_property
    def _entry(self) -> tuple[Callable[..., int], ctypes.Array[ctypes.c_char]]:
        # Found and allocated once: a kernel of a few microseconds waits for its call.
        return self.library.kb_run, ctypes.create_string_buffer(_MESSAGE_BYTES)

    def check(self, status: int, message: str) -> None:
        """Raise what a status of ``kb_run`` means; see :meth:`call`."""
        if status == 0:
            return
        text = " ".join(message.split())
        if status == _INVALID_CALL:
            raise NotImplementedError(text or "the step does not take this call")
        raise KernelFault(text or f"kb_run failed with status {status}")

    def address_of(self, function: str) -> int:
        """Where a function of the library is, for callers in C."""
        return ctypes.cast(getattr(self.library, function), ctypes.c_void_p).value or 0

    def stream_on(self, device: torch.device) -> Callable[[], int]:
        """What reads the handle of torch's current stream there, as calls take it.

        On a CPU it is the emulator's, usually 0.
        """
        if device.type != "cuda":
            emulation = self.emulation
            return (lambda: 0) if emulation is None else (lambda: emulation.stream)
        import torch

        index = device.index or 0
        # torch.cuda.current_stream builds an object around it, which takes longer than the rest.
        return lambda: int(torch._C._cuda_getCurrentRawStream(index))

    def describe(self) -> dict[str, int]:
        """The step's constants."""
        description = Description()
        self.library.kb_describe(ctypes.byref(description))
        return {name: int(getattr(description, name)) for name in _CONSTANTS}
