"""What a submission returned, rebuilt from bytes and a description that nobody vouches for."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.isolation.device_memory import DeviceRegion
from kernelbench.isolation.shared_data import SharedData, bytes_of

_MAX_RANK = 64


class BadAnswer(Exception):
    """A description that describes nothing; one line, behind ``answered``."""


class Returned:
    """Results as tensors of the judge's own.

    Tensors in the data that were handed over become views of the judge's. Any others lie in
    storages of the submission's: one that it returns twice is one here, too. Those of a GPU come in
    a region of the submission's process, which this one has mapped, too, and copies from.

    Args:
        device: Where results may lie beside the host.
    """

    def __init__(self, shared: SharedData, device: str = "cpu") -> None:
        self._shared = shared
        self._device = torch.device(device)
        self._region: tuple[DeviceRegion, int] | None = None
        self._own: dict[int, StorageWeakRef] = {}
        self._now: dict[int, torch.Tensor] = {}

    def expired(self) -> tuple[int, ...]:
        """Storages of earlier results that nobody here holds any more."""
        self._now = {}
        gone = tuple(number for number, ref in self._own.items() if ref.expired())
        for number in gone:
            del self._own[number]
        return gone

    def take(self, own: Any, descriptors: list[int]) -> int:
        """Copy the storages that came with an answer; how many bytes they are.

        Args:
            own: What :meth:`kernelbench.isolation.sandbox_child.Results.handed_over` says.

        Raises:
            BadAnswer: If they are not there.
        """
        if not isinstance(own, dict):
            raise BadAnswer("tensors nowhere")
        left = list(descriptors)
        total = 0
        if own.get("host"):
            if not left:
                raise BadAnswer("tensors without memory")
            descriptor = left.pop(0)
            for number, offset, size in _places(own["host"], os.fstat(descriptor).st_size):
                target = self._storage_of(number, size, torch.device("cpu"))
                _read(descriptor, offset, target)
                self._now[number] = target
                total += size
        if own.get("device"):
            total += self._take_from_device(own, left)
        return total

    def _take_from_device(self, own: dict[str, Any], descriptors: list[int]) -> int:
        if descriptors:
            size = own.get("region")
            if type(size) is not int or not _is_count(size) or self._device.type == "cpu":
                raise BadAnswer("tensors without memory")
            self._region = None
            try:
                self._region = DeviceRegion.opened(self._device, descriptors[0], size), size
            except (EnvironmentProblem, torch.OutOfMemoryError) as error:
                raise BadAnswer("memory that cannot be mapped") from error
        if self._region is None:
            raise BadAnswer("tensors without memory")
        region, there = self._region
        total = 0
        for number, offset, size in _places(own["device"], there):
            target = self._storage_of(number, size, self._device)
            target.copy_(bytes_of(region.storage(offset, size)))
            self._now[number] = target
            total += size
        torch.cuda.synchronize(self._device)
        return total

    def _storage_of(self, number: int, size: int, device: torch.device) -> torch.Tensor:
        """Bytes for a storage: those that it has had, if somebody still holds them."""
        old = self._own.get(number)
        storage = None if old is None else torch.UntypedStorage._new_with_weak_ptr(old.cdata)
        if storage is not None and storage.nbytes() == size and storage.device == device:
            return bytes_of(storage)
        try:
            made = torch.empty(size, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            raise BadAnswer(f"a tensor of {size} bytes") from error
        self._own[number] = StorageWeakRef(made.untyped_storage())
        return made

    def rebuilt(self, value: Any) -> Any:
        """The result that was described.

        Raises:
            BadAnswer: If nothing was.
        """
        try:
            return self._rebuilt(value)
        except RecursionError as error:
            raise BadAnswer("a result without end") from error
        except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
            raise BadAnswer("a result that cannot be") from error

    def _rebuilt(self, value: Any) -> Any:
        match value:
            case {"list": list(items)}:
                return [self._rebuilt(item) for item in items]
            case {"tuple": list(items)}:
                return tuple(self._rebuilt(item) for item in items)
            case {"dict": list(items)}:
                return {key: self._rebuilt(item) for key, item in items}
            case {"value": plain} if plain is None or isinstance(plain, bool | int | float | str):
                return plain
            case {"other": str(name), "tensor": bool(is_tensor)}:
                return _stand_in(name, is_tensor)
            case {"tensor": dict(form)}:
                return self._tensor(form)
        raise BadAnswer("a result that cannot be read")

    def _where(self, form: dict[str, Any]) -> torch.device:
        return torch.device("cpu") if form.get("device") == "cpu" else self._device

    def _tensor(self, form: dict[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, form["dtype"])
        size, stride, offset = form["size"], form["stride"], form["offset"]
        counts = [*size, *stride, offset]
        if not isinstance(dtype, torch.dtype) or not all(map(_is_count, counts)):
            raise BadAnswer("a tensor that cannot be")
        if len(size) != len(stride) or len(size) > _MAX_RANK:
            raise BadAnswer("a tensor that cannot be")
        if form["in"] == "meta":
            return torch.empty_strided(size, stride, dtype=dtype, device="meta")
        if form["in"] == "nothing":
            if all(size):
                raise BadAnswer("a tensor without memory")
            return torch.empty(size, dtype=dtype, device=self._where(form))
        if form["in"] == "shared":
            storage, before = self._shared.own(form["storage"]), form["before"]
        else:
            storage, before = self._now[form["storage"]].untyped_storage(), 0
        made = torch.empty(0, dtype=dtype, device=storage.device)
        width = made.element_size()
        if not _is_count(before) or before % width:
            raise BadAnswer("a tensor between two elements")
        offset += before // width
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if all(size) and (last + 1) * width > storage.nbytes():
            raise BadAnswer("a tensor beyond its memory")
        if not all(size):
            return torch.empty(size, dtype=dtype, device=storage.device)
        made = made.set_(storage, offset, size, stride)
        return torch.nn.Parameter(made, requires_grad=False) if form["parameter"] is True else made


def _places(found: Any, there: int) -> list[tuple[int, int, int]]:
    """Number, offset and size of storages in memory of so many bytes.

    Raises:
        BadAnswer: If they are not in it.
    """
    if not isinstance(found, list):
        raise BadAnswer("tensors nowhere")
    places = []
    for place in found:
        if not (isinstance(place, list) and len(place) == 3 and all(map(_is_count, place))):
            raise BadAnswer("tensors nowhere")
        number, offset, size = place
        if not size or offset + size > there:
            raise BadAnswer("tensors beyond their memory")
        places.append((number, offset, size))
    return places


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _read(descriptor: int, offset: int, target: torch.Tensor) -> None:
    view = memoryview(target.numpy().data)
    while view:
        got = os.preadv(descriptor, [view], offset)
        if got <= 0:
            raise BadAnswer("less memory than it said")
        view, offset = view[got:], offset + got


def _stand_in(name: str, is_tensor: bool) -> Any:
    """An object of a class of that name, for the line that says what was returned."""
    name = name[:80].replace("\0", "") or "object"
    if is_tensor:
        kind = type(name, (torch.Tensor,), {})
        return torch.Tensor._make_subclass(kind, torch.empty(0))
    return type(name, (), {})()
