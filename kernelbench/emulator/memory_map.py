"""What lies where in a CTA's shared memory, and how much of tensor memory it allocates.

The launch and the allocations say how much; the layout of ``SharedStorage`` is that of the debug
information. The runtime reports it when a step is checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernelbench.emulator.dwarf import Layout
from kernelbench.emulator.symbols import Symbols

#: An array of structs or arrays of so many bytes is shown element by element: a ring's stages.
_STAGE_BYTES = 1024


@dataclass(frozen=True)
class Region:
    """A part of shared memory.

    Attributes:
        name: ``full[5]`` for five barriers, ``stages[2].a`` for a tile of one stage.
        offset, bytes: From the start of the CTA's shared memory.
        barriers: Whether it is one or more mbarriers.
    """

    name: str
    offset: int
    bytes: int
    barriers: bool = False

    @property
    def group(self) -> str:
        """The member of ``SharedStorage`` that it belongs to."""
        return self.name.partition("[")[0]


@dataclass(frozen=True)
class MemoryMap:
    """Memory of one CTA of a kernel.

    Attributes:
        shared_bytes: What the launch gives it of shared memory.
        tmem_columns: Allocated at once, at most; 0 without TMEM.
        regions: By offset; what lies between them is padding.
    """

    kernel: str
    shared_bytes: int
    tmem_columns: int
    regions: tuple[Region, ...]


def memory_maps(raw: Mapping[str, Any], symbols: Symbols) -> tuple[MemoryMap, ...]:
    """The maps of what the runtime reported, of kernels whose layout is known."""
    found = []
    for each in raw.get("memory", ()):
        layout = symbols.shared_layout(each["pc"], each["shared_type"])
        if layout is not None:
            found.append(
                MemoryMap(
                    symbols.kernel(each["pc"]), int(each["shared_bytes"]),
                    int(each["tmem_columns"]), tuple(_regions(layout)),
                )
            )  # fmt: skip
    return tuple(found)


def _regions(layout: Layout, prefix: str = "", begin: int = 0) -> Iterator[Region]:
    for name, offset, kind in layout.members:
        element, at = kind.element, begin + offset
        if element is not None and element.size >= _STAGE_BYTES:
            for index in range(kind.size // element.size):
                inner, start = f"{prefix}{name}[{index}]", at + index * element.size
                tiles = [*_regions(element, f"{inner}.", start)]
                yield from tiles or [Region(inner, start, element.size)]
            continue
        barriers = (element or kind).name == "Mbarrier"
        count = f"[{kind.size // element.size}]" if element is not None and barriers else ""
        yield Region(f"{prefix}{name}{count}", at, kind.size, barriers)
