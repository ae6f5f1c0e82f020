"""PTX in what nvcc has built: the fat binaries that are in a library or a program.

NVIDIA documents no layout; this one was read from what nvcc 13.0 writes: a header of 16 bytes, then
entries, each with a header of its own.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes that follow
_PTX = 1


def ptx_in(data: bytes) -> Iterator[str]:
    """The PTX texts in a file that nvcc has made with ``--no-compress``, in their order."""
    mark = _MAGIC.to_bytes(4, "little")
    at = data.find(mark)
    while at >= 0:
        _, _, header, size = _HEADER.unpack_from(data, at)
        yield from _entries(data, at + header, at + header + size)
        at = data.find(mark, at + header + size)


def ptx_at(address: int) -> Iterator[str]:
    """The same of one image in this process's memory."""
    _, _, header, size = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    return ptx_in(ctypes.string_at(address, header + size))


def _entries(data: bytes, at: int, end: int) -> Iterator[str]:
    while at + _ENTRY.size <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size:
            return
        if kind == _PTX:
            yield data[at + header : at + header + size].rstrip(b"\0").decode(errors="replace")
        at += header + size
