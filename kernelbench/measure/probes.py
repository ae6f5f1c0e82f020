"""Probes of a GPU: SM clock stamps, spins, the read-only floor, the persisting part of the L2.

The kernels are in ``probes.cu``, compiled once for the present GPU and loaded with ctypes.
Without a compiler :func:`load_probes` gives None and the reason; then :func:`spin` falls back to
torch's own, and clocks come from NVML. Every enqueued probe may be captured into a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.machine import devices

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

SOURCE = Path(__file__).parent / "probes.cu"
_FLAGS = ("-O3", "-std=c++17")
#: ``CU_LIMIT_PERSISTING_L2_CACHE_SIZE`` of the CUDA driver API.
_LIMIT_PERSISTING_L2 = 0x06
#: Cycles per second assumed for torch's spin, which counts cycles: near every GPU's boost clock.
_ASSUMED_HZ = 1.7e9

ReadVariant = Literal["auto", "bulk", "vector"]


class ProbeError(EnvironmentProblem):
    """A probe could not be enqueued; the message is CUDA's."""


@dataclass(frozen=True)
class Probes:
    """The compiled probes of one GPU.

    Streams are raw handles (``torch.cuda.Stream.cuda_stream``), pointers raw device addresses
    (``Tensor.data_ptr()``). Nothing synchronizes.
    """

    device: int  #: CUDA ordinal.
    sms: int  #: Number of SMs.
    bulk: bool  #: Whether it has bulk async copies (sm_90+).
    stamp_slots: int  #: Entries of a stamp buffer, two int64 each.
    library: Any

    def clock_stamp(self, slots: int, stream: int) -> None:
        """Write (cycles, nanoseconds) of each SM that runs a CTA into its slot.

        Args:
            slots: Device address of ``stamp_slots`` × 2 int64, 16-byte aligned, zeroed before.
            stream: The CUDA stream, as an integer.
        """
        self._check(self.library.kb_probe_stamp(self.device, slots, stream))

    def spin_cycles(self, cycles: int, stream: int) -> None:
        """Keep one thread of one SM busy for so many of its clock cycles."""
        self._check(self.library.kb_probe_spin_cycles(self.device, cycles, stream))

    def spin_ns(self, nanoseconds: int, stream: int) -> None:
        """Keep one thread busy for so long by the GPU's global timer (steps of up to 1 µs)."""
        self._check(self.library.kb_probe_spin_ns(self.device, nanoseconds, stream))

    def empty(self, stream: int) -> None:
        """Launch a kernel that does nothing."""
        self._check(self.library.kb_probe_empty(self.device, stream))

    def read_stream(
        self, data: int, nbytes: int, checksum: int, stream: int, variant: ReadVariant = "auto"
    ) -> None:
        """Read ``nbytes`` from ``data`` once: the floor under any kernel that must.

        ``bulk`` copies 16 KB chunks into a 192 KB ring per SM and XORs the first 512 bytes of each
        into ``checksum``; ``vector`` loads 16 bytes per thread at a time and XORs everything.

        Args:
            data: Device address, 16-byte aligned.
            nbytes: A multiple of 16.
            checksum: Device address of one uint32, XORed into as 32-bit words.
            stream: The CUDA stream, as an integer.
            variant: ``auto`` is ``bulk`` where the GPU has bulk copies.

        Raises:
            ValueError: If address or size is not a multiple of 16.
            ProbeError: If ``bulk`` is asked of a GPU without it, or the launch fails.
        """
        if data % 16 or nbytes % 16 or nbytes < 0:
            raise ValueError(f"read_stream: address and size must be multiples of 16, not {nbytes}")
        bulk = self.bulk if variant == "auto" else variant == "bulk"
        library = self.library
        read = library.kb_probe_read_bulk if bulk else library.kb_probe_read_vector
        self._check(read(self.device, data, nbytes, checksum, stream))

    def _check(self, status: int) -> None:
        if status != 0:
            raise ProbeError(f"a probe failed on GPU {self.device}: {_message(self.library)}")


def _message(library: Any) -> str:
    return str(library.kb_probe_error().decode(errors="replace"))


