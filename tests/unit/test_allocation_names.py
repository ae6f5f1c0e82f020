"""Allocations in findings of CUDA programs, by the line that asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.emulator.findings import Access, Finding, Waiting
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


@pytest.mark.parametrize(
    ("line", "allocations", "name"),
    [
        ("check(cudaMalloc(&data, 4 * n));", 1, "data (allocated at a.cu:1)"),
        ("cudaMalloc((void**)&of.rows[i].at, n);", 1, "of.rows[i].at (allocated at a.cu:1)"),
        ("cudaMallocAsync(reinterpret_cast<void**>(&p), n, s);", 1, "p (allocated at a.cu:1)"),
        ("cudaMalloc(&one, n), cudaMalloc(&two, n);", 2, "one (allocated at a.cu:1)"),
        ("cudaMalloc(few ? &one : &two, n);", 1, "allocation 1 of a.cu:1 (argument 0)"),
        (
            "few ? cudaMalloc(&one, n) : cudaMalloc(&two, n);",
            1,
            "allocation 1 of a.cu:1 (argument 0)",
        ),
        ("cudaMalloc(&any, n);", 2, "allocation 1 of a.cu:1 (argument 0)"),
        ("data = make(n);", 1, "allocation 1 of a.cu:1 (argument 0)"),
    ],
)
def test_an_allocation_is_called_by_its_variable(
    line: str, allocations: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless its line makes more of them than it has variables, or fewer."""
    file = tmp_path / "a.cu"
    file.write_text(line)
    place = Place(file, "a.cu", 1, "main", "", "")
    monkeypatch.setattr(checked_launches, "host_place", lambda pc: place if pc else None)
    finding = Finding(
        "hang", "allocation 1 (argument 0)", Access(), None, "", (), 0, 0, -1
    )  # fmt: skip
    wait = Waiting(Access(), (), 0, (0,), 1, "", "allocation 1 (argument 0) + 4 holds 0", "")
    launches = checked_launches.CheckedLaunches(1, 0, 1, 0)
    report = PtxReport("k", (PtxFinding(finding, "error", (), (), 0),), (wait,), 1, 0.0)
    launches.made.append(Launched("grid 1", 0, report))
    site = {"module": "m", "offset": 8}
    launches.name_allocations(lambda number: site if number <= allocations else None)
    report = launches.made[0].report
    assert report.findings[0].finding.text == name
    assert report.waits[0].state == f"{name} + 4 holds 0"
