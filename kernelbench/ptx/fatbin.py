"""PTX in what nvcc has built: the fat binaries that are in a library or a program.

NVIDIA documents no layout; this one was read from what nvcc 13.0 writes: a header of 16 bytes, then
entries, each with a header of its own.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from pathlib import Path

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes that follow
_PTX = 1
_ENTRY_NAME = re.compile(r"\.entry\s+([\w$]+)")


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


def ptx_kept_of(folder: Path, address: int) -> str | None:
    """The PTX file of a folder whose kernels are those of an image of machine code; the newest.

    Machine code has its kernels' names in a table of strings.
    """
    _, _, header, size = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    image = ctypes.string_at(address, header + size)
    for file in sorted(folder.glob("*.ptx"), key=lambda it: it.stat().st_mtime_ns, reverse=True):
        text = file.read_text(errors="replace")
        names = _ENTRY_NAME.findall(text)
        if names and all(f"\0.text.{name}\0".encode() in image for name in names):
            return text
    return None


def _entries(data: bytes, at: int, end: int) -> Iterator[str]:
    while at + _ENTRY.size <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size:
            return
        if kind == _PTX:
            yield data[at + header : at + header + size].rstrip(b"\0").decode(errors="replace")
        at += header + size
