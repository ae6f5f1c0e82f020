"""What NVML says of a GPU while work runs on it: clocks, power, throttling, other processes.

Everything here reads; nothing changes a clock, a limit or a mode, and no call needs a permission
that an ordinary user lacks. A query that a GPU or a virtual machine does not support gives None.

Device indices are CUDA ordinals (what ``cuda:N`` means), not NVML indices: the two differ under
``CUDA_VISIBLE_DEVICES`` and on machines with GPUs of several kinds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kernelbench.base.errors import EnvironmentProblem

#: Bits of NVML's clocks-event ("throttle") reasons, by ``nvml.h``.
THROTTLE_BITS: dict[int, str] = {
    0x001: "gpu idle",
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
}
#: Reasons that lower the clock below what was asked for, so that a figure is not comparable.
SLOWING = frozenset(
    {
        "software power cap",
        "hardware slowdown",
        "software thermal slowdown",
        "hardware thermal slowdown",
        "hardware power brake",
    }
)


class NvmlUnavailable(EnvironmentProblem):
    """NVML cannot be used: no driver, no binding, or the two do not fit together."""


@dataclass(frozen=True)
class ClockReading:
    """One reading; None where NVML does not support the query."""

    sm_mhz: float | None  #: Current SM clock in MHz.
    mem_mhz: float | None  #: Current memory clock in MHz.
    temperature_c: float | None  #: GPU temperature in degrees Celsius.
    power_w: float | None  #: Power draw in watts.
    #: Names from :data:`THROTTLE_BITS`; empty also where unsupported.
    throttle_reasons: tuple[str, ...]
    pstate: int | None  #: Performance state, 0 (fastest) to 15.

    @property
    def slowed(self) -> tuple[str, ...]:
        """The reasons that make a timing incomparable (see :data:`SLOWING`)."""
        return tuple(reason for reason in self.throttle_reasons if reason in SLOWING)


def reason_names(bits: int) -> tuple[str, ...]:
    """Names of the set throttle bits, lowest first; an unknown bit is named by its value."""
    names = []
    for shift in range(bits.bit_length()):
        bit = 1 << shift
        if bits & bit:
            names.append(THROTTLE_BITS.get(bit, f"unknown reason {bit:#x}"))
    return tuple(names)


@contextlib.contextmanager
def nvml() -> Iterator[Any]:
    """The initialized ``pynvml``, or NvmlUnavailable; NVML counts its users, so sessions nest."""
    module = _open_nvml()
    try:
        yield module
    finally:
        _close_nvml(module)


def _open_nvml() -> Any:
    # Loading the library first costs a fraction of importing the binding, which is what counts
    # on a machine without a GPU.
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise NvmlUnavailable(
            "no NVIDIA driver on this machine (libnvidia-ml.so.1 was not found)",
            "install the driver, or expose it to this container",
        ) from None
    try:
        import pynvml
    except ImportError:
        raise NvmlUnavailable("the NVML binding is missing", "pip install nvidia-ml-py") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(
            f"the NVIDIA driver does not answer ({error})", "check `nvidia-smi`"
        ) from None
    return pynvml


def _close_nvml(module: Any) -> None:
    with contextlib.suppress(module.NVMLError):
        module.nvmlShutdown()


def ask(module: Any, query: str, *args: Any) -> Any:
    """The answer to an NVML query, or None where driver, GPU or binding do not support it."""
    try:
        return getattr(module, query)(*args)
    except (module.NVMLError, AttributeError):
        return None


def nvml_text(value: Any) -> str:
    """An NVML string, which older bindings give as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def visible_handles(module: Any) -> list[Any]:
    """NVML handles of the GPUs that CUDA shows to this process, by CUDA ordinal.

    ``CUDA_VISIBLE_DEVICES`` is read as the CUDA programming guide says: indices, or prefixes of
    ``GPU-`` or ``MIG-`` UUIDs; the list ends at the first entry that names no device.
    """
    count = ask(module, "nvmlDeviceGetCount") or 0
    handles = [module.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = {nvml_text(ask(module, "nvmlDeviceGetName", handle)) for handle in handles}
    if len(names) > 1 and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        # CUDA puts the fastest GPU first, by a rule of its own: only CUDA can tell the order.
        order = _cuda_bus_ids()
        if order is not None:
            return [module.nvmlDeviceGetHandleByPciBusId(bus) for bus in order]
    if visible is None:
        return handles
    uuids = [nvml_text(ask(module, "nvmlDeviceGetUUID", handle)) for handle in handles]
    chosen: list[Any] = []
    for entry in (part.strip() for part in visible.split(",")):
        found = _named(module, entry, handles, uuids)
        if found is None:
            break
        chosen.append(found)
    return chosen


def _named(module: Any, entry: str, handles: list[Any], uuids: list[str]) -> Any:
    if entry.isdecimal():
        return handles[int(entry)] if int(entry) < len(handles) else None
    if entry.startswith("MIG-"):
        return ask(module, "nvmlDeviceGetHandleByUUID", entry)
    if entry.startswith("GPU-"):
        matches = [h for h, uuid in zip(handles, uuids, strict=True) if uuid.startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    return None


def _cuda_bus_ids() -> list[str] | None:
    """PCI bus ids by CUDA ordinal, from the CUDA driver; None if it does not answer."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    count = ctypes.c_int()
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return None
    buses = []
    for ordinal in range(count.value):
        device, name = ctypes.c_int(), ctypes.create_string_buffer(32)
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) or cuda.cuDeviceGetPCIBusId(
            name, len(name), device
        ):
            return None
        buses.append(name.value.decode())
    return buses


class ClockSampler:
    """Reads the clocks of one GPU; a context manager.

    Args:
        device_index: CUDA ordinal.

    Raises:
        NvmlUnavailable: If NVML cannot be used.
        EnvironmentProblem: If there is no such GPU.
    """

    def __init__(self, device_index: int = 0) -> None:
        self._nvml: Any = _open_nvml()
        handles = visible_handles(self._nvml)
        if not 0 <= device_index < len(handles):
            self.close()
            raise no_such_gpu(device_index, len(handles))
        self._handle = handles[device_index]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave NVML; safe to call twice."""
        if self._nvml is not None:
            _close_nvml(self._nvml)
            self._nvml = None

    def read(self) -> ClockReading:
        """One reading, about a millisecond of host time; EnvironmentProblem once closed."""
        if self._nvml is None:
            raise EnvironmentProblem("the clock sampler is closed")
        return _read(self._nvml, self._handle)

    def energy_mj(self) -> int | None:
        """Millijoules that the board has drawn since the driver was loaded; None if unsupported."""
        found = self._nvml and ask(self._nvml, "nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return None if found is None else int(found)


def _read(module: Any, handle: Any) -> ClockReading:
    reasons = ask(module, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    milliwatts = ask(module, "nvmlDeviceGetPowerUsage", handle)
    pstate = ask(module, "nvmlDeviceGetPerformanceState", handle)
    unknown_pstate = 32
    return ClockReading(
        sm_mhz=_number(ask(module, "nvmlDeviceGetClockInfo", handle, module.NVML_CLOCK_SM)),
        mem_mhz=_number(ask(module, "nvmlDeviceGetClockInfo", handle, module.NVML_CLOCK_MEM)),
        temperature_c=_number(
            ask(module, "nvmlDeviceGetTemperature", handle, module.NVML_TEMPERATURE_GPU)
        ),
        power_w=None if milliwatts is None else milliwatts / 1000.0,
        throttle_reasons=reason_names(int(reasons or 0)),
        pstate=None if pstate in (None, unknown_pstate) else int(pstate),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


def no_such_gpu(index: int, count: int) -> EnvironmentProblem:
    """The error for a CUDA ordinal that this process does not see."""
    if count == 0:
        return EnvironmentProblem(
            f"no GPU {index}: CUDA_VISIBLE_DEVICES hides every GPU, or there is none",
            "check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        )
    return EnvironmentProblem(
        f"no GPU {index}: this process sees {count}", f"use --device 0 to {count - 1}"
    )


def other_processes(index: int, own_pids: Collection[int] = ()) -> int | None:
    """How many processes other than ``own_pids`` hold a compute context on GPU ``index``.

    Inside a container NVML may report process ids of the host, which match none of ours; then
    each of ``own_pids`` is taken to be one of the reported processes. None where NVML cannot
    tell (no driver, no such GPU, or a virtual machine that hides processes).
    """
    try:
        with nvml() as module:
            handles = visible_handles(module)
            if not 0 <= index < len(handles):
                return None
            found = ask(module, "nvmlDeviceGetComputeRunningProcesses", handles[index])
    except NvmlUnavailable:
        return None
    if found is None:
        return None
    return _others({int(process.pid) for process in found}, set(own_pids))


def _others(reported: set[int], own: set[int]) -> int:
    foreign_namespace = not reported & own and any(
        not Path(f"/proc/{pid}").exists() for pid in reported
    )
    if foreign_namespace:
        return max(0, len(reported) - len(own))
    return len(reported - own)
