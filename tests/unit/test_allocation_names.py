"""Allocations in findings of CUDA programs, by the line that asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.emulator.findings import Access, Finding
from kernelbench.emulator.symbols import Place
from kernelbench.ptx.hosts import checked_launches
from kernelbench.ptx.report import Launched, PtxFinding, PtxReport


def test_findings_name_the_line_of_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place(Path("a.cu"), "a.cu", 9, "main", "", "")
    monkeypatch.setattr(checked_launches, "host_place", lambda pc: place if pc else None)
    finding = Finding(
        "race", "reads allocation 1 (argument 0) and allocation 12", Access(), None,
        "allocation 1 + 4", (), 0, 0, -1, identity="race-0123456789",
    )  # fmt: skip
    launches = checked_launches.CheckedLaunches(1, 0, 1, 0)
    report = PtxReport("k", (PtxFinding(finding, "error", (), (), 0),), (), 1, 0.0)
    launches.made.append(Launched("grid 1", 0, report))
    launches.name_allocations(lambda number: {"module": "m", "offset": 0} if number == 1 else None)
    (named,) = (each.finding for each in launches.made[0].report.findings)
    assert named.text == "reads allocation 1 of a.cu:9 (argument 0) and allocation 12"
    assert named.object == "allocation 1 of a.cu:9 + 4"
    assert named.identity == "race-0123456789"
