"""What a submission returned, rebuilt from bytes and a description that nobody vouches for."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelbench.worker.shared_data import SharedData

_MAX_RANK = 64


class BadAnswer(Exception):
    """A description that describes nothing; one line, behind ``answered``."""


class Returned:
    """Results as tensors of the judge's own.

    Tensors in the data that were handed over become views of the judge's. Any others lie in
    storages of the submission's: one that it returns twice is one here, too.
    """

    def __init__(self, shared: SharedData) -> None:
        self._shared = shared
        self._own: dict[int, StorageWeakRef] = {}
        self._now: dict[int, torch.Tensor] = {}

    def expired(self) -> tuple[int, ...]:
        """Storages of earlier results that nobody here holds any more."""
        self._now = {}
        gone = tuple(number for number, ref in self._own.items() if ref.expired())
        for number in gone:
            del self._own[number]
        return gone

    def take(self, places: Any, descriptors: list[int]) -> int:
        """Copy the storages that came with an answer; how many bytes they are.

        Raises:
            BadAnswer: If they are not there.
        """
        if not places:
            return 0
        if not isinstance(places, list) or len(descriptors) != 1:
            raise BadAnswer("tensors without memory")
        there = os.fstat(descriptors[0]).st_size
        total = 0
        for place in places:
            if not (isinstance(place, list) and len(place) == 3 and all(map(_is_count, place))):
                raise BadAnswer("tensors nowhere")
            number, offset, size = place
            if not size or offset + size > there:
                raise BadAnswer("tensors beyond their memory")
            target = self._storage_of(number, size)
            _read(descriptors[0], offset, target)
            self._now[number] = target
            total += size
        return total

    def _storage_of(self, number: int, size: int) -> torch.Tensor:
        """Bytes for a storage: those that it has had, if somebody still holds them."""
        old = self._own.get(number)
        storage = None if old is None else torch.UntypedStorage._new_with_weak_ptr(old.cdata)
        if storage is not None and storage.nbytes() == size:
            return torch.empty(0, dtype=torch.uint8).set_(storage)
        try:
            made = torch.empty(size, dtype=torch.uint8)
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
            return torch.empty(size, dtype=dtype)
        if form["in"] == "shared":
            storage, before = self._shared.own(form["storage"]), form["before"]
        else:
            storage, before = self._now[form["storage"]].untyped_storage(), 0
        made = torch.empty(0, dtype=dtype)
        width = made.element_size()
        if not _is_count(before) or before % width:
            raise BadAnswer("a tensor between two elements")
        offset += before // width
        last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
        if all(size) and (last + 1) * width > storage.nbytes():
            raise BadAnswer("a tensor beyond its memory")
        if not all(size):
            return torch.empty(size, dtype=dtype)
        made = made.set_(storage, offset, size, stride)
        return torch.nn.Parameter(made, requires_grad=False) if form["parameter"] is True else made


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
