"""Calibration: what it accepts, what it must refuse, and its files."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelbench.base import schema
from kernelbench.base.errors import RecordError
from kernelbench.project.project_file import Project
from kernelbench.records.calibration_record import (
    CalibrationRecord,
    SessionSpread,
    load_session_sd,
    load_spreads,
    read_calibration,
    save_calibration,
)
from kernelbench.report.readme_tables import calibration_table
from kernelbench.stats.blocks import BlockSamples
from kernelbench.stats.calibration import (
    AASample,
    PlantedSample,
    analyze,
    binomial_band,
    session_spread,
    share,
)
from kernelbench.stats.estimate import estimate_change

K, R = 12, 4
WHERE = {"device": "NVIDIA H200", "step": "v00", "shape": "D", "metric": "device"}


def block_samples(
    rng: np.random.Generator, change: float = 0.0, level: float = 0.0, sd: float = 0.003
) -> BlockSamples:
    noise = rng.normal(level, sd, (2, K, R))
    return BlockSamples(40 * np.exp(noise[0]), 40 * (1 + change) * np.exp(noise[1]))


def aa_samples(
    rng: np.random.Generator, count: int, per_session: int = 10, offset_sd: float = 0.0
) -> list[AASample]:
    samples = []
    for session in range(count // per_session):
        offset, level = math.expm1(rng.normal(0, offset_sd)), rng.normal(0, 0.004)
        samples += [
            AASample(session, block_samples(rng, offset, level)) for _ in range(per_session)
        ]
    return samples


@pytest.fixture(scope="module")
def clean() -> CalibrationRecord:
    rng = np.random.default_rng(41)
    aa = aa_samples(rng, 200, per_session=5)
    sequential = []
    for _ in range(40):
        t = 40 * np.exp(rng.normal(0, 0.003, 400) + np.linspace(0, 0.01, 400))
        sequential.append((t[:200], t[200:]))
    first = analyze(aa, **WHERE)
    level = first.target_slowdown
    planted = [
        PlantedSample(level, level * 1.01, block_samples(rng, level * 1.01), target=True)
        for _ in range(40)
    ]
    planted += [PlantedSample(0.02, 0.02, block_samples(rng, 0.02)) for _ in range(40)]
    return analyze(aa, planted, sequential, **WHERE, protocol={"seed": 41})


def test_a_sound_method_passes(clean: CalibrationRecord) -> None:
    assert clean.findings() == []
    assert clean.remarks() == []
    assert (clean.evidence, clean.gaps()) == ("full", [])
    fp = clean.false_positives
    assert (fp.band_lo, fp.band_hi) == (4, 16)
    assert fp.in_band
    assert len(fp.p_values) == fp.rejections.total == 200
    assert sum(fp.verdicts.values()) == 200


def test_planted_and_synthetic_power(clean: CalibrationRecord) -> None:
    target, two = clean.planted
    assert target.target and not two.target
    assert target.slower.rate >= 0.95
    assert target.planted == pytest.approx(1.01 * clean.target_slowdown)
    assert target.median_change == pytest.approx(target.planted, abs=0.0005)
    assert two.slower.count == 40
    rates = {power.level: power.slower.rate for power in clean.synthetic}
    assert rates[0.02] == 1.0
    # At the margin itself a slowdown must not be claimed more often than chance allows.
    assert rates[0.005] < 0.08


def test_sequential_control(clean: CalibrationRecord) -> None:
    assert clean.sequential is not None and clean.sequential.drift_shown
    rng = np.random.default_rng(42)
    flat = [(rng.normal(40, 1, 100), rng.normal(40, 1, 100)) for _ in range(40)]
    quiet = analyze(aa_samples(rng, 20), sequential=flat, **WHERE)
    assert quiet.sequential is not None and not quiet.sequential.drift_shown
    assert any("little drift" in remark for remark in quiet.remarks())


def test_an_offset_between_the_arms_is_found() -> None:
    rng = np.random.default_rng(43)
    aa = [AASample(i // 10, block_samples(rng, 0.002)) for i in range(100)]
    findings = " ".join(analyze(aa, **WHERE).findings())
    assert "outside" in findings
    assert "not uniform" in findings
    assert "positive" in findings


def test_session_offsets_fail_within_sessions_and_pass_with_their_spread() -> None:
    rng = np.random.default_rng(44)
    record = analyze(aa_samples(rng, 80, per_session=2, offset_sd=0.003), **WHERE)
    assert not record.false_positives.in_band
    assert record.false_positives.rejections.rate > 0.3
    assert record.session_aware is not None
    assert record.session_aware.rejections.count <= record.session_aware.band_hi
    assert any("with the session spread" in finding for finding in record.findings())
    spread = record.comparison_spread
    assert spread is not None
    assert 0.0022 < spread.sd < 0.0038
    assert spread.sd < spread.upper < 0.005
    assert spread.sessions == 40


def test_a_planted_slowdown_that_is_missed_is_found_out() -> None:
    rng = np.random.default_rng(45)
    planted = [PlantedSample(0.01, 0.01, block_samples(rng), target=True) for _ in range(10)]
    findings = analyze(aa_samples(rng, 20), planted, **WHERE).findings()
    assert any("planted slowdowns of 1.00% were found in only 0 of 10" in f for f in findings)


def test_session_spread_recovers_the_components() -> None:
    rng = np.random.default_rng(46)
    spreads = []
    covered = 0
    for _ in range(200):
        values = {s: list(rng.normal(rng.normal(0, 0.003), 0.001, 3)) for s in range(40)}
        spread = session_spread(values, 0.001**2)
        assert spread is not None
        spreads.append(spread.sd)
        covered += spread.upper >= 0.003
    assert np.sqrt(np.mean(np.square(spreads))) == pytest.approx(0.003, rel=0.03)
    assert 180 <= covered <= 200


def test_session_spread_counts_what_varies_within_a_session() -> None:
    rng = np.random.default_rng(47)
    values = {s: list(rng.normal(0, 0.003, 3)) for s in range(400)}
    spread = session_spread(values)
    assert spread is not None
    assert spread.sd == pytest.approx(0.003, rel=0.06)


def test_a_session_is_judged_by_the_spread_of_the_others() -> None:
    rng = np.random.default_rng(48)
    aa = [AASample(s, block_samples(rng, 0.01 * (s == 3))) for s in range(7)]
    record = analyze(aa, **WHERE)
    assert record.session_aware is not None
    assert record.session_aware.p_values[3] < 0.005


def test_session_spread_floors_at_zero_and_needs_sessions() -> None:
    values = {s: [0.0001 * (-1) ** s] for s in range(10)}
    spread = session_spread(values, 0.001**2)
    assert spread is not None
    assert spread.sd == 0.0
    assert spread.df == 0.0
    assert spread.total_variance == 0.001**2
    assert session_spread({s: [0.0] for s in range(4)}) is None


@pytest.mark.parametrize("block_sd", [0.0, 0.0005, 0.001])
def test_older_records_imply_the_total_of_their_spread(block_sd: float) -> None:
    rng = np.random.default_rng(49)
    values = {s: list(rng.normal(rng.normal(0, 0.001), 0.001, 5)) for s in range(40)}
    spread = session_spread(values, block_sd**2)
    assert spread is not None and spread.sd > 0
    assert spread.total == pytest.approx(spread.sd**2 + block_sd**2)
    old = dataclasses.replace(spread, total=None)
    assert old.total_variance == pytest.approx(spread.total)


def test_an_older_record_with_nothing_left_tells_no_total() -> None:
    value = {"sd": 0.0, "df": 39.0, "upper": 0.0005, "sessions": 40, "source": ""}
    old = schema.decode(SessionSpread, value)
    assert math.isinf(old.total_variance)
    rng = np.random.default_rng(50)
    estimate = estimate_change(
        [block_samples(rng) for _ in range(2)],
        session_sd=old.sd,
        session_df=39,
        session_total=old.total_variance,
    )
    assert estimate.session_sd is None and estimate.df == 1
    assert any("too uncertain" in note for note in estimate.notes)


def test_the_committed_calibrations_still_load() -> None:
    root = Path(__file__).parents[2] / "results"
    records = [read_calibration(path) for path in sorted(root.glob("*/calibration/*.json"))]
    spreads = [record.comparison_spread for record in records]
    assert spreads
    for spread in spreads:
        assert spread is not None
        # Block noise of these kernels is near 0.1 %.
        assert spread.total_variance > 0.0005**2


@pytest.mark.parametrize(
    ("change", "gap"),
    [
        ({"complete": False}, "interrupted"),
        ({"planted": ()}, "no slowdown of margin + 2 MDE was planted"),
        ({"comparison_spread": None}, "fewer than 5 of 40 sessions"),
    ],
)
def test_evidence_is_partial(clean: CalibrationRecord, change: dict[str, Any], gap: str) -> None:
    record = dataclasses.replace(clean, **change)
    assert record.findings() == []
    assert record.evidence == "partial"
    (found,) = record.gaps()
    assert gap in found


def test_evidence_counts_comparisons_sessions_and_trials() -> None:
    rng = np.random.default_rng(41)
    planted = [PlantedSample(0.02, 0.02, block_samples(rng, 0.02), target=True) for _ in range(39)]
    record = analyze(aa_samples(rng, 195, per_session=5), planted, **WHERE)
    assert record.evidence == "partial"
    assert record.gaps() == [
        "195 of 200 A/A comparisons",
        "39 of 40 sessions",
        "39 of 40 planted slowdowns of margin + 2 MDE",
    ]


def test_readers_of_the_table_see_what_the_command_says(
    clean: CalibrationRecord, tmp_path: Path
) -> None:
    few = dataclasses.replace(clean, planted=())
    false = dataclasses.replace(clean.false_positives, sign_p=0.001)
    doubtful = dataclasses.replace(few, false_positives=false)
    for number, record in enumerate((clean, few, doubtful)):
        save_calibration(dataclasses.replace(record, id=f"2026-{number}"), tmp_path / "results")
    project = Project(tmp_path, (), tmp_path / "shapes.yaml", tmp_path / "results")
    cells = [line.split(" | ")[-2] for line in calibration_table(project).splitlines()[2:]]
    assert cells[:2] == ["yes", "partly (no slowdown of margin + 2 MDE was planted)"]
    assert "differences are positive" in cells[2] and cells[2].startswith("no (")


def test_level_spread_is_that_of_single_runs(clean: CalibrationRecord) -> None:
    assert clean.level_spread is not None
    assert clean.level_spread.sd == pytest.approx(0.004, rel=0.5)
    assert clean.comparison_spread is not None
    assert clean.comparison_spread.sd < 0.0005


@pytest.mark.parametrize(("total", "band"), [(200, (4, 16)), (0, (0, 0)), (20, (0, 3))])
def test_binomial_band(total: int, band: tuple[int, int]) -> None:
    assert binomial_band(total) == band


def test_share_is_exact() -> None:
    found = share(10, 200)
    assert (found.lo, found.hi) == pytest.approx((0.0242, 0.0900), abs=1e-4)
    with pytest.raises(ValueError, match="at least one"):
        share(0, 0)
    with pytest.raises(ValueError, match="A/A"):
        analyze([], **WHERE)


def test_record_round_trip(clean: CalibrationRecord, tmp_path: Path) -> None:
    path = save_calibration(clean, tmp_path)
    assert path.parent == tmp_path / "nvidia-h200" / "calibration"
    assert schema.encode(read_calibration(path)) == schema.encode(clean)
    found = load_session_sd(tmp_path, "NVIDIA H200", "D", "device", "cold")
    assert found is not None and clean.comparison_spread is not None
    assert found.sd == clean.comparison_spread.sd
    assert clean.id in found.source
    assert load_session_sd(tmp_path, "NVIDIA H200", "D", "call", "cold") is None
    assert load_session_sd(tmp_path, "NVIDIA B200", "D", "device", "cold") is None
    level = load_spreads(tmp_path, "NVIDIA H200", "level", "cold")
    assert clean.level_spread is not None
    assert level["D", "device"].sd == clean.level_spread.sd


def test_the_newest_complete_calibration_counts(clean: CalibrationRecord, tmp_path: Path) -> None:
    assert clean.comparison_spread is not None
    for number, (sd, complete) in enumerate([(0.1, True), (0.2, True), (0.3, False)]):
        spread = dataclasses.replace(clean.comparison_spread, sd=sd)
        save_calibration(
            dataclasses.replace(
                clean, id=f"2026-{number}", comparison_spread=spread, complete=complete
            ),
            tmp_path,
        )
    found = load_session_sd(tmp_path, "NVIDIA H200", "D", "device", "cold")
    assert found is not None and found.sd == 0.2


def test_a_calibration_counts_for_its_own_l2_mode(clean: CalibrationRecord, tmp_path: Path) -> None:
    save_calibration(dataclasses.replace(clean, protocol={"l2": "warm"}), tmp_path)
    where = (tmp_path, "NVIDIA H200", "D", "device")
    assert load_session_sd(*where, "cold") is None
    assert load_session_sd(*where, "warm") is not None
    assert load_session_sd(*where, "none") is not None


def test_broken_and_foreign_files_are_refused(clean: CalibrationRecord, tmp_path: Path) -> None:
    path = save_calibration(clean, tmp_path)
    value = json.loads(path.read_text())
    path.write_text(path.read_text()[:100])
    with pytest.raises(RecordError, match="not valid JSON"):
        load_session_sd(tmp_path, "NVIDIA H200", "D", "device", "cold")
    path.write_text(json.dumps({**value, "schema": "kernelbench.calibration/0"}))
    with pytest.raises(RecordError, match="not a calibration of this version"):
        read_calibration(path)
    path.write_text(json.dumps({k: v for k, v in value.items() if k != "false_positives"}))
    with pytest.raises(RecordError, match="missing field 'false_positives'"):
        read_calibration(path)
