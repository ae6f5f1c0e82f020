"""PTX in what nvcc has built: the fat binaries that are in a library or a program.

NVIDIA documents no layout; this one was read from what nvcc 13.0 writes: a header of 16 bytes, then
entries, each with a header of its own. Their content is compressed with Zstandard, unless nvcc is
told not to.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem

_MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes that follow
_ENTRY = struct.Struct("<HHIQ")  # kind, version, bytes of this header, bytes that follow
_PTX = 1
_PACKED, _ARCH, _FLAGS, _TEXT = (16, "<I"), (28, "<I"), (40, "<Q"), (56, "<Q")  # in that header
_LZ4, _ZSTD, _OF_ONE_ARCH = 0x2000, 0x8000, 0x100000
_ENTRY_NAME = re.compile(r"\.entry\s+([\w$]+)")


@dataclass(frozen=True)
class PtxText:
    """PTX of an image.

    Attributes:
        arch: What it is for: 90 for both ``sm_90`` and ``sm_90a``.
        only: Whether for this arch and no later one, as ``sm_90a`` is.
    """

    text: str
    arch: int
    only: bool


def ptx_in(data: bytes) -> Iterator[PtxText]:
    """The PTX texts in a file that nvcc has made, in their order.

    Raises:
        EnvironmentProblem: If one is compressed and nothing here decompresses it.
    """
    mark = _MAGIC.to_bytes(4, "little")
    at = data.find(mark)
    while at >= 0:
        _, _, header, size = _HEADER.unpack_from(data, at)
        yield from _entries(data, at + header, at + header + size)
        at = data.find(mark, at + header + size)


def ptx_at(address: int) -> list[PtxText]:
    """The same of one image in this process's memory.

    Raises:
        EnvironmentProblem: Likewise.
    """
    _, _, header, size = _HEADER.unpack(ctypes.string_at(address, _HEADER.size))
    return [*ptx_in(ctypes.string_at(address, header + size))]


def best_for(arch: int, texts: Sequence[PtxText]) -> PtxText | None:
    """What the driver of such a GPU would compile; None if it could compile none."""
    fitting = [each for each in texts if each.arch == arch or (each.arch < arch and not each.only)]
    return max(fitting, key=lambda each: (each.arch, each.only), default=None)


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


def _entries(data: bytes, at: int, end: int) -> Iterator[PtxText]:
    while at + _ENTRY.size <= end:
        kind, _, header, size = _ENTRY.unpack_from(data, at)
        if header < _ENTRY.size:
            return
        if kind == _PTX:
            packed, arch, flags, length = (
                struct.unpack_from(format_of, data, at + offset)[0] if offset < header else 0
                for offset, format_of in (_PACKED, _ARCH, _FLAGS, _TEXT)
            )
            content = data[at + header : at + header + size]
            if flags & (_LZ4 | _ZSTD):
                content = _decompressed(content[:packed], length, flags)
            text = content.rstrip(b"\0").decode(errors="replace")
            yield PtxText(text, arch, bool(flags & _OF_ONE_ARCH))
        at += header + size


def _decompressed(content: bytes, length: int, flags: int) -> bytes:
    hint = "build it with nvcc's --no-compress"
    if flags & _LZ4:
        raise EnvironmentProblem("its PTX is compressed by an older nvcc than 13", hint)
    try:
        library = ctypes.CDLL("libzstd.so.1")
    except OSError:
        raise EnvironmentProblem(
            "its PTX is compressed, and there is no libzstd.so.1 here", f"install it, or {hint}"
        ) from None
    library.ZSTD_decompress.restype = ctypes.c_size_t
    made = ctypes.create_string_buffer(length)
    size = library.ZSTD_decompress(
        made, ctypes.c_size_t(length), content, ctypes.c_size_t(len(content))
    )
    if size != length:
        raise EnvironmentProblem("its PTX is compressed in a way that is not known here", hint)
    return made.raw
