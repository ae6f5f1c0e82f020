"""What the pieces of a campaign answer: that a step is not right, or that a mutant was found."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelbench.base.errors import ExitCode
from kernelbench.campaign.pieces import Piece


@dataclass
class Answers:
    """Counted over pieces.

    Attributes:
        wrong: Commands whose step is not right, mutants left out.
        found: Those of mutants that ``check`` calls not right, as it should; missed: the others'.
    """

    wrong: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def add(self, piece: Piece, code: int) -> None:
        """Count the exit code of a piece."""
        incorrect = code == ExitCode.INCORRECT
        if piece.mutant:
            (self.found if incorrect else self.missed).append(piece.in_words())
        elif incorrect:
            self.wrong.append(piece.in_words())
