"""Places in several PTX modules at once, and in a host path beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelbench.emulator.symbols import Place, Symbols
from kernelbench.ptx.report import found_in
from kernelbench.ptx.sources import owner_of


class ModuleSymbols(Symbols):
    """Resolves places of a call that may launch kernels of many modules; ``host``, all others."""

    def __init__(self, host: Symbols | None = None) -> None:
        super().__init__({})
        self._host = host

    def place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The place in the module whose library the address is in."""
        named = owner_of(pc) or self._host
        return named.place(pc) if named is not None else None

    def shared_name(self, pc: Mapping[str, Any] | None, type_name: str | None, offset: int) -> str:
        """The shared variable, as the module says it."""
        named = owner_of(pc) or self._host
        return named.shared_name(pc, type_name, offset) if named is not None else ""

    def formal(self, report: Mapping[str, Any]) -> tuple[str, ...]:
        """The findings inside one module whose severity is ``formal``."""
        owners = [owner_of(each.get("pc")) for each in report["findings"]]
        found: list[str] = []
        for symbols in dict.fromkeys(filter(None, owners)):
            pairs = zip(report["findings"], owners, strict=True)
            own = [each for each, owner in pairs if owner is symbols]
            made = found_in({**report, "findings": own}, symbols, 0)
            found += [each.identity for each in made if each.severity == "formal"]
        return tuple(found)
