"""GPU memory that two processes have mapped, by a descriptor that one sends the other.

An allocation of its own for each region (``cuMemCreate``), exported as a file descriptor: whoever
has that maps these pages and no others. torch's allocator would hand out parts of segments in which
other tensors lie. Driver API, CUDA 11.2 or newer; a context has to be current.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.base.errors import EnvironmentProblem

_PINNED, _POSIX_DESCRIPTOR, _ON_DEVICE, _READ_WRITE = 1, 1, 1, 3
_MINIMUM = 0


class _Location(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("device", ctypes.c_int))


class _Properties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_uint8 * 8),
    )


class _Access(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _driver() -> Any:
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise _unshared(str(error)) from error
    size, handle, device_pointer = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_uint64
    to_size, to_handle = ctypes.POINTER(size), ctypes.POINTER(handle)
    properties, number = ctypes.POINTER(_Properties), ctypes.c_uint64
    for name, arguments in {
        "cuMemGetAllocationGranularity": [to_size, properties, ctypes.c_int],
        "cuMemCreate": [to_handle, size, properties, number],
        "cuMemExportToShareableHandle": [ctypes.c_void_p, handle, ctypes.c_int, number],
        "cuMemImportFromShareableHandle": [to_handle, ctypes.c_void_p, ctypes.c_int],
        "cuMemAddressReserve": [to_handle, size, size, device_pointer, number],
        "cuMemMap": [device_pointer, size, size, handle, number],
        "cuMemSetAccess": [device_pointer, size, ctypes.POINTER(_Access), size],
        "cuMemUnmap": [device_pointer, size],
        "cuMemAddressFree": [device_pointer, size],
        "cuMemRelease": [handle],
        "cuGetErrorString": [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)],
    }.items():
        function = getattr(driver, name)
        function.argtypes, function.restype = arguments, ctypes.c_int
    return driver


def _unshared(why: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"GPU memory cannot be shared between processes: {why}",
        "a submission on a GPU is judged from another process, which takes it: "
        "try a machine, or a container, where `nvidia-smi` says no MIG and no vGPU",
    )


def _do(name: str, *arguments: Any) -> None:
    """Call the driver.

    Raises:
        torch.OutOfMemoryError: If there is no memory left.
        EnvironmentProblem: If it refuses.
    """
    driver = _driver()
    code = getattr(driver, name)(*arguments)
    if code == 0:
        return
    text = ctypes.c_char_p()
    driver.cuGetErrorString(code, ctypes.byref(text))
    said = (text.value or b"unknown error").decode(errors="replace")
    if code == 2:
        raise torch.OutOfMemoryError(f"{name}: {said}")
    raise _unshared(f"{name}: {said}")


@dataclass(frozen=True)
class _Bytes:
    """What torch makes a tensor of without copying; it keeps ``owner``."""

    owner: Any
    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,), "typestr": "|u1", "data": (self.address, False),
            "strides": None, "version": 3,
        }  # fmt: skip


class DeviceRegion:
    """One piece of GPU memory, mapped in this process for as long as a tensor of it lives.

    Args:
        device: Of a context that is current.
        handle: The allocation; what is here of it is given back with the region.
        size: A multiple of the granularity.
    """

    def __init__(self, device: torch.device, handle: int, size: int) -> None:
        self._device = device
        address = ctypes.c_uint64()
        try:
            _do("cuMemAddressReserve", ctypes.byref(address), size, 0, 0, 0)
            _do("cuMemMap", address.value, size, 0, handle, 0)
        finally:
            _do("cuMemRelease", handle)  # the mapping keeps it
        self._address = address.value
        weakref.finalize(self, _unmap, address.value, size).atexit = False
        access = _Access(_Location(_ON_DEVICE, device.index), _READ_WRITE)
        _do("cuMemSetAccess", address.value, size, ctypes.byref(access), 1)

    @classmethod
    def create(cls, device: torch.device, size: int) -> tuple[DeviceRegion, int, int]:
        """Allocate at least so many bytes: the region, its size, its descriptor.

        Raises:
            torch.OutOfMemoryError, EnvironmentProblem: If there is none.
        """
        torch.zeros(1, device=device)  # makes the context current
        properties = _Properties(
            _PINNED, _POSIX_DESCRIPTOR, _Location(_ON_DEVICE, device.index), None
        )
        granularity = ctypes.c_size_t()
        _do(
            "cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties),
            _MINIMUM,
        )  # fmt: skip
        size = -(-max(size, 1) // granularity.value) * granularity.value
        handle, descriptor = ctypes.c_uint64(), ctypes.c_int(-1)
        _do("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), 0)
        try:
            _do(
                "cuMemExportToShareableHandle", ctypes.byref(descriptor), handle.value,
                _POSIX_DESCRIPTOR, 0,
            )  # fmt: skip
        except EnvironmentProblem:
            _do("cuMemRelease", handle.value)
            raise
        os.set_inheritable(descriptor.value, False)
        return cls(device, handle.value, size), size, descriptor.value

    @classmethod
    def opened(cls, device: torch.device, descriptor: int, size: int) -> DeviceRegion:
        """Map a region that another process has created; the descriptor stays the caller's."""
        torch.zeros(1, device=device)
        handle = ctypes.c_uint64()
        _do(
            "cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor),
            _POSIX_DESCRIPTOR,
        )  # fmt: skip
        return cls(device, handle.value, size)

    def storage(self, offset: int, size: int) -> torch.UntypedStorage:
        """A storage over a part of the region, which stays mapped while the storage lives."""
        part = _Bytes(self, self._address + offset, size)
        return torch.as_tensor(part, device=self._device).untyped_storage()


def _unmap(address: int, size: int) -> None:
    with contextlib.suppress(RuntimeError, EnvironmentProblem):  # a lost context has nothing left
        torch.cuda.synchronize()
        _do("cuMemUnmap", address, size)
        _do("cuMemAddressFree", address, size)
