"""A problem's data in two processes: tensors in shared memory, everything else by pickle.

Tensors of the host lie in memory files there, those of a GPU in allocations that both have mapped
(:mod:`kernelbench.isolation.device_memory`). The judge keeps tensors of its own. Before a call
their bytes are copied into memory that the submission's process has mapped, after it they are
copied back: what a submission does later reaches nothing that is judged. A storage has the same
place there for as long as the judge holds it.
"""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import pickle
import pkgutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernelbench.isolation.device_memory import DeviceRegion

_PAGE = mmap.PAGESIZE
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


#: As much as a core's own cache holds.
TOUCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class StoragePlace:
    """Where a storage lies in shared memory."""

    storage: int
    region: int
    offset: int
    size: int


@dataclass(frozen=True)
class TensorForm:
    """A tensor but for its values; ``storage`` is 0 for one without any."""

    storage: int
    dtype: torch.dtype
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    requires_grad: bool
    parameter: bool
    device: str = "cpu"

    def over(self, storage: torch.UntypedStorage | None) -> torch.Tensor:
        """A tensor of this description over a storage."""
        if storage is None:
            made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)
        else:
            made = torch.empty(0, dtype=self.dtype, device=storage.device)
            made = made.set_(storage, self.offset, self.size, self.stride)
        if self.parameter:
            return torch.nn.Parameter(made, self.requires_grad)
        return made.requires_grad_() if self.requires_grad else made


class HostRegion:
    """One piece of shared memory, mapped in this process."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._map = mmap.mmap(descriptor, size)

    @classmethod
    def create(cls, size: int) -> tuple[HostRegion, int, int]:
        """Create a region of shared memory: the region, its size in bytes, its descriptor."""
        descriptor = os.memfd_create("kernelbench", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return cls(descriptor, size), size, descriptor

    def storage(self, offset: int, size: int) -> torch.UntypedStorage:
        """A storage over a part of the region, which stays mapped while the storage lives."""
        whole = torch.frombuffer(self._map, dtype=torch.uint8, count=size, offset=offset)
        return whole.untyped_storage()


@dataclass(frozen=True)
class NewRegion:
    """A region that the other process has yet to map, with ``cpu`` or the GPU that it is of."""

    number: int
    device: str
    size: int

    def opened(self, descriptor: int) -> HostRegion | DeviceRegion:
        """The region, mapped here too; the descriptor stays the caller's."""
        if self.device == "cpu":
            return HostRegion(descriptor, self.size)
        return DeviceRegion.opened(torch.device(self.device), descriptor, self.size)


@dataclass(frozen=True)
class DataMessage:
    """Data for the other process, and what it needs to know to rebuild them.

    Attributes:
        pickled: For :class:`Mapped`.
        places: Storages that are new to it, all of them in regions that are new to it.
        regions: These; ``descriptors`` are theirs, in this order.
        dropped: Storages that no longer exist.
        used: Those of these data.
    """

    pickled: bytes
    places: tuple[StoragePlace, ...]
    regions: tuple[NewRegion, ...]
    descriptors: tuple[int, ...]
    dropped: tuple[int, ...]
    used: tuple[int, ...]


@dataclass
class _Shared:
    own: StorageWeakRef
    twin: torch.Tensor
    region: int


