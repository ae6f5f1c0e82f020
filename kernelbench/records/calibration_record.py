"""The record of one calibration: what it found, whether to trust it, and its files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kernelbench.base import json_file
from kernelbench.records import run_record

CALIBRATION_SCHEMA = "kernelbench.calibration/1"
#: Share of planted slowdowns at margin + 2 MDE that must be found.
REQUIRED_POWER = 0.95
#: Share of A/A verdicts that may be FASTER or SLOWER.
ALLOWED_FALSE_VERDICTS = 0.05
#: The fewest sessions from which a spread is estimated.
MIN_SESSIONS = 5
#: What full evidence rests on: A/A comparisons, their sessions, and trials of margin + 2 MDE.
FULL_COMPARISONS, FULL_SESSIONS, FULL_TRIALS = 200, 40, 40


@dataclass(frozen=True)
class Share:
    """``count`` of ``total`` with its exact 95 % interval (Clopper & Pearson 1934)."""

    count: int
    total: int
    lo: float
    hi: float

    @property
    def rate(self) -> float:
        """The share, in [0, 1]."""
        return self.count / self.total


@dataclass(frozen=True)
class FalsePositives:
    """How often comparisons of a kernel with itself find a difference."""

    rejections: Share
    #: ``band_lo``, ``band_hi``: Counts of rejections accepted, inclusive.
    band_lo: int
    band_hi: int
    ks_p: float  #: Kolmogorov-Smirnov p of the p-values being uniform on (0, 1).
    #: Number of comparisons whose second arm was slower; ``sign_p`` tests a fair coin.
    positive: int
    sign_p: float
    p_values: tuple[float, ...]
    verdicts: dict[str, int]  #: How many got each label with the margin applied.

    @property
    def in_band(self) -> bool:
        """Whether the number of rejections is one that alpha explains."""
        return self.band_lo <= self.rejections.count <= self.band_hi


@dataclass(frozen=True)
class Power:
    """Trials of one slowdown."""

    level: float  #: The slowdown asked for.
    planted: float  #: Mean of what was planted (equal if synthetic).
    median_change: float  #: Median of the estimated changes, to be held against ``planted``.
    slower: Share  #: Trials called SLOWER.
    verdicts: dict[str, int]
    target: bool = False


@dataclass(frozen=True)
class SequentialControl:
    """Welch's test on sequential A/A data; ``drift_shown`` if it rejects more than alpha allows."""

    rejections: Share
    band_hi: int
    drift_shown: bool


@dataclass(frozen=True)
class SessionSpread:
    """A standard deviation between sessions, in ln units."""

    sd: float  #: Estimate, floored at 0.
    df: float  #: Degrees of freedom of sd^2, 0 if nothing is left of it.
    upper: float  #: 95 % upper limit.
    sessions: int  #: Number of sessions it rests on.
    source: str = ""  #: The calibration it comes from.
    #: Variance of one value, sd^2 and the block variance together; None in records that are older
    #: than this field.
    total: float | None = None

    @property
    def total_variance(self) -> float:
        """``total``, or what an older record implies; infinite where it does not tell.

        ``upper``^2 is c * total less the block variance, c = (sessions-1)/chi2(0.05, sessions-1),
        and sd^2 is total less the block variance unless it was floored.
        """
        if self.total is not None:
            return self.total
        if self.sd == 0:
            return math.inf
        from scipy import stats

        c = (self.sessions - 1) / float(stats.chi2.ppf(0.05, self.sessions - 1))
        return (self.upper**2 - self.sd**2) / (c - 1)


