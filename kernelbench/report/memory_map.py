"""What a CTA has of shared memory and TMEM as SVG: a bar as long as what the GPU gives at most."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby

from kernelbench.emulator.memory_map import MemoryMap, Region
from kernelbench.machine.arch import Arch

_WIDTH, _BAR, _LINE = 760, 34, 17
_STYLE = """
svg.memory { width: 100%; max-width: 760px; font: 12px system-ui, "DejaVu Sans", sans-serif; }
.memory text { fill: var(--ink, #1c1f23); }
.memory .limit { fill: none; stroke: var(--muted, #5b626c); }
.memory .k0 { fill: var(--c0, #0b6fb3); } .memory .k1 { fill: var(--c2, #00805c); }
.memory .k2 { fill: var(--c3, #a8467f); } .memory .k3 { fill: var(--c4, #7a5b00); }
.memory .k4 { fill: var(--c5, #2f7f9e); } .memory .k5 { fill: var(--c6, #4a4f57); }
.memory .odd { opacity: .7; } .memory .barrier { fill: var(--c1, #c44d00); }
"""


def memory_map_svg(memory: MemoryMap, arch: Arch) -> str:
    """The SVG element of a kernel's memory.

    Args:
        memory: Of one CTA.
        arch: The GPU that the kernel is for; its limits are the bars' lengths.
    """
    groups = [(name, [*of]) for name, of in groupby(memory.regions, lambda each: each.group)]
    columns = arch.sm.tmem_columns
    height = 2 * _LINE + _BAR + _LINE * len(groups) + (2 * _LINE + _BAR if columns else 0) + 8
    limit = arch.cta_shared_bytes
    label = f"Memory of a CTA of {escape(memory.kernel)}"
    head = f'<svg class="memory" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
    parts = [
        f"{head}<style>{_STYLE}</style>",
        _text(0, 12, f"shared memory: {memory.shared_bytes:,} of {limit:,} bytes"),
        _bar(_LINE),
    ]
    y = 2 * _LINE + _BAR + 12
    for number, (name, regions) in enumerate(groups):
        kind = "barrier" if all(each.barriers for each in regions) else f"k{number % 6}"
        parts += _regions(regions, kind, limit)
        parts.append(f'<rect class="{kind}" x="0" y="{y - 10}" width="11" height="11"/>')
        parts.append(_text(18, y, _words(name, regions)))
        y += _LINE
    if columns:
        parts.append(_text(0, y + 6, f"TMEM: {memory.tmem_columns} of {columns} columns allocated"))
        width = _WIDTH * memory.tmem_columns / columns
        parts.append(f'<rect class="tmem k0" y="{y + 12}" width="{width:.1f}" height="{_BAR}"/>')
        parts.append(_bar(y + 12))
    return "".join([*parts, "</svg>"])


def _regions(regions: list[Region], kind: str, limit: int) -> Iterator[str]:
    """Rectangles of a group: every other one paler, none too narrow to be seen."""
    for number, each in enumerate(regions):
        x, width = _WIDTH * each.offset / limit, _WIDTH * each.bytes / limit
        title = f"{each.name}: {each.bytes:,} bytes at {each.offset:,}"
        yield (
            f'<rect class="region {kind}{" odd" if number % 2 else ""}" x="{x:.2f}" y="{_LINE}" '
            f'width="{max(width, 1.5):.2f}" height="{_BAR}"><title>{escape(title)}</title></rect>'
        )


def _words(name: str, regions: list[Region]) -> str:
    """``stages: 5 × (a 16,384, b 8,192), 122,880 bytes at 0``; of one region only its name."""
    total, at = sum(each.bytes for each in regions), regions[0].offset
    stages = len({each.name.partition(".")[0] for each in regions})
    if len(regions) == 1:
        return f"{regions[0].name}: {total:,} bytes at {at:,}"
    first = [each for each in regions if each.name.partition(".")[0] == f"{name}[0]"]
    tiles = ", ".join(f"{each.name.partition('.')[2]} {each.bytes:,}".strip() for each in first)
    return f"{name}: {stages} × ({tiles}), {total:,} bytes at {at:,}"


def _bar(y: int) -> str:
    return f'<rect class="limit" x="0" y="{y}" width="{_WIDTH}" height="{_BAR}"/>'


def _text(x: int, y: int, text: str) -> str:
    return f'<text x="{x}" y="{y}">{escape(text)}</text>'