class SharedData:
    """What the judging process shares: its own tensors, and where they lie in shared memory."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}
        self._shared: dict[int, _Shared] = {}
        self._last = 0
        self._regions = 0

    def message(self, data: Any) -> DataMessage:
        """Data as a message; their tensors get places in shared memory.

        Raises:
            Exception: What pickle raises of something that cannot be handed over.
        """
        dropped = self._purge()
        new: dict[torch.device, list[torch.UntypedStorage]] = {}
        used: dict[int, None] = {}

        def storage_id(tensor: torch.Tensor) -> int:
            storage = tensor.untyped_storage()
            if not storage.nbytes():
                return 0
            key = storage._cdata
            if key not in self._known:
                self._last += 1
                self._known[key] = self._last
                new.setdefault(storage.device, []).append(storage)
            used[self._known[key]] = None
            return self._known[key]

        buffer = io.BytesIO()
        _Pickler(buffer, storage_id).dump(data)
        placed = [self._place(device, storages) for device, storages in new.items()]
        return DataMessage(
            buffer.getvalue(),
            tuple(place for places, _, _ in placed for place in places),
            tuple(region for _, region, _ in placed),
            tuple(descriptor for _, _, descriptor in placed),
            dropped,
            tuple(used),
        )

    def used_by(self, data: Any) -> tuple[int, ...]:
        """The storages of data that a message has brought over, by themselves or among others."""
        used: dict[int, None] = {}

        def storage_id(tensor: torch.Tensor) -> int:
            storage = tensor.untyped_storage()
            if storage.nbytes():
                used[self._known[storage._cdata]] = None
            return 0

        _Pickler(io.BytesIO(), storage_id).dump(data)
        return tuple(used)

    def _purge(self) -> tuple[int, ...]:
        gone = {key for key, number in self._known.items() if self._shared[number].own.expired()}
        dropped = tuple(self._known.pop(key) for key in gone)
        for number in dropped:
            del self._shared[number]
        return dropped

    def _place(
        self, device: torch.device, new: Sequence[torch.UntypedStorage]
    ) -> tuple[list[StoragePlace], NewRegion, int]:
        """Room for these storages, in one region of its own, with its descriptor."""
        self._regions += 1
        places, offset = [], 0
        for storage in new:
            number = self._known[storage._cdata]
            places.append(StoragePlace(number, self._regions, offset, storage.nbytes()))
            offset += -(-storage.nbytes() // _PAGE) * _PAGE
        region: HostRegion | DeviceRegion
        if device.type == "cpu":
            region, size, descriptor = HostRegion.create(offset)
        else:
            region, size, descriptor = DeviceRegion.create(device, offset)
        for place, storage in zip(places, new, strict=True):
            twin = bytes_of(region.storage(place.offset, place.size))
            self._shared[place.storage] = _Shared(StorageWeakRef(storage), twin, place.region)
        return places, NewRegion(self._regions, str(device), size), descriptor

    def copy_in(self, used: Sequence[int]) -> None:
        """Copy the judge's values of these storages into shared memory."""
        for number in used:
            self._shared[number].twin.copy_(bytes_of(self.own(number)))

    def copy_out(self, used: Sequence[int]) -> None:
        """Copy what shared memory holds now into the judge's storages."""
        for number in used:
            bytes_of(self.own(number)).copy_(self._shared[number].twin)

    def touched_bytes(self, used: Sequence[int]) -> int:
        """How much of these storages :meth:`Mapped.touch` reads, at most."""
        twins = [self._shared[number].twin for number in used]
        return min(TOUCHED_BYTES, sum(twin.numel() for twin in twins if twin.is_cpu))

    def own(self, number: int) -> torch.UntypedStorage:
        """The judge's storage of that number.

        Raises:
            KeyError: If there is none.
        """
        found = torch.UntypedStorage._new_with_weak_ptr(self._shared[number].own.cdata)
        if found is None:
            raise KeyError(number)
        return found


class Mapped:
    """What the submission's process has mapped: the storages that the judge has shared."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}

    def data(self, message: DataMessage, descriptors: Sequence[int]) -> Any:
        """The data of a message, its tensors in shared memory."""
        for number in message.dropped:
            self._storages.pop(number, None)
        for new, descriptor in zip(message.regions, descriptors, strict=True):
            region = new.opened(descriptor)
            os.close(descriptor)
            for place in message.places:
                if place.region == new.number:
                    self._storages[place.storage] = region.storage(place.offset, place.size)
        return _Unpickler(io.BytesIO(message.pickled), self._storages).load()

    def touch(self, numbers: Sequence[int]) -> None:
        """Read these storages, up to :data:`TOUCHED_BYTES`: where they fit they are in the cache.

        A step in the judge's own process finds them there, too: that process has just filled them.
        """
        left = TOUCHED_BYTES
        for number in numbers:
            storage = self._storages[number]
            if storage.device.type != "cpu":
                continue
            left -= storage.nbytes()
            if left < 0:
                return
            bytes_of(storage).sum()

    def find(self, pointer: int) -> tuple[int, int] | None:
        """Which storage an address lies in, and how many bytes behind its beginning."""
        for number, storage in self._storages.items():
            start = storage.data_ptr()
            if start <= pointer < start + storage.nbytes():
                return number, pointer - start
        return None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, storage_id: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._storage_id = storage_id

    def persistent_id(self, obj: Any) -> TensorForm | None:
        """Ordinary tensors go by their place; any others as torch pickles them."""
        if type(obj) not in (torch.Tensor, torch.nn.Parameter):
            return None
        if obj.layout is not torch.strided or obj.device.type not in ("cpu", "cuda"):
            return None
        return TensorForm(
            self._storage_id(obj), obj.dtype, tuple(obj.shape), obj.stride(), obj.storage_offset(),
            obj.requires_grad, type(obj) is torch.nn.Parameter, str(obj.device),
        )  # fmt: skip

    def reducer_override(self, obj: Any) -> Any:
        """Classes and functions of modules that are loaded under their names only now and then."""
        if not isinstance(obj, type | FunctionType):
            return NotImplemented
        found: Any = sys.modules.get(obj.__module__)
        for part in obj.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is obj or "<" in obj.__qualname__:
            return NotImplemented
        return pkgutil.resolve_name, (f"{obj.__module__}:{obj.__qualname__}",)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, storages: dict[int, torch.UntypedStorage]) -> None:
        super().__init__(file)
        self._storages = storages

    def persistent_load(self, pid: TensorForm) -> torch.Tensor:
        """The tensor in shared memory."""
        return pid.over(self._storages[pid.storage] if pid.storage else None)


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    """A flat uint8 tensor over a storage, without a copy."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
