"""From what the emulator reports to what an engineer reads: source lines, roles, field names.

Addresses in a step's library become source lines; the *role* of a line is the function of the step
below the kernel's entry that it was inlined into (``load_warp``). Offsets in shared memory become
fields of the step's ``SharedStorage``. All of it comes from the library's debug information.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernelbench.emulator import dwarf
from kernelbench.emulator.dwarf import Frame, Layout
from kernelbench.emulator.identity import code_at
from kernelbench.emulator.runtime import COMMON_NAME, LINEAGE_NAME, STEP_NAME
from kernelbench.project import overlay


@dataclass(frozen=True)
class Place:
    """Where something happened, as far as the debug information tells.

    Attributes:
        file: The source file in this checkout.
        shown: The same, short: ``v07/kernel.cuh``.
        function: The function that holds the line.
        role: The step's function below the kernel's entry; empty if unknown.
        kernel: The kernel's entry, or the function of the host; empty if unknown.
    """

    file: Path
    shown: str
    line: int
    function: str
    role: str
    kernel: str = ""

    @property
    def code(self) -> str:
        """The line's text, see :func:`kernelbench.emulator.identity.code_at`."""
        return code_at(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.shown}:{self.line}"


class Symbols:
    """Resolves what the emulator reports about one step.

    Args:
        folders: Names that debug information uses for folders (``emulator.STEP_NAME``, …) and
            where they are.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)

    def place(self, pc: Mapping[str, Any] | None) -> Place | None:
        """The line in the step's folder nearest to an address, else that in a building block."""
        if pc is None:
            return None
        chain = dwarf.frames_at(str(pc["module"]), int(pc["offset"]))
        for name in (STEP_NAME, LINEAGE_NAME, COMMON_NAME):
            for frame in chain:
                found = self._resolve(frame.file)
                if found is None or found[0] != name:
                    continue
                if name != STEP_NAME and "backend" in found[1].parts:
                    continue
                file, shown = located(self._folders[name], found[1])
                names = [plain_name(other.function) for other in chain[chain.index(frame) :]]
                function = next(filter(None, names), "")
                own = self._own(chain)
                kernel = own[-1] if own else ""
                return Place(file, shown, frame.line, function, _role(own), kernel)
        return None

    def kernel(self, pc: Mapping[str, Any]) -> str:
        """The kernel's entry at an address; empty if unknown."""
        own = self._own(dwarf.callers_at(str(pc["module"]), int(pc["offset"])))
        if own:
            return own[-1]
        place = self.place(pc)
        return place.kernel if place else ""

    def _resolve(self, file: str) -> tuple[str, PurePosixPath] | None:
        path = PurePosixPath(file)
        for name in self._folders:
            if path.is_relative_to(name):
                return name, path.relative_to(name)
        return None

    def _own(self, chain: Sequence[Frame]) -> list[str]:
        """The step's own functions, innermost first."""
        own = [
            plain_name(frame.function)
            for frame in chain
            if (found := self._resolve(frame.file)) and found[0] == STEP_NAME
        ]
        return [name for name in own if name]

    def findings(self, report: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The report's findings with what is known of their places.

        Adds ``file``, ``line``, ``function``, ``role``, ``code``, ``kernel``, the same with
        ``other_`` in front, and ``shared_name``; None or an empty string where unknown.
        """
        found = [dict(finding) for finding in report["findings"]]
        keys = ("pc", "other_pc")
        for finding in found:
            for key, prefix in zip(keys, ("", "other_"), strict=True):
                place = self.place(finding.get(key))
                finding[f"{prefix}file"] = place.shown if place else ""
                finding[f"{prefix}line"] = place.line if place else None
                finding[f"{prefix}function"] = place.function if place else ""
                finding[f"{prefix}role"] = place.role if place else ""
                finding[f"{prefix}code"] = place.code if place else ""
                finding[f"{prefix}kernel"] = place.kernel if place else ""
            finding["shared_name"] = self.shared_name(
                finding.get("pc"), finding.get("shared_type"), finding.get("shared_offset", -1)
            )
        return found

    def formal(self, _report: Mapping[str, Any]) -> tuple[str, ...]:
        """Identities of a report's findings that only the text of PTX makes one; of steps none."""
        return ()

    def shared_name(self, pc: Mapping[str, Any] | None, type_name: str | None, offset: int) -> str:
        """``full[3]`` or ``stages[2].a + 0x40`` for an offset in a ``SharedStorage``, else ''."""
        layout = self.shared_layout(pc, type_name)
        if layout is None or not 0 <= offset < layout.size:
            return ""
        # The member of an opaque type says nothing.
        return re.sub(r"\.opaque(\[\d+\])?", "", layout.name_at(offset))

    def shared_layout(self, pc: Mapping[str, Any] | None, type_name: str | None) -> Layout | None:
        """How a ``SharedStorage`` is laid out; None if that is unknown."""
        if pc is None or not type_name:
            return None
        # The runtime knows the type from a function's signature: "... [with T = a::B]".
        match = re.search(r"\bT = ([^;\]]+)", type_name)
        return dwarf.layout_of(str(pc["module"]), (match[1] if match else type_name).strip())


def _role(own: Sequence[str]) -> str:
    warps = [name for name in own if re.fullmatch(r"\w+_warps?", name)]
    if warps:
        return warps[-1]
    # Device functions are always inlined, so that the last one is the kernel's entry.
    return own[-2] if len(own) > 1 else "".join(own)


def located(folder: Path, inside: PurePosixPath) -> tuple[Path, str]:
    """A file below a folder, and how it is shown; a link stands for the file behind it."""
    file = overlay.real_file(folder / inside)
    return file, f"{file.parents[len(inside.parts) - 1].name}/{inside}"


def plain_name(function: str) -> str:
    """``load_warp`` for ``load_warp<2>``; nothing for operators, a lambda's among them."""
    name = function.partition("<")[0]
    return "" if name.startswith("operator") else name
