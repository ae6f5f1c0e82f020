"""Programs that somebody else has built, loaded into this process in place of being started.

An executable is copied without the mark that keeps it from being loaded as a library, and without
its initialisers, which run once its calls of CUDA lead to the runtime that stands in: those of
functions that it is linked with statically (``-cudart static`` is nvcc's default) by a jump at
their beginning, those of libcudart, libcuda, libcublas and its like by name. What is read and
changed is the ELF format as the System V ABI and glibc's ``elf.h`` have it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import io
import itertools
import mmap
import os
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.demangle import source_name
from kernelbench.base.errors import UsageError

_PIE = 0x08000000  # DF_1_PIE
_IMAGES = ".nvFatBinSegment"
_UNVERSIONED = 1  # VER_NDX_GLOBAL
_VN_NEXT = 12  # offset of it in Elf64_Verneed
_COPY, _GLOB_DAT, _JUMP_SLOT = 5, 6, 7  # relocations of x86-64
_NOLOAD = 4  # RTLD_NOLOAD
_OF_CUDA = re.compile(r"lib(?:cudart|cuda|cublas(?:Lt)?|cufft|curand|nvrtc)\.so(?:\.\d+)*")
#: What of libc a program must not have: the functions that stand in by name.
_WRAPPED = {
    each: f"__wrap_{each}" for each in ("exit", "abort", "__assert_fail", "dlopen", "dlsym")
}
_API = re.compile(r"(?:__)?cuda[A-Z]\w*|cu[A-Z]\w*")
_JUMP = struct.Struct("<2sQ2s")  # mov rax, imm64; jmp rax
_NAMED = struct.Struct("<2sQ2sQ2s")  # mov rdi, imm64; mov rax, imm64; jmp rax
#: A thread-local variable of NVIDIA's static runtime, whose functions are not called.
_RUNTIMES_OWN = "libcudart_static_"


@dataclass(frozen=True)
class _Import:
    """A relocation that asks for a symbol by name: where, of which type, and the symbol's size."""

    name: str
    at: int
    type: int
    size: int


@dataclass(frozen=True)
class BuiltProgram:
    """What of an executable has to be known to load it.

    Attributes:
        file: The copy that can be loaded.
        functions: The address in the file of each function, with its type of binding.
        initialisers: Address and number of the functions that run before ``main``.
        needed: Libraries that come with it.
    """

    file: Path
    functions: dict[str, tuple[int, str]]
    imports: tuple[_Import, ...]
    initialisers: tuple[int, int]
    needed: tuple[str, ...]


def is_executable(path: Path) -> bool:
    """Whether a file is an ELF file."""
    try:
        with path.open("rb") as stream:
            return stream.read(4) == b"\x7fELF"
    except OSError:
        return False


def has_kernels(file: Path) -> bool:
    """Whether a file is a program that nvcc has linked with kernels, and no library."""
    from elftools.elf.elffile import ELFFile

    if not is_executable(file):
        return False
    with file.open("rb") as stream:
        elf = ELFFile(stream)
        return (
            elf.get_section_by_name(_IMAGES) is not None
            and elf.get_section_by_name(".interp") is not None
        )


