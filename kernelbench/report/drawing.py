"""What all drawings share: colours, matplotlib's settings, marks, and files of the same bytes.

matplotlib is imported where something is drawn; without it everything else works.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelbench.base.errors import EnvironmentProblem, UsageError

SUFFIXES = (".png", ".svg", ".pdf")
#: What a page without drawings says of them.
NOT_DRAWN = (
    "ladders, sweeps and rooflines are not drawn: matplotlib is not installed "
    "(`pip install matplotlib`, or the extra 'plot')"
)


@dataclass(frozen=True)
class Palette:
    """Colours by what they are for; ``series`` in the order in which they are taken."""

    ink: str
    muted: str
    rule: str
    series: tuple[str, ...]


#: Of files: readable in print and, but for yellow, for the colour-blind (Okabe and Ito, 2008).
FILE_PALETTE = Palette(
    ink="#1a1a1a",
    muted="#666666",
    rule="#cccccc",
    series=("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5b00", "#3a8fb7", "#444444"),
)
#: Of a page that has a dark and a light theme: each stands for a colour of its style sheet.
PAGE_PALETTE = Palette(
    ink="#010101",
    muted="#010102",
    rule="#010103",
    series=tuple(f"#0101{i:02x}" for i in range(16, 23)),
)


def page_colours() -> dict[str, str]:
    """What each colour of :data:`PAGE_PALETTE` is in the page's style sheet."""
    found = {
        PAGE_PALETTE.ink: "currentColor",
        PAGE_PALETTE.muted: "var(--muted)",
        PAGE_PALETTE.rule: "var(--rule)",
    }
    return found | {colour: f"var(--c{i})" for i, colour in enumerate(PAGE_PALETTE.series)}


@dataclass(frozen=True)
class Mark:
    """What a drawn point is of."""

    step: str  #: The step that it leads to.
    told: str  #: The point in words; empty for a text, which says it.
    values: tuple[float, ...]  #: Its figures, as recorded.


@dataclass
class Marks:
    """The marks of one drawing, by the name that the drawing has for each."""

    by_name: dict[str, Mark] = field(default_factory=dict)

    def add(self, artist: Any, step: str, told: str, *values: float | None) -> None:
        """Name an artist of matplotlib; values that are None are none."""
        name = f"mark-{len(self.by_name)}"
        artist.set_gid(name)
        self.by_name[name] = Mark(step, told, tuple(each for each in values if each is not None))


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require_drawable(path: str) -> None:
    """UsageError for a file of another kind, EnvironmentProblem without matplotlib."""
    if Path(path).suffix not in SUFFIXES:
        raise UsageError(
            f"cannot draw to {path}", f"name a file that ends in {', '.join(SUFFIXES)}"
        )
    if not can_draw():
        raise EnvironmentProblem(
            "drawings need matplotlib", "`pip install matplotlib`, or the extra 'plot'"
        )


def new_figure(width: float, height: float) -> Any:
    """A figure of matplotlib, in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def drawing_settings() -> Iterator[None]:
    """Text stays text, and the same figures give the same bytes."""
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "kernelbench", "pdf.fonttype": 42, "font.size": 8,
    }  # fmt: skip
    with matplotlib.rc_context(settings):
        yield


def save_figure(figure: Any, path: str) -> None:
    """Write a figure to a ``.png``, ``.svg`` or ``.pdf`` file, or raise EnvironmentProblem."""
    # No date, no version of the library.
    unsaid: dict[str, dict[str, None]] = {
        ".svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
        ".pdf": dict.fromkeys(("CreationDate", "Creator", "Producer")),
    }
    try:
        figure.savefig(path, dpi=150, metadata=unsaid.get(Path(path).suffix))
    except OSError as error:
        raise EnvironmentProblem(f"cannot write {path}: {error.strerror or error}") from error


def draw_to(path: str, draw: Callable[[], Any], title: str = "", size: float = 9) -> None:
    """Draw a figure, with a title above it, to a ``.png``, ``.svg`` or ``.pdf`` file.

    Raises:
        UsageError: For another kind of file.
        EnvironmentProblem: If matplotlib is missing, or the file cannot be written.
    """
    require_drawable(path)
    with drawing_settings():
        figure = draw()
        if title:
            figure.suptitle(title, fontsize=size)
        save_figure(figure, path)


def interval_text(low: float | None, high: float | None) -> str:
    """`` [38.20–39.00]``; empty without ends."""
    return "" if low is None or high is None else f" [{low:,.2f}–{high:,.2f}]"


def axis_in_words(axes: Any, palette: Palette, *, x: bool) -> None:
    """A logarithmic axis with figures at 1, 2 and 5, and quiet lines."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis = axes.xaxis if x else axes.yaxis
    (axes.set_xscale if x else axes.set_yscale)("log")
    low, high = axes.get_xlim() if x else axes.get_ylim()
    # Over more than two decades figures at 2 and 5 would run into one another.
    wide = high / low > 60
    axis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=20))
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(LogLocator(subs=(2.0, 5.0) if wide else (1.5, 3.0, 4.0, 7.0)))
    axis.set_minor_formatter(NullFormatter())
    quiet_lines(axes, palette, "x" if x else "y")


def quiet_lines(axes: Any, palette: Palette, axis: Literal["x", "y"]) -> None:
    """Lines of a grid across one axis, a frame and small figures that step back."""
    axes.grid(axis=axis, which="major", color=palette.rule, linewidth=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(palette.rule)
    axes.tick_params(which="both", color=palette.rule, labelcolor=palette.muted, labelsize=7)


def short_us(us: float) -> str:
    """A time for a label: ``47,319``, ``217``, ``38.2``."""
    return f"{us:,.0f}" if us >= 1000 else f"{us:.3g}"
