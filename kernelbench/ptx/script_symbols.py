"""Places of a kernel that a script or a program has compiled: lines of its own source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelbench.emulator import dwarf
from kernelbench.emulator.symbols import Place
from kernelbench.ptx.parser.model import Chain, Location, Module
from kernelbench.ptx.sources import PtxSymbols

#: Folders of what users have installed, not written: packages, and headers of a toolkit.
_INSTALLED = ("site-packages", "cccl", "targets")
#: Such a wait stands in a loop, as a rule in a function of its own, which has a few lines.
_WAIT = re.compile(r"mbarrier\.(try|test)_wait\b")
_WAIT_LINES = 4


#: Where this process's program has its sources.
_folders: list[Path] = []


def sources_are_in(folders: Iterable[Path]) -> None:
    """Have sources found in these folders: a build that is used again may come from elsewhere."""
    _folders[:] = dict.fromkeys(each.resolve() for each in folders)


def _own_copy(file: Path) -> Path:
    """The file of this program that a path of a build means: with the longest end in common."""
    if not _folders or _installed(file) or any(map(file.is_relative_to, _folders)):
        return file
    ends = (Path(*file.parts[at:]) for at in range(1, len(file.parts)))
    copies = (folder / end for end in ends for folder in _folders)
    return next((each for each in copies if each.is_file()), file)


class ScriptSymbols(PtxSymbols):
    """As :class:`PtxSymbols`, but a place is the line of the user's own source, by ``.loc``.

    Of what was inlined it is the innermost line that is not installed. Where that line is all that
    there is of its function, as of a wrapper of inline assembly, it is the call of the function;
    so it is of a short function that waits for an mbarrier and is called from several places.
    """

    def own_place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The line of the source, or of the PTX where there is none."""
        found = super().own_place(pc)
        if found is None:
            return host_place(pc)
        statement = self.statement(found.line)
        if statement is None or not statement[1].chain:
            return found
        chain = statement[1].chain
        at = next((at for at, each in enumerate(chain) if self._is_own(each)), 0)
        line = (each for each in statement[0].statements if each.line == found.line)
        most = _WAIT_LINES if any(_WAIT.match(each.opcode) for each in line) else 1
        while at + 1 < len(chain) and self._is_wrapper(chain[at:], most):
            at += 1
        file = self._file_of(chain[at])
        return Place(file, file.name, chain[at].line, found.function, found.role, found.kernel)

    def _is_wrapper(self, chain: Chain, most: int) -> bool:
        lines = len(self._lines_of_calls[_call(chain)])
        calls = [of for of in self._lines_of_calls if of[0] == chain[0].function]
        return lines == 1 or (lines <= most and len(calls) > 1)

    @cached_property
    def _lines_of_calls(self) -> Mapping[tuple[str, Chain], Set[int]]:
        """The lines that each inlined call of a function has instructions of, its own calls too."""
        lines: dict[tuple[str, Chain], set[int]] = {}
        for function in self._module.functions.values():
            for statement in function.statements:
                for at in range(len(statement.chain)):
                    inner = statement.chain[at:]
                    lines.setdefault(_call(inner), set()).add(inner[0].line)
        return lines

    def _is_own(self, location: Location) -> bool:
        return not _installed(self._file_of(location))

    def _file_of(self, location: Location) -> Path:
        return _own_copy(Path(self._module.files.get(location.file, "?")))


def host_place(pc: Mapping[str, Any] | None) -> Place | None:
    """The line of a program's host code that called the runtime, or None for other addresses."""
    if pc is None or "module" not in pc:
        return None
    for frame in dwarf.frames_at(str(pc["module"]), int(pc["offset"])):
        file = _own_copy(Path(frame.file))
        if file.is_absolute() and file.is_file() and not _installed(file):
            return Place(file, file.name, frame.line, frame.function, "", "")
    return None


def host_symbols() -> PtxSymbols:
    """Places of a program's host code, and of the kernels that it has loaded."""
    return ScriptSymbols(Module(""), {}, Path())


def _call(chain: Chain) -> tuple[str, Chain]:
    """The function of the innermost line, and where it was inlined."""
    return chain[0].function, chain[1:]


def _installed(file: Path) -> bool:
    if file.is_relative_to("/usr/include") or set(_INSTALLED) & set(file.parts):
        return True
    # nvcc names its own headers by way of the folder that it is in.
    return ("bin", "..") in zip(file.parts, file.parts[1:], strict=False)