def loadable_copy(file: Path, folder: Path) -> BuiltProgram:
    """An executable's copy that can be loaded as a library, in a folder.

    Raises:
        UsageError: If it is none that can be: for another processor, not position-independent, with
            thread-local variables, or without names of functions.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    data = bytearray(file.read_bytes())
    try:
        elf: Any = ELFFile(io.BytesIO(bytes(data)))
        _require(file, elf)
        dynamic = elf.get_section_by_name(".dynamic")
        offsets = {tag.entry.d_tag: at for at, tag in _tags(dynamic)}
        values = {tag.entry.d_tag: tag.entry.d_val for _, tag in _tags(dynamic)}
        _without_cuda(data, elf, dynamic)
        for tag, value in (
            ("DT_FLAGS_1", values.get("DT_FLAGS_1", 0) & ~_PIE),
            ("DT_INIT_ARRAYSZ", 0),
        ):
            if tag in offsets:
                struct.pack_into("<Q", data, offsets[tag] + 8, value)
        made = folder / file.name
        made.write_bytes(data)
        return BuiltProgram(
            made,
            _functions(elf),
            tuple(_imports(elf)),
            (values.get("DT_INIT_ARRAY", 0), values.get("DT_INIT_ARRAYSZ", 0) // 8),
            tuple(tag.needed for _, tag in _tags(dynamic) if tag.entry.d_tag == "DT_NEEDED"),
        )
    except ELFError as error:
        raise UsageError(f"{file}: it is no executable that can be read: {error}") from None


def _require(file: Path, elf: Any) -> None:
    if elf["e_machine"] != "EM_X86_64" or elf["e_type"] != "ET_DYN":
        raise UsageError(
            f"{file}: it is no position-independent executable for x86-64",
            "build it with -Xcompiler -fPIE -Xlinker -pie, or give its sources",
        )
    symbols = elf.get_section_by_name(".symtab")
    if symbols is None:
        raise UsageError(
            f"{file}: it is stripped, so that nobody knows where its main is", "keep its symbols"
        )
    for each in symbols.iter_symbols():
        # Its code finds its own ones where those of the process's executable are.
        own = each["st_shndx"] != "SHN_UNDEF" and not each.name.startswith(_RUNTIMES_OWN)
        if each["st_info"]["type"] == "STT_TLS" and own:
            raise UsageError(
                f"{file}: {source_name(each.name)} is thread-local, and it is loaded as a library",
                "give its sources in place of what they were built to",
            )


def _tags(dynamic: Any) -> Iterator[tuple[int, Any]]:
    """Each entry of the dynamic section, with its offset in the file."""
    for number, tag in enumerate(dynamic.iter_tags()):
        yield dynamic["sh_offset"] + number * dynamic["sh_entsize"], tag


def _without_cuda(data: bytearray, elf: Any, dynamic: Any) -> None:
    """Have the file need no library of NVIDIA's, and take their symbols in any version."""
    needed = [(at, tag) for at, tag in _tags(dynamic) if tag.entry.d_tag == "DT_NEEDED"]
    others = [tag.entry.d_val for _, tag in needed if not _OF_CUDA.fullmatch(tag.needed)]
    for at, tag in needed:
        if others and _OF_CUDA.fullmatch(tag.needed):
            struct.pack_into("<Q", data, at + 8, others[0])
    versions = elf.get_section_by_name(".gnu.version_r")
    if versions is None:
        return
    start = at = versions["sh_offset"]
    kept: list[int] = []
    dropped: set[int] = set()
    for need, auxiliaries in versions.iter_versions():
        if _OF_CUDA.fullmatch(need.name):
            dropped |= {each["vna_other"] for each in auxiliaries}
        else:
            kept.append(at)
        at += need["vn_next"]
    if not dropped or not kept:
        return
    for here, following in itertools.pairwise([*kept, kept[-1]]):
        struct.pack_into("<I", data, here + _VN_NEXT, following - here)
    for offset, tag in _tags(dynamic):
        if tag.entry.d_tag == "DT_VERNEEDNUM":
            struct.pack_into("<Q", data, offset + 8, len(kept))
        elif tag.entry.d_tag == "DT_VERNEED":
            struct.pack_into("<Q", data, offset + 8, tag.entry.d_val + kept[0] - start)
    table = elf.get_section_by_name(".gnu.version")
    for place in range(table["sh_offset"], table["sh_offset"] + table["sh_size"], 2):
        if struct.unpack_from("<H", data, place)[0] in dropped:
            struct.pack_into("<H", data, place, _UNVERSIONED)


def _functions(elf: Any) -> dict[str, tuple[int, str]]:
    return {
        each.name: (each["st_value"], each["st_info"]["bind"])
        for each in elf.get_section_by_name(".symtab").iter_symbols()
        if each["st_info"]["type"] == "STT_FUNC" and each["st_shndx"] != "SHN_UNDEF"
    }


def _imports(elf: Any) -> Iterator[_Import]:
    names = elf.get_section_by_name(".dynsym")
    for section in (".rela.dyn", ".rela.plt"):
        table = elf.get_section_by_name(section)
        for each in table.iter_relocations() if table is not None else ():
            if each["r_info_sym"]:
                symbol = names.get_symbol(each["r_info_sym"])
                yield _Import(symbol.name, each["r_offset"], each["r_info_type"], symbol["st_size"])


