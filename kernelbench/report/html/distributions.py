"""Histograms of raw samples: paired differences of blocks, and p-values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelbench.base.errors import RecordError
from kernelbench.base.json_file import read_json
from kernelbench.records.ledger import LedgerEntry
from kernelbench.report.html.record import Distribution

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BINS = 25


def distribution(values: Sequence[float], low: float, high: float) -> Distribution | None:
    """The histogram of values between two ends; None without values or without width."""
    import numpy as np

    if not values or high <= low:
        return None
    counts, _ = np.histogram(np.clip(values, low, high), bins=_BINS, range=(low, high))
    return Distribution(
        low, high, tuple(int(count) for count in counts), len(values), float(np.median(values))
    )


class SampleReader:
    """Reads the samples of comparisons; a file has those of all shapes and metrics of one."""

    def __init__(self, results: Path) -> None:
        """``results``: the folder that the ledger's names of files are relative to."""
        self._results = results
        self._read: tuple[str, Any] = ("", None)

    def differences(self, entry: LedgerEntry) -> Distribution | None:
        """Paired differences of a comparison's blocks, as fractions of time.

        Returns:
            Their histogram; None where no samples are kept, or fewer than two blocks.

        Raises:
            RecordError: If the samples are there and cannot be read.
        """
        import numpy as np

        if entry.samples_file is None or not (self._results / entry.samples_file).is_file():
            return None
        if self._read[0] != entry.samples_file:
            self._read = (entry.samples_file, read_json(self._results / entry.samples_file))
        try:
            found = [
                _differences(session["blocks"])
                for shape in self._read[1]
                if shape["shape"] == entry.shape
                for session in shape["sessions"]
                if session["metric"] == entry.metric
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{entry.samples_file} holds no samples of this version: {error!r}"
            ) from error
        values = np.expm1(np.concatenate(found)) if found else np.zeros(0)
        ends = [*values.tolist(), *(entry.ci or ())]
        return distribution(values.tolist(), min(ends), max(ends)) if ends else None


def _differences(blocks: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
    """Of the whole blocks of one session: ln of the candidate's level over the base's."""
    import numpy as np

    from kernelbench.stats.blocks import BlockSamples, block_differences

    arms: list[list[list[float]]] = []
    for block in blocks:
        pair = [[t for a, t in zip(block["arm"], block["t_us"], strict=False) if a == arm]
                for arm in (0, 1)]  # fmt: skip
        if len(block["t_us"]) == len(block["arm"]) and len(pair[0]) == len(pair[1]):
            arms.append(pair)
    if len(arms) < 2:
        return np.zeros(0)
    samples = BlockSamples(
        np.array([base for base, _ in arms]), np.array([cand for _, cand in arms])
    )
    return block_differences(samples)