@dataclass(frozen=True)
class CalibrationRecord:
    """One attempt at calibration; attempts are never overwritten."""

    schema: Literal["kernelbench.calibration/1"]
    id: str
    created: str
    device: str
    step: str
    shape: str
    metric: str
    margin: float
    alpha: float
    false_positives: FalsePositives
    #: False positives when each comparison is judged with the comparison spread of the *other*
    #: sessions; None with too few sessions.
    session_aware: FalsePositives | None
    planted: tuple[Power, ...]
    synthetic: tuple[Power, ...]
    sequential: SequentialControl | None
    #: Of the A/B difference: what ``ab`` takes as ``session_sd``.
    comparison_spread: SessionSpread | None
    #: Of one arm's ln median: what two tables of separate runs differ by.
    level_spread: SessionSpread | None
    target_slowdown: float
    complete: bool = True
    samples_file: str | None = None
    #: Seeds, reps, blocks, L2 mode and the like, as the runner used them.
    protocol: dict[str, Any] = field(default_factory=dict)

    def findings(self) -> list[str]:
        """What speaks against trusting verdicts of this device and shape; empty if nothing does."""
        fp = self.false_positives
        found = []
        if not fp.in_band:
            aware = self.session_aware
            found.append(
                f"{fp.rejections.count} of {fp.rejections.total} A/A comparisons rejected, "
                f"outside {fp.band_lo} to {fp.band_hi}"
                + (f" ({aware.rejections.count} with the session spread)" if aware else "")
            )
        if fp.ks_p < 0.01:
            found.append(f"A/A p-values are not uniform (KS p {fp.ks_p:.2g})")
        if fp.sign_p < 0.01:
            found.append(f"{fp.positive} of {fp.rejections.total} A/A differences are positive")
        false = fp.rejections.total - fp.verdicts.get("SAME", 0) - fp.verdicts.get("AMBIGUOUS", 0)
        if false > ALLOWED_FALSE_VERDICTS * fp.rejections.total:
            found.append(f"{false} of {fp.rejections.total} A/A verdicts were FASTER or SLOWER")
        for power in (*self.planted, *self.synthetic):
            if power.target and power.slower.rate < REQUIRED_POWER:
                kind = "planted" if power in self.planted else "synthetic"
                found.append(
                    f"{kind} slowdowns of {100 * power.level:.2f}% were found in only "
                    f"{power.slower.count} of {power.slower.total} trials"
                )
        return found

    def gaps(self) -> list[str]:
        """What full evidence lacks: comparisons, sessions or trials of margin + 2 MDE."""
        gaps = []
        if not self.complete:
            gaps.append("the calibration was interrupted")
        comparisons = self.false_positives.rejections.total
        if comparisons < FULL_COMPARISONS:
            gaps.append(f"{comparisons} of {FULL_COMPARISONS} A/A comparisons")
        spread = self.comparison_spread
        if spread is None:
            gaps.append(f"fewer than {MIN_SESSIONS} of {FULL_SESSIONS} sessions, no spread of them")
        elif spread.sessions < FULL_SESSIONS:
            gaps.append(f"{spread.sessions} of {FULL_SESSIONS} sessions")
        trials = max((p.slower.total for p in self.planted if p.target), default=0)
        if trials == 0:
            gaps.append("no slowdown of margin + 2 MDE was planted")
        elif trials < FULL_TRIALS:
            gaps.append(f"{trials} of {FULL_TRIALS} planted slowdowns of margin + 2 MDE")
        return gaps

    @property
    def evidence(self) -> Literal["full", "partial"]:
        """Whether enough was measured for "no findings" to mean that verdicts can be trusted."""
        return "partial" if self.gaps() else "full"

    def remarks(self) -> list[str]:
        """What else limits the evidence without speaking against the method."""
        if self.sequential is None:
            return ["no sequential control was run"]
        if not self.sequential.drift_shown:
            return ["the sequential control rejected no more than chance: little drift"]
        return []


def _folder(results: Path, device: str) -> Path:
    return results / run_record.device_slug(device) / "calibration"


def save_calibration(record: CalibrationRecord, results: Path) -> Path:
    """Write ``results/<device>/calibration/<id>.json`` and return its path."""
    path = _folder(results, record.device) / f"{record.id}.json"
    json_file.write_json(path, record)
    return path


def read_calibration(path: Path) -> CalibrationRecord:
    """Read and validate one calibration; RecordError if it is broken or of another schema."""
    hint = "run `kernelbench calibrate` again"
    return json_file.read_document(path, CalibrationRecord, CALIBRATION_SCHEMA, "calibration", hint)


SpreadKind = Literal["comparison", "level"]


def load_spreads(
    results: Path, device: str, kind: SpreadKind, l2: str
) -> dict[tuple[str, str], SessionSpread]:
    """The newest spread of each (shape, metric) calibrated on a device in an L2 mode.

    Args:
        results: The results folder.
        device: Name of the GPU or CPU.
        kind: Of a comparison, or of one arm.
        l2: ``cold`` or ``warm``; a calibration of the other mode does not count. ``none`` (a CPU,
            which has no such mode) takes any.

    Raises:
        RecordError: If a calibration of the device cannot be read.
    """
    spreads: dict[tuple[str, str], SessionSpread] = {}
    for path in sorted(_folder(results, device).glob("*.json")):
        record = read_calibration(path)
        spread = record.comparison_spread if kind == "comparison" else record.level_spread
        fits = l2 == "none" or record.protocol.get("l2", l2) == l2
        if record.complete and record.device == device and fits and spread is not None:
            source = f"calibration {record.id} ({record.step}, shape {record.shape})"
            spreads[record.shape, record.metric] = replace(spread, source=source)
    return spreads


def load_session_sd(
    results: Path, device: str, shape: str, metric: str, l2: str
) -> SessionSpread | None:
    """The newest spread of A/B differences for ``compare``; None if it was never calibrated.

    Args:
        results: The results folder.
        device: Name of the GPU or CPU.
        shape: Name of the shape.
        metric: Which time.
        l2: ``cold``, ``warm`` or ``none``.
    """
    return load_spreads(results, device, "comparison", l2).get((shape, metric))
