"""What a launch is given, in the form that the runtime takes."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernelbench.ptx.errors import PtxError
from kernelbench.ptx.lowering.layout import AddressLayout
from kernelbench.ptx.parser.model import PtxFunction, Symbol

_AXES = 3
_MOST_THREADS = 1024
_FLOATS = {4: "<f", 8: "<d"}


@dataclass(frozen=True)
class LaunchForm:
    """A launch's extents and its parameters as PTX lays them out."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    cooperative: bool
    parameters: bytes


@dataclass(frozen=True)
class KernelShape:
    """What a launch of a kernel has to fit."""

    offsets: tuple[int, ...]  #: Of the parameters, in bytes.
    sizes: tuple[int, ...]  #: Of each.
    static_shared: int  #: Bytes of shared memory that it has without being given any.
    most_threads: int  #: Of a CTA.


def kernel_shape(function: PtxFunction, layout: AddressLayout) -> KernelShape:
    """The shape of a kernel."""
    return KernelShape(
        tuple(layout.parameters[each.name] for each in function.parameters),
        tuple(each.size for each in function.parameters),
        layout.static_shared,
        _most_threads(function),
    )


def launch_form(
    function: PtxFunction,
    layout: AddressLayout,
    grid: int | Sequence[int],
    block: int | Sequence[int] | None,
    args: Sequence[Any],
    shared: int,
    cluster: int | Sequence[int] | None,
    cooperative: bool,
) -> LaunchForm:
    """Bring a launch into form.

    Raises:
        PtxError: If it does not fit the kernel.
    """
    if shared < 0:
        raise PtxError(f"{function.name}: {shared} bytes of shared memory")
    return LaunchForm(
        _extents(function, grid, "grid"),
        _block(function, block),
        _cluster(function, cluster),
        layout.static_shared + shared,
        cooperative,
        packed(function, layout, args),
    )


def _extents(function: PtxFunction, given: int | Sequence[int], what: str) -> tuple[int, int, int]:
    values = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(values) <= _AXES or any(type(each) is not int or each < 1 for each in values):
        raise PtxError(f"{function.name}: {what} {given!r} is not one to three positive integers")
    x, y, z = (*values, 1, 1)[:_AXES]
    return x, y, z


def _block(function: PtxFunction, given: int | Sequence[int] | None) -> tuple[int, int, int]:
    required = function.directives.get("reqntid")
    if given is None:
        if required is None:
            raise PtxError(f"{function.name}: no block", "it has no .reqntid that says it")
        given = required
    block = _extents(function, given, "block")
    if required is not None and block != _extents(function, required, ".reqntid"):
        raise PtxError(f"{function.name}: a block of {block}, but .reqntid says {required}")
    threads = block[0] * block[1] * block[2]
    most = _most_threads(function)
    if threads > most:
        raise PtxError(f"{function.name}: {threads} threads; a CTA can have {most}")
    return block


def _most_threads(function: PtxFunction) -> int:
    for directive in ("reqntid", "maxntid"):
        if directive in function.directives:
            return math.prod(function.directives[directive])
    return _MOST_THREADS


def _cluster(function: PtxFunction, given: int | Sequence[int] | None) -> tuple[int, int, int]:
    required = function.directives.get("reqnctapercluster")
    if given is None:
        return _extents(function, 1 if required is None else required, "cluster")
    cluster = _extents(function, given, "cluster")
    if required is not None and cluster != _extents(function, required, "cluster"):
        raise PtxError(
            f"{function.name}: a cluster of {_shown(cluster)}, but it requires {_shown(required)}"
        )
    return cluster


def _shown(extents: Sequence[int]) -> str:
    return "×".join(map(str, extents))


def packed(function: PtxFunction, layout: AddressLayout, args: Sequence[Any]) -> bytes:
    """The parameters' bytes.

    Raises:
        PtxError: For a wrong number of arguments, or one that does not fit its parameter.
    """
    if len(args) != len(function.parameters):
        raise PtxError(
            f"{function.name}: {len(args)} arguments for {len(function.parameters)} parameters"
        )
    out = bytearray(layout.parameter_bytes)
    for at, (parameter, argument) in enumerate(zip(function.parameters, args, strict=True)):
        begin = layout.parameters[parameter.name]
        data = _bytes_of(argument, parameter)
        if data is None or len(data) != parameter.size:
            raise PtxError(
                f"{function.name}: argument {at}, {_described(argument)}, is none for a parameter "
                f"of {parameter.size} bytes (.{parameter.type})"
            )
        out[begin : begin + parameter.size] = data
    return bytes(out)


def _bytes_of(argument: Any, parameter: Symbol) -> bytes | None:
    size = parameter.size
    if isinstance(argument, (bytes, bytearray)):
        return bytes(argument)
    if is_array(argument):
        return memory_of(argument)[0].to_bytes(8, "little")
    if isinstance(argument, int) and parameter.type in ("f32", "f64"):
        argument = float(argument)  # a whole number is as easily written without a point
    if isinstance(argument, float):
        if parameter.type.startswith(("u", "s")):
            return None
        return struct.pack(_FLOATS[size], argument) if size in _FLOATS else None
    if isinstance(argument, int):
        if not -(1 << 8 * size - 1) <= argument < 1 << 8 * size:
            return None
        return (argument & (1 << 8 * size) - 1).to_bytes(size, "little")
    if isinstance(argument, ctypes.Structure):
        return bytes(argument)
    return None


def _described(argument: Any) -> str:
    if is_array(argument):
        return "an array"
    if isinstance(argument, (int, float)):
        return repr(argument)
    return f"a {type(argument).__name__}"


def is_array(argument: Any) -> bool:
    """Whether it is a tensor or a numpy array."""
    return hasattr(argument, "data_ptr") or hasattr(argument, "__array_interface__")


def _device_of(tensor: Any) -> str:
    """Where it really is, also while ``cuda`` means the CPU."""
    import torch

    with torch._C.DisableTorchFunction():
        return str(tensor.device)


def span_of(tensor: Any) -> tuple[int, int]:
    """Address and bytes of a tensor of the CPU, from its first element to behind its last."""
    last = sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.data_ptr(), (last + 1) * tensor.element_size()


def memory_of(array: Any) -> tuple[int, int]:
    """Address and bytes of a tensor of the CPU or a numpy array; PtxError for what is neither."""
    if hasattr(array, "data_ptr"):
        device = _device_of(array)
        if not device.startswith("cpu"):
            raise PtxError(f"a tensor on {device}", "the emulator takes tensors of the CPU")
        if not array.is_contiguous():
            raise PtxError("a tensor that is not contiguous", "pass .contiguous()")
        return array.data_ptr(), array.numel() * array.element_size()
    if not array.flags.c_contiguous:
        raise PtxError("an array that is not contiguous", "pass a copy")
    return int(array.ctypes.data), int(array.nbytes)


def memory_at(address: int, size: int) -> Any:
    """Memory of this process as an array of bytes."""
    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