def _open(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    pointer, u64, c_int = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int
    int_out = ctypes.POINTER(ctypes.c_int)
    signatures: dict[str, list[Any]] = {
        "kb_probe_stamp_slots": [],
        "kb_probe_init": [c_int, int_out, int_out],
        "kb_probe_stamp": [c_int, pointer, pointer],
        "kb_probe_spin_cycles": [c_int, u64, pointer],
        "kb_probe_spin_ns": [c_int, u64, pointer],
        "kb_probe_empty": [c_int, pointer],
        "kb_probe_read_bulk": [c_int, pointer, u64, pointer, pointer],
        "kb_probe_read_vector": [c_int, pointer, u64, pointer, pointer],
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    library.kb_probe_error.argtypes, library.kb_probe_error.restype = [], ctypes.c_char_p
    return library


def compile_probes(capability: tuple[int, int]) -> Path:
    """The probes' library for a capability, cached or built now; or EnvironmentProblem."""
    flags = [*_FLAGS, *compiler.cuda_arch_flags(capability)]
    return compiler.compile_shared("probes", [SOURCE], flags)


@functools.cache
def load_probes(device: int = 0) -> tuple[Probes | None, str]:
    """The probes of GPU ``device`` and "", or None and the reason in one line.

    Builds on first use (about 5 s); makes CUDA calls, so only for processes that use the GPU.
    """
    found = devices.gpus()
    if not 0 <= device < len(found):
        return None, devices.gpu_problem() or f"no GPU {device}"
    try:
        library = _open(compile_probes(found[device].capability))
    except (EnvironmentProblem, OSError) as error:
        return None, " ".join(str(error).split())
    sms, bulk = ctypes.c_int(), ctypes.c_int()
    if library.kb_probe_init(device, ctypes.byref(sms), ctypes.byref(bulk)):
        return None, _message(library)
    slots = int(library.kb_probe_stamp_slots())
    return Probes(device, sms.value, bool(bulk.value), slots, library), ""


class ClockStamps:
    """Two stamps around a stretch of work on one GPU, and the SM clock between them.

    Needs no permission and costs two launches; unlike NVML's, the clock is that of the stretch
    itself. Make one with :meth:`create`.
    """

    def __init__(self, probes: Probes, buffer: torch.Tensor) -> None:
        self._probes = probes
        self._buffer = buffer

    @classmethod
    def create(cls, device: torch.device) -> ClockStamps | None:
        """Stamps for ``device``; None where they cannot be built (see :func:`load_probes`)."""
        import torch

        index = torch.cuda.current_device() if device.index is None else device.index
        probes, _ = load_probes(index)
        if probes is None:
            return None
        shape = (2, probes.stamp_slots, 2)
        buffer = torch.zeros(shape, dtype=torch.int64, device=device)
        # Zeroed on this stream, stamped on others.
        torch.cuda.synchronize(device)
        return cls(probes, buffer)

    def stamp(self, index: int, stream: torch.cuda.Stream) -> None:
        """Enqueue stamp 0 (before the work) or 1 (after it) on ``stream``."""
        import torch

        with torch.cuda.stream(stream):
            self._buffer[index].zero_()
        self._probes.clock_stamp(self._buffer[index].data_ptr(), stream.cuda_stream)

    def sm_mhz(self) -> float | None:
        """Median SM clock in MHz between the stamps; synchronizes. None if it cannot be told."""
        import torch

        torch.cuda.synchronize(self._buffer.device)
        before, after = self._buffer.cpu().numpy()
        return median_sm_mhz(before, after)


def median_sm_mhz(before: npt.NDArray[np.int64], after: npt.NDArray[np.int64]) -> float | None:
    """Median over SMs of cycles per microsecond between two stamps.

    Args:
        before: int64 [slots, 2], (cycles, ns) by SM, zero where no CTA ran.
        after: Likewise.

    Returns:
        MHz, or None if no SM has both stamps and time between them.
    """
    import numpy as np

    delta = after.view(np.uint64) - before.view(np.uint64)
    cycles, ns = delta[:, 0].astype(np.float64), delta[:, 1].astype(np.int64)
    stamped = (before[:, 1] != 0) & (after[:, 1] != 0) & (ns > 0)
    if not stamped.any():
        return None
    return float(np.median(cycles[stamped] / ns[stamped]) * 1e3)


def spin(seconds: float, stream: torch.cuda.Stream) -> None:
    """Keep ``stream`` busy for about ``seconds``, so that the host can queue work behind it.

    Exact to a microsecond with the probes; within some tens of percent with torch's own spin,
    which counts cycles.
    """
    probes, _ = load_probes(stream.device.index)
    if probes is not None:
        probes.spin_ns(round(seconds * 1e9), stream.cuda_stream)
        return
    import torch

    with torch.cuda.stream(stream):
        sleep: Any = torch.cuda._sleep
        sleep(round(seconds * _ASSUMED_HZ))


@functools.cache
def _driver() -> Any:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def persisting_l2_limit() -> int | None:
    """Bytes of L2 set aside for persisting accesses in the current context, 0 being the default.

    None without a driver or a current context (``cuCtxGetLimit``, CUDA driver API).
    """
    driver = _driver()
    if driver is None:
        return None
    size = ctypes.c_size_t()
    if driver.cuCtxGetLimit(ctypes.byref(size), _LIMIT_PERSISTING_L2):
        return None
    return size.value


def reset_persisting_l2() -> bool:
    """Turn all persisting lines of the L2 back to normal ones; whether that was done.

    A kernel may mark lines so that an ordinary flush does not evict them; a cold-L2 timing must
    reset them first (``cuCtxResetPersistingL2Cache``, CUDA driver API). Not for use in a capture.
    """
    driver = _driver()
    return driver is not None and driver.cuCtxResetPersistingL2Cache() == 0
