"""What a launch of a Triton kernel is given, as its PTX takes it (Triton 3.6 to 3.9)."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelbench.ptx.errors import PtxError

#: ``kb::emu::MapImage`` (kernels/common/backend/emu/runtime/tma_box.hpp) up to its padding.
_MAP = struct.Struct("<Q8xQ5Q4Q5H5B5B")
_MAP_MAGIC = 0x70616D2D726F736E
_MAP_BYTES, _MOST_DIMENSIONS = 128, 5
# Triton numbers bfloat16 and what follows f32 otherwise than the driver does.
_ELEMENTS = {8: 10, 9: 8, 10: 9}


class Given:
    """The arguments of one launch, flat.

    Args:
        signature: Triton's type of each argument, by name.
        maps: What Triton says of each tensor descriptor that becomes a tensor map.

    Attributes:
        values: In the order of the PTX's parameters.
        tensors: The tensors among them, by the argument's name.
    """

    def __init__(
        self, signature: Mapping[str, Any], maps: Sequence[Mapping[str, Any]], args: Sequence[Any]
    ) -> None:
        self.tensors: dict[str, Any] = {}
        self._maps = iter(maps)
        self._has_maps = bool(maps)
        self.values = [
            value
            for (name, kind), argument in zip(signature.items(), args, strict=True)
            for value in self._flat(name, kind, argument)
        ]

    def form(self) -> tuple[Any, ...]:
        """What tells this launch from others of the kernel: shapes, types, numbers."""
        tensors = tuple(
            (name, tuple(each.shape), str(each.dtype)) for name, each in self.tensors.items()
        )
        addresses = {each.data_ptr() for each in self.tensors.values()}
        numbers = [
            each for each in self.values if isinstance(each, (int, float)) and each not in addresses
        ]
        return (*tensors, *numbers)

    def _flat(self, name: str, kind: Any, argument: Any) -> Iterator[Any]:
        if kind == "constexpr":
            return
        if isinstance(kind, (tuple, list)):
            for at, (inner, each) in enumerate(zip(kind, argument, strict=True)):
                yield from self._flat(f"{name}[{at}]", inner, each)
        elif kind.startswith("tensordesc"):
            yield from self._descriptor(name, argument)
        elif kind.startswith("*"):
            yield self._pointer(name, argument)
        else:
            yield number_bytes(kind, argument)

    def _pointer(self, name: str, argument: Any) -> int:
        if argument is None:
            return 0
        if not hasattr(argument, "data_ptr"):
            return int(argument)
        # A wrapper of a tensor with another dtype has it as its base.
        tensor = argument if hasattr(argument, "untyped_storage") else argument.base
        self.tensors[name] = tensor
        return int(argument.data_ptr())

    def _descriptor(self, name: str, argument: Any) -> Iterator[Any]:
        address = self._pointer(name, argument.base)
        shape, strides = list(argument.shape), list(argument.strides)
        if self._has_maps:
            yield tensor_map(address, argument, next(self._maps))
        else:
            yield from (address, *shape, *strides, argument.padding == "nan")
            # Of Triton 3.9.
            if hasattr(argument, "round_f32_to_tf32"):
                yield argument.round_f32_to_tf32
        yield from (*shape, *strides)


def number_bytes(kind: str, value: Any) -> int | float | bytes:
    """A number of one of Triton's types; halves as their bits."""
    if kind == "fp16":
        return struct.pack("<e", value)
    if kind == "bf16":
        # Cut, as Triton does.
        return struct.pack("<f", value)[2:]
    return float(value) if kind.startswith(("fp", "f")) else int(value)


def tensor_map(address: int, descriptor: Any, meta: Mapping[str, Any]) -> bytes:
    """A tensor map of the emulator, as Triton's driver would encode one.

    Args:
        descriptor: A ``TensorDescriptor``: shape and strides in elements, outermost first.
        meta: The compiler's choice: ``block_size``, ``elem_size``, ``elem_type``, ``swizzle``,
            ``fp4_padded``.

    Raises:
        PtxError: For one in im2col mode.
    """
    if meta.get("is_im2col"):
        raise PtxError("a tensor descriptor in im2col mode", "the emulator has tiled ones")
    shape = list(reversed(descriptor.shape))
    if meta["fp4_padded"]:
        shape[0] *= 2
    strides = [each * meta["elem_size"] for each in reversed(descriptor.strides)][1:]
    kind = meta["elem_type"]
    fields = (
        *_filled(shape, _MOST_DIMENSIONS), *_filled(strides, _MOST_DIMENSIONS - 1),
        *_filled(list(reversed(meta["block_size"])), _MOST_DIMENSIONS),
        *_filled([1] * len(shape), _MOST_DIMENSIONS),
        len(shape), _ELEMENTS.get(kind, kind), 0, meta["swizzle"], descriptor.padding == "nan",
    )  # fmt: skip
    return _MAP.pack(_MAP_MAGIC, address, *fields).ljust(_MAP_BYTES, b"\0")


def _filled(values: Sequence[int], count: int) -> list[int]:
    return [*values, *[0] * (count - len(values))]
