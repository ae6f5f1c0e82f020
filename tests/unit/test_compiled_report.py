"""The emulator's report in words: what is counted, named and grouped."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kernelbench.base import schema
from kernelbench.emulator import assumptions
from kernelbench.emulator import findings as emulator_report
from kernelbench.emulator.diagnostics import HELP, finding_lines, note, report_lines
from kernelbench.emulator.findings import EmulatorReport, resolve_report
from kernelbench.emulator.symbols import Place, Symbols

ASSUMPTIONS = Path(__file__).parents[2] / "kernels/common/backend/emu/runtime/assumptions.cpp"
FINDINGS = Path(__file__).parents[2] / "kernels/common/backend/emu/runtime/findings_json.cpp"


class Fixed(Symbols):
    """Symbols of a library that does not exist: places by offset, names by offset in storage."""

    def __init__(self) -> None:
        super().__init__({})

    def place(self, pc: Any) -> Place | None:
        if pc is None:
            return None
        role = {1: "load_warp", 2: "mma_warp"}.get(pc["offset"], "")
        return Place(Path("k"), "v07/kernel.cuh", 100 + pc["offset"], role, role)

    def shared_name(self, pc: Any, type_name: str | None, offset: int) -> str:
        return f"full[{offset // 8}]" if pc and 0 <= offset < 64 else ""


def pc(offset: int) -> dict[str, Any]:
    return {"module": "lib.so", "offset": offset}


def finding(**changes: Any) -> dict[str, Any]:
    return {
        "class": "race", "text": "a store and a load", "pc": pc(1), "other_pc": pc(2), "count": 3,
        "cta": [4, 0, 0], "rank": 0, "thread": 128, "shared_offset": 16, "tmem_column": -1,
        "other_thread": 5, "shared_type": "S",
    } | changes  # fmt: skip


def wait(warp: int, **changes: Any) -> dict[str, Any]:
    return {
        "cta": [0, 0, 0], "rank": 0, "warp": warp, "lanes": 0xFFFFFFFF, "kind": "mbarrier",
        "pc": pc(1), "object": 16, "parity": 1, "phase": 3, "pending": 1, "expected": 2, "tx": 0,
        "shared_type": "S",
    } | changes  # fmt: skip


HANG = finding(**{"class": "hang", "pc": None, "other_pc": None})


def report_of(*findings: Any, waits: Any = ()) -> EmulatorReport:
    raw = {"findings": findings, "waits": waits, "launches": 1, "switches": 9, "seconds": 0.5}
    return resolve_report(json.loads(json.dumps(raw)), Fixed())


def lines(report: EmulatorReport, max_findings: int | None = None) -> list[str]:
    return [text for _, text in report_lines(report, max_findings)]


def test_a_finding_has_both_sides_and_its_object() -> None:
    report = report_of(finding())
    both = "v07/kernel.cuh:101 and v07/kernel.cuh:102"
    assert lines(report) == [
        "error[race]: a store and a load",
        "  --> v07/kernel.cuh:101   load_warp (CTA 4, thread 128)",
        "  ::: v07/kernel.cuh:102   mma_warp (thread 5)",
        "  = object: full[2]",
        "  = count: 3 times at these lines",
        *(text for _, text in note("help", HELP["race"].format(both=both))),
        f"  = identity: {report.findings[0].identity}",
    ]
    assert report.headline() == "race: a store and a load (load_warp, v07/kernel.cuh:101)"


def test_a_read_of_nothing_stands_behind_what_explains_it() -> None:
    unwritten = finding(**{"class": "unwritten", "other_pc": None})
    race, elsewhere = finding(), finding(shared_offset=24)
    crash = finding(**{"class": "crash", "shared_offset": -1})

    def order(*found: Any) -> list[str]:
        return [each.kind for each in report_of(*found).findings]

    assert order(unwritten, crash, race) == ["crash", "race", "unwritten"]
    assert order(unwritten, elsewhere, crash) == ["unwritten", "race", "crash"]
    nowhere = [each | {"shared_offset": -1} for each in (unwritten, race)]
    assert order(*nowhere) == ["unwritten", "race"]


def test_a_finding_without_places_is_said_all_the_same() -> None:
    report = report_of(finding(pc=None, other_pc=None, shared_offset=-1, tmem_column=12, count=1))
    text = "\n".join(lines(report))
    assert "error[race]: a store" in text
    assert "TMEM column 12" in text
    assert "kernel.cuh" not in text
    assert report.headline() == "race: a store and a load"
    assert EmulatorReport().headline() == ""


def test_warps_that_wait_for_the_same_are_one_line() -> None:
    waits = [wait(0), wait(1), wait(2), wait(5), wait(3, pc=pc(2), object=24)]
    hang = HANG | {"text": "nothing can run and nothing is pending: 160 threads wait"}
    report = report_of(hang, waits=waits)
    assert [w.warps for w in report.waits] == [(0, 1, 2, 5), (3,)]
    text = "\n".join(lines(report))
    text = " ".join(text.split())
    who = "load_warp (warps 0–2, 5) at v07/kernel.cuh:101 waits for full[2]:"
    assert f"{who} phase parity 1; 3 phases completed, 1 of 2 arrivals pending; 1 more" in text
    # The one warp, not the four that may wait for its result.
    assert report.headline() == (
        "hang: deadlock: mma_warp at v07/kernel.cuh:102 waits for full[3], which lacks 1 arrival; "
        "160 threads wait"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phase": 0, "pending": 2, "arrive_pc": None}, "which lacks 2 arrivals (none has come)"),
        ({"arrive_pc": pc(1)}, "1 arrival (the last came from load_warp at v07/kernel.cuh:101)"),
        ({"kind": "warp"}, "waits for the other lanes of its warp; 32 threads wait"),
    ],
)
def test_a_deadlock_says_what_never_came(changes: dict[str, Any], said: str) -> None:
    hang = HANG | {"text": "nothing can run and nothing is pending: 32 threads wait"}
    (found,) = report_of(hang, waits=[wait(0, pc=pc(2), **changes)]).findings
    assert said in found.text
    assert found.text.startswith("deadlock: mma_warp at v07/kernel.cuh:102 waits for ")


def test_other_hangs_keep_what_the_runtime_says() -> None:
    late, livelock = "the kernel has not ended after 5 s: 1 threads wait, 1 can run", "livelock: 2"
    for text, more in (
        (late, "; load_warp at v07/kernel.cuh:101 waits for full[2]"),
        (livelock, ""),
    ):
        (found,) = report_of(HANG | {"text": text}, waits=[wait(0)]).findings
        assert found.text.startswith(text + more)


def test_the_headline_of_a_hang_is_the_cause_and_not_a_victim() -> None:
    barrier = wait(0, kind="named-barrier", object=1, pending=32, expected=192)
    stage = wait(1, pc=pc(2), object=24, pending=1, expected=1)
    bytes_short = wait(2, pc=pc(2), object=16, tx=512)
    for waits, named in (
        ([barrier, stage], "full[3]"),
        ([barrier, stage, bytes_short], "full[2]"),
        ([barrier], "named barrier 1"),
        ([barrier, wait(3, kind="global", word="")], "a value in global memory"),
    ):
        assert f" waits for {named}" in report_of(HANG, waits=waits).headline()


def test_a_barrier_for_more_threads_than_come_is_the_cause() -> None:
    barrier = wait(0, pc=pc(2), kind="named-barrier", object=1, pending=32, expected=64)
    full = wait(1, pc=pc(2), object=24, pending=2)
    many = [wait(warp, pc=pc(2), object=24, pending=2) for warp in (1, 2, 3)]
    named, other = "named barrier 1", "full[3]"
    nothing = HANG | {"text": "nothing can run and nothing is pending: 4 threads wait"}
    for waits, cause in (
        ([barrier, full], other),  # the other warp may be the one that is missing
        ([barrier | {"pending": 64, "expected": 96}, full], named),  # too few are left
        ([barrier | {"before": 32}, *many], named),  # it was for one warp the last time
        ([barrier | {"before": 64}, *many], other),
        ([barrier, *(each | {"pc": pc(1), "pending": 2} for each in many)], named),  # other roles
    ):
        found = report_of(nothing, waits=waits).headline()
        assert f" waits for {cause}" in found, (waits, found)
    running = HANG | {"text": "the kernel has not ended after 5 s: 64 threads wait, 1 can run"}
    short = barrier | {"pending": 64, "expected": 96}
    assert f" waits for {other}" in report_of(running, waits=[short, full]).headline()


def test_causes_come_before_what_follows() -> None:
    def one(kind: str, where: int, **changes: Any) -> dict[str, Any]:
        return finding(**({"class": kind, "pc": pc(where), "text": kind} | changes))

    late = one("transaction-count", 3)
    beyond, race = one("out-of-bounds", 4, other_pc=None), one("race", 4)
    for found, order in (
        ([one("overwrite", 1), one("early-read", 2), late], ["transaction-count", "overwrite"]),
        ([race, beyond], ["out-of-bounds", "race"]),
        ([one("race", 5), beyond], ["race", "out-of-bounds"]),
    ):
        report = report_of(*found)
        assert [each.kind for each in report.findings][:2] == order


def test_who_skips_a_phase_is_the_cause() -> None:
    producer = wait(4, object=24, parity=1, phase=1, pending=4, expected=4, lanes=1)
    consumer = wait(0, pc=pc(2), object=8, parity=0, phase=2, pending=1, expected=1)
    report = report_of(HANG | {"text": "nothing can run and nothing is pending: 33 threads wait"},
                       waits=[producer, consumer | {"skips": True}])  # fmt: skip
    assert "mma_warp at v07/kernel.cuh:102 waits for full[1]" in report.headline()
    text = "\n".join(lines(report))
    assert "has skipped a phase" in text and "let both roles count alike" in text
    assert " waits for full[3]" in report_of(HANG, waits=[producer, consumer]).headline()


@pytest.mark.parametrize(
    ("pending", "tx", "needs"),
    [
        (0, 2048, "2048 more bytes"),
        (2, 1, "2 more arrivals and 1 more byte"),
        (0, -512, "an expect_tx of 512 more bytes"),
        (0, 0, ""),
    ],
)
def test_what_would_end_a_wait(pending: int, tx: int, needs: str) -> None:
    (found,) = report_of(waits=[wait(0, pending=pending, tx=tx)]).waits
    assert found.needs == needs


def test_lanes_that_wait_for_a_lane_of_their_warp_are_left_out() -> None:
    lanes = wait(4, kind="warp", pc=pc(2), lanes=0xFFFFFFFE)
    text = "\n".join(lines(report_of(waits=[wait(4, lanes=1), lanes])))
    assert "(warp 4, 1 lane)" in text and "31 lanes" not in text
    text = "\n".join(lines(report_of(waits=[wait(5, lanes=1), lanes])))
    assert "(warp 4, 31 lanes)" in text


def test_other_waits_and_many_ctas() -> None:
    waits = [wait(0, kind="named-barrier", object=3, cta=[i, 0, 0], lanes=1) for i in range(6)]
    waits += [wait(1, kind="warp", cta=[0, 0, 0])]
    text = "\n".join(lines(report_of(waits=waits)))
    assert "(warp 0, 1 lane) at v07/kernel.cuh:101 waits for named barrier 3" in text
    assert "waits for the other lanes of its warp" in text
    assert text.count("CTA ") == 2
    assert "… and 4 more CTAs that wait likewise" in text
    waits = [wait(0, kind="named-barrier", object=i, cta=[i, 0, 0], lanes=1) for i in range(6)]
    text = "\n".join(lines(report_of(waits=waits)))
    assert text.count("CTA ") == 4
    assert text.endswith("… and 2 more CTAs")


def test_findings_are_limited() -> None:
    report = report_of(finding(), finding(pc=pc(3)), finding(pc=pc(4)))
    text = "\n".join(lines(report, 1))
    assert text.count("error[race]") == 1
    assert "… and 2 more findings" in text


def test_a_report_survives_the_way_from_the_worker() -> None:
    report = report_of(finding(), waits=[wait(0)])
    text = json.dumps(dataclasses.asdict(report))
    assert schema.decode(EmulatorReport, json.loads(text)) == report


def test_every_class_of_the_runtime_is_explained() -> None:
    names = re.search(r"kNames\[\] = \{(.*?)\};", FINDINGS.read_text(), re.S)
    assert names is not None
    assert set(re.findall(r'"([a-z-]+)"', names[1])) == set(emulator_report.CLASSES)
    assert set(HELP) == set(emulator_report.CLASSES) - {"crash"}


def test_every_assumption_of_the_runtime_is_explained() -> None:
    names = re.search(r"kNames\[\] = \{(.*?)\};", ASSUMPTIONS.read_text(), re.S)
    assert names is not None
    assert re.findall(r'"([a-z-]+)"', names[1]) == [
        *assumptions.ASSUMPTIONS, assumptions.HOST_IN_TURN
    ]  # fmt: skip


def test_a_race_between_ctas_is_another_finding_with_other_help() -> None:
    """By a field: the text may say it in any words."""
    helps = {False: "a CTA barrier", True: "__threadfence()"}
    found = [each for abroad in helps for each in report_of(finding(abroad=abroad)).findings]
    assert len({each.identity for each in found}) == len(helps)
    for each, told in zip(found, helps.values(), strict=True):
        assert any(told in line for _, line in finding_lines(each))


def test_a_second_arrival_is_told_what_it_may_be() -> None:
    text = "the count is 1, but 2 arrive in a phase: nothing orders this arrival"
    (found,) = report_of(finding(text=text, **{"class": "arrival-count"})).findings
    shown = " ".join(line.strip() for _, line in finding_lines(found))
    assert "if both arrive in one phase, give mbarrier.init that many" in shown


def test_an_object_that_the_headline_names_is_not_said_again() -> None:
    for name, again in (("a", True), ("b (allocated at k.cu:9)", False)):
        (found,) = report_of(
            finding(text=f"a store writes {name}", buffer=name, shared_offset=-1)
        ).findings
        shown = [line for _, line in finding_lines(found)]
        assert (f"  = object: {name}" in shown) == again
