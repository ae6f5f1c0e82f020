"""What can be wrong with a PTX file, before anything of it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.base.errors import UsageError


class PtxError(UsageError):
    """A PTX file that cannot be read, or a launch of it that cannot be right."""


@dataclass(frozen=True)
class Obstacle:
    """One statement that the emulator cannot run."""

    line: int  #: Of the PTX text.
    what: str  #: The opcode, or another part of the statement.
    reason: str  #: Why, in a few words.
    #: Its line in the compiler's source, and whose line that was inlined into; empty if the PTX
    #: does not say.
    source: str = ""


class UnsupportedPtxError(PtxError):
    """Instructions that the emulator has no translation of, each with its line.

    Args:
        name: The file.
        obstacles: At least one, in the order of the text.
        kernel: Whose, if others of the file can run.
    """

    #: How many are named in the message; the attribute has them all.
    _NAMED = 3

    def __init__(self, name: str, obstacles: Sequence[Obstacle], kernel: str = "") -> None:
        self.obstacles = tuple(obstacles)
        named = ", ".join(
            f"{each.what} at {each.source}{each.source and ', '}{name}:{each.line} ({each.reason})"
            for each in self.obstacles[: self._NAMED]
        )
        more = len(self.obstacles) - self._NAMED
        super().__init__(
            f"{kernel}{kernel and ': '}unsupported PTX: {named}"
            + (f" and {more} more" if more > 0 else ""),
            "docs/ptx.md lists what is supported",
        )


class StatementError(Exception):
    """Why one statement cannot be translated; becomes an :class:`Obstacle`."""
