"""``tests/long_tests.txt`` names tests that exist."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = (ROOT / "tests" / "long_tests.txt").read_text().splitlines()


def test_each_once_and_in_order() -> None:
    assert sorted(set(NAMES)) == NAMES


def test_they_are_there() -> None:
    for name in NAMES:
        file, *_, function = name.partition("[")[0].split("::")
        assert f"def {function}(" in (ROOT / file).read_text(), name
