"""``kernelbench calibrate`` on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY, launch

from kernelbench.records import calibration_record, run_record

CPU = ("--metric", "call", "--planted", 0, "--aa", 20, "--sessions", 2, "--reps", 8)


@pytest.fixture(scope="module")
def calibrated(submissions: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A small calibration with its results folder."""
    folder = tmp_path_factory.mktemp("calibration")
    outcome = launch(
        "calibrate", submissions / "right.py", "--shape", TINY, *CPU, "--sequential", 4,
        "--results", folder, "--seed", 9,
    )  # fmt: skip
    return outcome, folder


def test_it_ends_with_a_conclusion(calibrated: tuple[Any, Path]) -> None:
    outcome, _ = calibrated
    # Twenty comparisons in two sessions are too few for trust, whatever they find.
    assert "verdicts can be trusted" not in outcome.out
    doubted = "NOT to be trusted" in outcome.out
    assert outcome.code == (4 if doubted else 0), outcome.out + outcome.err
    assert doubted or "nothing found against them; the evidence is partial" in outcome.out
    assert "partial evidence: 20 of 200 A/A comparisons" in outcome.out
    assert "/20 (" in outcome.out
    assert "sequential A…A B…B, Welch" in outcome.out
    assert "no slowdown of margin + 2 MDE was planted" in outcome.out


def test_the_record_is_kept_with_every_attempt(calibrated: tuple[Any, Path]) -> None:
    outcome, folder = calibrated
    (path,) = folder.glob("*/calibration/*.json")
    record = calibration_record.read_calibration(path)
    assert record.id in outcome.out
    assert record.complete
    assert (record.step, record.shape, record.metric) == ("right", TINY, "call")
    assert record.false_positives.rejections.total == 20
    assert len(record.false_positives.p_values) == 20
    assert record.planted == ()
    assert record.sequential is not None
    assert record.sequential.rejections.total >= 4
    assert record.protocol["seed"] == 9
    attempts = record.protocol["attempts"]
    assert [a["rounds"] for a in attempts if a["series"] == "aa"] == [10, 10]
    assert {a["ending"] for a in attempts} == {"done"}
    raw = run_record.read_samples(path.parent / record.samples_file)
    assert sum(entry["series"] == "aa" for entry in raw) == 20
    assert len({a["seed"] for a in attempts}) == len(attempts)


def test_a_failed_attempt_is_kept(
    bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    """The first session is measured, the second dies: what was measured is kept, as incomplete."""
    (tmp_path / "right.py").write_text((submissions / "right.py").read_text())
    count = tmp_path / "count"
    (tmp_path / "fragile.py").write_text(
        "import os\n\nfrom right import custom_kernel as right\n\n"
        f"open({str(count)!r}, 'a').write('x')\n"
        f"loads = os.path.getsize({str(count)!r})\n\n\n"
        "def custom_kernel(data):\n"
        "    if loads > 2:\n        raise ValueError('worn out')\n"
        "    return right(data)\n"
    )
    outcome = bench(
        "calibrate", tmp_path / "fragile.py", "--shape", TINY, *CPU, "--sequential", 0,
        "--results", tmp_path / "r",
    )  # fmt: skip
    assert outcome.code == 3
    assert "worn out" in outcome.error
    (path,) = (tmp_path / "r").glob("*/calibration/*.json")
    record = calibration_record.read_calibration(path)
    assert not record.complete
    assert record.false_positives.rejections.total == 10
    assert "worn out" in record.protocol["failure"]
    assert len(record.protocol["attempts"]) == 2


def test_a_wrong_step_is_not_calibrated_with(
    bench: Callable[..., Any], submissions: Path, tmp_path: Path
) -> None:
    outcome = bench(
        "calibrate", submissions / "writes_zeros.py", "--shape", TINY, *CPU, "--results", tmp_path
    )
    assert outcome.code == 3
    assert "writes_zeros" in outcome.error
    assert list(tmp_path.iterdir()) == []
