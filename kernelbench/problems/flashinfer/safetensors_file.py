"""Reading safetensors files: eight bytes of length, a JSON header, the tensors' bytes.

The format is safetensors' own documentation's (read in 2026): the length is a little-endian uint64,
the header maps a name to dtype, shape and ``data_offsets`` from the header's end, and tensors are
row-major and little-endian.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import UsageError

if TYPE_CHECKING:
    import torch

_LARGEST_HEADER = 100_000_000
#: By the format's name: torch's name and bytes per element.
_TYPES = {
    "F64": ("float64", 8), "F32": ("float32", 4), "F16": ("float16", 2), "BF16": ("bfloat16", 2),
    "F8_E4M3": ("float8_e4m3fn", 1), "F8_E5M2": ("float8_e5m2", 1), "I64": ("int64", 8),
    "I32": ("int32", 4), "I16": ("int16", 2), "I8": ("int8", 1), "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}  # fmt: skip


def read_header(path: Path) -> dict[str, Any]:
    """What is known of each tensor, by its key; UsageError if the file is not a whole one."""
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(size - 8, _LARGEST_HEADER):
                raise UsageError(f"{path}: not a whole safetensors file: its header is cut off")
            header = json.loads(stream.read(length))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{path}: not a safetensors file: its header is not JSON") from None
    if not isinstance(header, dict):
        raise UsageError(f"{path}: not a safetensors file: its header is no object")
    header.pop("__metadata__", None)
    for key, entry in header.items():
        _require_entry(path, key, entry, size - 8 - length)
    return header


def _require_entry(path: Path, key: str, entry: Any, data_bytes: int) -> None:
    where = f"{path}: tensor {key!r}"
    try:
        dtype, shape, (begin, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        count = math.prod(int(extent) for extent in shape)
        begin, end = int(begin), int(end)
    except (TypeError, KeyError, ValueError):
        raise UsageError(f"{where}: expected dtype, shape and data_offsets") from None
    if dtype not in _TYPES:
        raise UsageError(f"{where}: dtype {dtype!r}: expected one of {', '.join(_TYPES)}")
    if not 0 <= begin <= end <= data_bytes or end - begin != count * _TYPES[dtype][1]:
        raise UsageError(f"{where}: its bytes {begin} to {end} do not fit the file or its shape")


def read_tensor(path: Path, key: str) -> torch.Tensor:
    """One tensor, on the CPU; UsageError if the file is not a whole one, or has no such key."""
    import torch

    header = read_header(path)
    if key not in header:
        known = ", ".join(list(header)[:8]) or "none"
        raise UsageError(f"{path}: no tensor {key!r}: it has {known}")
    entry = header[key]
    begin, end = entry["data_offsets"]
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        stream.seek(8 + length + begin)
        data = bytearray(stream.read(end - begin))
    dtype = getattr(torch, _TYPES[entry["dtype"]][0])
    if not data:
        return torch.empty(entry["shape"], dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).reshape(entry["shape"])