class LoadedProgram:
    """An executable in this process, whose calls of CUDA go to a library.

    Args:
        program: What :func:`loadable_copy` made.
        cuda: The runtime that stands in; it is loaded for everybody.
        library: The copy, loaded.
    """

    def __init__(self, program: BuiltProgram, cuda: ctypes.CDLL, library: ctypes.CDLL) -> None:
        self._base, _ = _loaded_at(library)
        self._program = program
        self._kept: list[Any] = []
        self._stubs = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        jumps = {}
        for name, (at, binding) in program.functions.items():
            if not _API.fullmatch(name):
                continue
            if (found := _address(cuda, name)) is not None:
                jumps[at] = found
            elif binding == "STB_LOCAL":  # the runtime's, not the program's own
                jumps[at] = self._refusal(cuda, name)
        for at, target in jumps.items():
            self._write(at, _JUMP.pack(b"\x48\xb8", target, b"\xff\xe0"), code=True)
        for each in program.imports:
            wrapped = _WRAPPED.get(each.name)
            if wrapped and each.type in (_GLOB_DAT, _JUMP_SLOT):
                self._write(each.at, struct.pack("<Q", _address(cuda, wrapped)))
            if each.type == _COPY:
                self._share(each)

    def initialise(self, words: Sequence[bytes]) -> None:
        """Run what runs before ``main``: it registers the kernels."""
        at, count = self._program.initialisers
        arguments = (ctypes.c_char_p * (len(words) + 1))(*words, None)
        self._kept.append(arguments)
        functions = (ctypes.c_uint64 * count).from_address(self._base + at) if count else ()
        for address in functions:
            initialise = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
            initialise(address)(len(words), ctypes.cast(arguments, ctypes.c_void_p), None)

    @property
    def main(self) -> Any:
        """Where its main is, as a pointer."""
        return ctypes.c_void_p(self._base + self._program.functions["main"][0])

    def _share(self, variable: _Import) -> None:
        """Have a library's variable be the executable's copy of it, as in a process of its own."""
        here = self._base + variable.at
        libraries = []
        for name in self._program.needed:
            with contextlib.suppress(OSError):
                libraries.append(ctypes.CDLL(name, mode=_NOLOAD | os.RTLD_NOW))
        first = next(filter(None, (_address(each, variable.name) for each in libraries)), None)
        if first is not None:
            _write(here, ctypes.string_at(first, variable.size))
        for base, path in map(_loaded_at, libraries):
            for at in _slots(path).get(variable.name, ()) if path.is_file() else ():
                _write(base + at, struct.pack("<Q", here))

    def _refusal(self, cuda: ctypes.CDLL, name: str) -> int:
        """A function that says that the runtime lacks one of this name."""
        text = ctypes.create_string_buffer(name.encode())
        self._kept.append(text)
        refuse = _address(cuda, "kb_cudart_lacks")
        at = self._stubs.tell()
        self._stubs.write(
            _NAMED.pack(b"\x48\xbf", ctypes.addressof(text), b"\x48\xb8", refuse, b"\xff\xe0")
        )
        return ctypes.addressof(ctypes.c_char.from_buffer(self._stubs)) + at

    def _write(self, at: int, data: bytes, *, code: bool = False) -> None:
        if not _write(self._base + at, data, code=code):
            raise UsageError(f"{self._program.file.name}: its code cannot be changed in memory")


def _write(address: int, data: bytes, *, code: bool = False) -> bool:
    page = address & -mmap.PAGESIZE
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    how = mmap.PROT_READ | mmap.PROT_WRITE | (mmap.PROT_EXEC if code else 0)
    if protect(page, address + len(data) - page, how):
        return False
    ctypes.memmove(address, data, len(data))
    return True


def _loaded_at(library: ctypes.CDLL) -> tuple[int, Path]:
    """Address and file of a library: what glibc's ``link_map`` begins with."""
    base, name = (ctypes.c_uint64 * 2).from_address(library._handle)
    return base, Path(os.fsdecode(ctypes.string_at(name)))


@functools.cache
def _slots(path: Path) -> dict[str, list[int]]:
    """Where a library keeps the addresses of variables, by name."""
    from elftools.elf.elffile import ELFFile

    found: dict[str, list[int]] = {}
    with path.open("rb") as stream:
        for each in _imports(ELFFile(stream)):
            if each.type == _GLOB_DAT:
                found.setdefault(each.name, []).append(each.at)
    return found


def _address(library: ctypes.CDLL, name: str) -> int | None:
    """Where a library itself has a function; None if it has none of the name."""
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        return None
