"""From what the emulator reports to lines of PTX, and from there to the compiler's source."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from kernelbench.base.demangle import short_name
from kernelbench.emulator import dwarf
from kernelbench.emulator.symbols import Place, Symbols
from kernelbench.ptx.lowering.layout import AddressLayout
from kernelbench.ptx.lowering.translator import PTX_FOLDER
from kernelbench.ptx.parser.model import Location, Module, PtxFunction, Statement

#: Who names the places of a library, by its path.
_owners: dict[str, PtxSymbols] = {}


def owner_of(pc: Mapping[str, Any] | None) -> PtxSymbols | None:
    """What names the places of the module whose library an address is in; None if it is in none."""
    return None if pc is None else _owners.get(str(pc.get("module")))


class PtxSymbols(Symbols):
    """Resolves what the emulator reports about one PTX module.

    Args:
        file: Where the PTX is; a place without a file on disk is named all the same.
    """

    def __init__(self, module: Module, layouts: Mapping[str, AddressLayout], file: Path) -> None:
        super().__init__({})
        self._module = module
        self._file = file
        self._libraries: set[str] = set()
        self._layouts = layouts
        self._places: dict[tuple[Any, ...], Place | None] = {}
        self._statements: dict[int, tuple[PtxFunction, Statement]] = {
            statement.line: (function, statement)
            for function in module.functions.values()
            for statement in function.statements
        }

    def owns(self, library: str) -> None:
        """Have all know whose a library's places are, by its path."""
        self._libraries.add(library)
        _owners[library] = self

    def place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The line of an address in the library, or in that of another module."""
        if pc is None:
            return self.own_place(pc)
        # A race is found thousands of times at few addresses.
        owner, key = self._owner(pc), (pc.get("module"), pc.get("offset"), pc.get("line"))
        if key not in owner._places:
            owner._places[key] = owner.own_place(pc)
        return owner._places[key]

    def _owner(self, pc: Mapping[str, Any] | None) -> PtxSymbols:
        own = pc is None or str(pc.get("module")) in self._libraries
        return self if own else owner_of(pc) or self

    def own_place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The PTX line of an address in the library."""
        line = self.line(pc)
        if line is None:
            return None
        function = self._statements[line][0].name if line in self._statements else ""
        return Place(self._file, self._module.name, line, function, self._role(line), function)

    def line(self, pc: Mapping[str, Any] | None) -> int | None:
        """Its number, or None for an address elsewhere; of what the text alone tells, the line."""
        if pc is None or "line" in pc:
            return None if pc is None else int(pc["line"])
        if self._owner(pc) is not self:
            return None
        for frame in dwarf.frames_at(str(pc["module"]), int(pc["offset"])):
            if PurePosixPath(frame.file).is_relative_to(PTX_FOLDER):
                return frame.line
        return None

    def statement(self, line: int) -> tuple[PtxFunction, Statement] | None:
        """The function and the statement of a line."""
        return self._statements.get(line)

    def chain(self, line: int | None) -> tuple[str, ...]:
        """``file:line`` of the source, innermost first; empty without ``.loc``."""
        found = self._statements.get(line) if line is not None else None
        if found is None:
            return ()
        return tuple(
            f"{PurePosixPath(self._module.files.get(each.file, '?')).name}:{each.line}"
            for each in found[1].chain
        )

    def shared_name(self, pc: Mapping[str, Any] | None, type_name: str | None, offset: int) -> str:
        """The shared variable of an offset, and how far behind its beginning it is."""
        line = self.line(pc)
        kernel = self._statements[line][0].name if line in self._statements else ""
        layout = self._layouts.get(kernel) or next(iter(self._layouts.values()), None)
        shared = layout.shared if layout is not None else {}
        before = [(at, name) for name, at in shared.items() if at <= offset]
        if offset < 0 or not before:
            return ""
        at, name = max(before)
        return short_name(name) + (f" + {offset - at:#x}" if offset > at else "")

    def _role(self, line: int) -> str:
        """The outermost function that was inlined into the kernel."""
        found = self._statements.get(line)
        names = [self._function(each) for each in found[1].chain] if found is not None else []
        return next((name for name in reversed(names) if name), "")

    def _function(self, location: Location) -> str:
        return short_name(self._module.strings.get(location.function, ""))
