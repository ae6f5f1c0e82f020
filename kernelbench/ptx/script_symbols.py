"""Places of a kernel that a script has compiled: lines of the script, not of the PTX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelbench.emulator.symbols import Place
from kernelbench.ptx.sources import PtxSymbols


class ScriptSymbols(PtxSymbols):
    """As :class:`PtxSymbols`, but a place is the line of the user's own source, by ``.loc``.

    Of what was inlined it is the innermost line that is not in an installed package, nor in a
    header of CUDA's or of the system's.
    """

    def place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The line of the source, or of the PTX where there is none."""
        found = super().place(pc)
        statement = self.statement(found.line) if found is not None else None
        if found is None or statement is None or not statement[1].chain:
            return found
        files = [Path(self._module.files.get(each.file, "?")) for each in statement[1].chain]
        own = [at for at, file in enumerate(files) if not _installed(file)]
        at = own[0] if own else 0
        line = statement[1].chain[at].line
        return Place(files[at], files[at].name, line, found.function, found.role, found.kernel)


def _installed(file: Path) -> bool:
    if "site-packages" in file.parts or file.is_relative_to("/usr/include"):
        return True
    # nvcc names its own headers by way of the folder that it is in.
    return ("bin", "..") in zip(file.parts, file.parts[1:], strict=False)
