"""Places in several PTX modules at once, and in a host path beside them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from kernelbench.emulator.symbols import Place, Symbols
from kernelbench.ptx.launcher import PtxModule
from kernelbench.ptx.report import found_in
from kernelbench.ptx.sources import PtxSymbols


class ModuleSymbols(Symbols):
    """Resolves what the emulator reports about a call that may launch kernels of many modules.

    Args:
        host: What names other places; nothing does if None.
    """

    def __init__(self, host: Symbols | None = None) -> None:
        super().__init__({})
        self._host = host
        self._modules: dict[str, PtxSymbols] = {}

    def add(self, library: ctypes.CDLL, module: PtxModule) -> None:
        """Say which library is a module's."""
        self._modules[library._name] = module.symbols

    def place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The place in the module whose library the address is in."""
        named = self._of(pc)
        return named.place(pc) if named is not None else None

    def shared_name(self, pc: Mapping[str, Any] | None, type_name: str | None, offset: int) -> str:
        """The shared variable, as the module says it."""
        named = self._of(pc)
        return named.shared_name(pc, type_name, offset) if named is not None else ""

    def formal(self, report: Mapping[str, Any]) -> tuple[str, ...]:
        """The findings inside one module whose severity is ``formal``."""
        found: list[str] = []
        for name, symbols in self._modules.items():
            every = report["findings"]
            own = [each for each in every if (each.get("pc") or {}).get("module") == name]
            if own:
                made = found_in({**report, "findings": own}, symbols, 0)
                found += [each.identity for each in made if each.severity == "formal"]
        return tuple(found)

    def _of(self, pc: Mapping[str, Any] | None) -> Symbols | None:
        return self._modules.get(str(pc["module"]), self._host) if pc is not None else None
