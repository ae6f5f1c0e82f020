"""What a submission returned, as its process describes it and hands it over."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import torch

from kernelbench.worker.device_memory import DeviceRegion
from kernelbench.worker.shared_data import Mapped, bytes_of

#: Of what torch.sort, torch.geqrf and others return.
_NAMED_TUPLES = "torch.return_types"
_synchronize = torch.cuda.synchronize


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
    descriptor = os.memfd_create("kernelbench", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, total)
    with mmap.mmap(descriptor, total) as memory:
        start = ctypes.c_char.from_buffer(memory)
        base = ctypes.addressof(start)
        for number, offset, size in places:
            ctypes.memmove(base + offset, storages[number].data_ptr(), size)
        del start
    return places, descriptor
