"""From the runtime's events to slices, asynchronous operations, counters and a state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kernelbench.emulator.findings import Access, Finding
from kernelbench.emulator.state import state_at
from kernelbench.emulator.symbols import Place, Symbols
from kernelbench.emulator.trace import (
    BARRIER,
    DONE,
    FINDING,
    ISSUE,
    PRIMITIVE,
    RESUMED,
    RUN,
    WAIT,
    Trace,
    chrome_trace,
)

_FOUND = Finding(
    "race", "text", Access("mma_warp", "v/k.cuh:2"), None, "full[0]", (0, 0, 0), 0, 40, -1,
    identity="race-0123456789",
)  # fmt: skip


class Fixed(Symbols):
    """Places by number, names by offset."""

    def __init__(self) -> None:
        super().__init__({})

    def place(self, pc: Any) -> Place | None:
        return pc and Place(Path("k"), "v/k.cuh", pc["offset"], "f", "load_warp")

    def shared_name(self, pc: Any, type_name: str | None, offset: int) -> str:
        return f"full[{offset // 8}]"


def trace(*events: tuple[int, ...]) -> Trace:
    """Events of launch 0, cluster 0, CTA 0: what, thread, place, a, b, c."""
    padded = [
        [time, what, 0, 0, 0, thread, place, *more, *[0] * (3 - len(more))]
        for time, (what, thread, place, *more) in enumerate(events)
    ]
    places = [None, {"module": "m", "offset": 1}, {"module": "m", "offset": 2}]
    raw = {"events": padded, "dropped": 0, "places": places, "shared_type": "S"}
    return Trace(raw, [_FOUND], Fixed())


SHOWN = trace(
    (PRIMITIVE, 0, 1),
    (ISSUE, 0, 1, 7, -1),
    (PRIMITIVE, 1, 1),
    (WAIT, 0, 2, 1, 0, 1),
    (PRIMITIVE, 40, 2),
    (RUN, -1, 0, 7),
    (DONE, -1, 0, 7),
    (BARRIER, -1, 1, 0, 3, 1),
    (RESUMED, 0, 0),
    (PRIMITIVE, 0, 2),
    (ISSUE, 0, 2, 8, 0),
    (FINDING, 40, 0, 0),
)


def test_lanes_one_after_another_are_one_slice_and_a_wait_fills_the_gap() -> None:
    of_first = [each for each in SHOWN.slices() if each.warp[3] == 0]
    assert [(each.begin, each.end, each.waits) for each in of_first] == [
        (0, 3, False), (4, 8, True), (9, 10, False),
    ]  # fmt: skip
    assert of_first[1].name == "waits for full[0] (parity 1)"


def test_a_warp_that_never_goes_on_waits_to_the_end() -> None:
    stuck = trace((WAIT, 3, 1, 2, 5, 0), (PRIMITIVE, 40, 1), (PRIMITIVE, 40, 2))
    (wait,) = (each for each in stuck.slices() if each.waits)
    assert (wait.begin, wait.end, wait.name) == (1, 3, "waits for named barrier 5")


def test_operations_last_from_issue_to_completion() -> None:
    events = chrome_trace(SHOWN, "t")["traceEvents"]
    spans = [(e["ph"], e["id"], e["ts"], e["name"]) for e in events if e["ph"] in "be"]
    assert spans == [
        ("b", 7, 1, "copies and arrivals"),
        ("e", 7, 6, "copies and arrivals"),
        ("b", 8, 10, "warp 0: tensor pipe"),
        ("e", 8, 12, "warp 0: tensor pipe"),  # which has not completed
    ]
    (counter,) = (e for e in events if e["ph"] == "C")
    assert (counter["name"], counter["ts"]) == ("full[0]", 7)
    assert counter["args"] == {"phases completed": 3, "arrivals pending": 1}
    (instant,) = (e for e in events if e["ph"] == "i")
    assert (instant["ts"], instant["tid"], instant["name"]) == (11, 1, "race: text")
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"warp 0 (load_warp)", "warp 1 (load_warp)"}


def test_the_state_has_barriers_what_is_pending_and_who_is_involved() -> None:
    assert state_at(SHOWN, "race-0123456789") == [
        "event 11 of 12: launch 0, cluster 0, CTA 0 of it",
        "barriers",
        "  full[0]  3 completed, phase parity 1, 1 pending",
        "issued and not completed",
        "  v/k.cuh:2: ",
        "last of warp 1 (cluster 0, CTA 0 of it), newest first",
        "  load_warp at v/k.cuh:2: ",
    ]
    assert state_at(SHOWN, "race-9876543210") == []
