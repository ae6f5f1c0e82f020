"""What says how to check kernels of packages agrees with the programs beside it."""

from __future__ import annotations

import tomllib
from pathlib import Path

PROGRAMS = Path(__file__).parent / "packages"


def test_every_program_has_its_package() -> None:
    known = tomllib.loads((PROGRAMS / "packages.toml").read_text())
    assert sorted(known["program"]) == sorted(each.stem for each in PROGRAMS.glob("*.cu"))
    assert {of for of, *_ in known["program"].values()} == set(known["package"])
