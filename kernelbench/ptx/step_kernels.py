"""A step whose kernels are translated PTX: its own host code launches them.

The step's library for the emulator stays as it is; the runtime is told which of its kernels PTX
stands for.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelbench.ptx.errors import PtxError

_NUMBER = re.compile(r"\d+")


@contextlib.contextmanager
def kernels_replaced(
    step: ctypes.CDLL, path: Path, ptx: ctypes.CDLL, entries: Mapping[str, str]
) -> Iterator[None]:
    """While it lasts, launches of the step's kernels run those of a PTX library.

    Args:
        step: The step's library for the emulator, loaded from ``path``.
        ptx: What :func:`kernelbench.ptx.library.load_library` returned.
        entries: Its C function for each kernel of the module.

    Raises:
        PtxError: For a kernel that the step's library does not have.
    """
    runtime = ctypes.CDLL(None)
    functions = _functions(step, path)
    replaced = []
    try:
        for name, entry in entries.items():
            scoped = scoped_name(name)
            found = [address for each, address in functions.items() if each.startswith(scoped)]
            if len(found) != 1:
                raise PtxError(f"{len(found)} kernels of the step's library are {name}")
            function = ctypes.cast(getattr(ptx, entry), ctypes.c_void_p)
            runtime.kb_emu_translate(ctypes.c_void_p(found[0]), function)
            replaced.append(found[0])
        yield
    finally:
        for address in replaced:
            runtime.kb_emu_translate(ctypes.c_void_p(address), None)


def _functions(library: ctypes.CDLL, path: Path) -> dict[str, int]:
    """Where the functions of a library are, hidden ones too, but not parts that a compiler cut."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as stream:
        table: Any = ELFFile(stream).get_section_by_name(".symtab")
        values = {
            each.name: each["st_value"]
            for each in table.iter_symbols()
            if each["st_info"]["type"] == "STT_FUNC" and "." not in each.name
        }
    known = ctypes.cast(library.kb_run, ctypes.c_void_p).value or 0
    return {name: known - values["kb_run"] + value for name, value in values.items()}


def scoped_name(mangled: str) -> str:
    """A mangled name without parameters: they differ, since the emulator's are references.

    Of ``_ZN2kb4step4gemmILi2EEEvNS0_6GroupsE`` it is ``_ZN2kb4step4gemmILi2EEE``.
    """
    if not mangled.startswith("_ZN"):
        return mangled
    at = 3
    while at < len(mangled) and mangled[at] != "E":
        at = _component_end(mangled, at)
    return mangled[: at + 1]


def _component_end(mangled: str, at: int) -> int:
    """Behind a name, a substitution or template arguments."""
    number = _NUMBER.match(mangled, at)
    if number is not None:
        return number.end() + int(number[0])
    if mangled[at] == "L":
        # A literal, whose digits are no length.
        return mangled.index("E", at) + 1
    if mangled[at] in "IXN":
        at += 1
        while at < len(mangled) and mangled[at] != "E":
            at = _component_end(mangled, at)
        return at + 1
    if mangled[at] == "S" and "_" in mangled[at:]:
        return mangled.index("_", at) + 1
    return at + 1
