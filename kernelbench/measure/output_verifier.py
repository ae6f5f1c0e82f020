"""Who looks at what timed calls on a GPU have written, and gives them other values."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from kernelbench.measure.timing import InputSet, SampledOutputs, ValueExchange
from kernelbench.project.problem import Case

#: Queues one repetition of an arm on the input set of that index; what it returns.
OnceMore = Callable[[int, int], Any]


class OutputVerifier(Protocol):
    """What a timer asks of it, in this order for every block."""

    def exchange(self) -> None:
        """Perhaps give sets other values: what was kept of earlier calls is wrong from now on.

        The block's graphs are not captured yet; the queue is drained.
        """

    def renew(self, launch: OnceMore) -> None:
        """Give the sets other values once more, where these graphs must not know them."""

    def keep(self, position: tuple[int, int], arm: int, which: int, result: Any) -> None:
        """A repetition of the set of that index is queued; its position is block and place.

        Args:
            position: Block, and place in it.
            arm: Which arm.
            which: Index of the input set.
            result: What the call returned.
        """

    def verify(self) -> None:
        """All blocks are done: raise :class:`TimingFault` if a result was wrong."""


class LocalVerifier:
    """One in the process that times, with the references of the input sets."""

    def __init__(
        self,
        sets: Sequence[InputSet],
        case: Case,
        order: Sequence[Sequence[int]],
        rng: random.Random,
        seed: int,
        every: int,
    ) -> None:
        self._sets = sets
        self._case = case
        self._sampled = SampledOutputs(order, rng)
        self._exchange = ValueExchange(sets, seed, every)

    def exchange(self) -> None:
        """Exchange the values of two sets now and then."""
        self._exchange()

    def renew(self, launch: OnceMore) -> None:
        """Nothing: steps are not suspects."""

    def keep(self, position: tuple[int, int], arm: int, which: int, result: Any) -> None:
        """Queue a copy of the outputs if this repetition was drawn.

        Args:
            position: Block, and place in it.
            arm: Which arm.
            which: Index of the input set.
            result: What the call returned.
        """
        if self._sampled.wants(position):
            chosen = self._sets[which]
            outputs = self._case.problem.outputs_of(result, chosen.inputs)
            self._sampled.keep(position, arm, chosen, outputs)

    def verify(self) -> None:
        """Compare what was copied."""
        self._sampled.verify(self._case)
