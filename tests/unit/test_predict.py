"""Predictions: what a trace holds, what the replay makes of it, what is refused."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from kernelbench.base.errors import (
    EnvironmentProblem,
    ExitCode,
    IncorrectError,
    KernelbenchError,
    UsageError,
)
from kernelbench.cli import invoke
from kernelbench.emulator.symbols import Place
from kernelbench.predict import api, evidence, instructions
from kernelbench.predict.device_probes import PROBES, file_text
from kernelbench.predict.instructions import (
    STRETCH,
    blocks_of,
    instructions_by_block,
    stretches_of,
)
from kernelbench.predict.model import COSTS, Cost, device, read_device, replay
from kernelbench.predict.schedule import Schedule, read_schedules, save_schedule, schedule_of
from kernelbench.predict.timeline import (
    COPIES,
    PATH,
    TENSOR_CORE,
    Timeline,
    perfetto,
    timeline_rows,
)
from kernelbench.predict.trace import OPS, RECORD, StepTrace, locked_registers
from kernelbench.project.context import Context
from kernelbench.report.drawing import short_us
from kernelbench.report.schedule_plot import schedules_svg

#: Costs that differ from each other, so that a sum says which ones are in it.
COST = {name: float(2 * i + 3) for i, name in enumerate(COSTS)} | {
    "clock_ghz": 1.0, "sms": 2.0, "shared_per_sm": 1e6, "hbm_gb_s": 64.0, "l2_gb_s": 128.0,
    "port_bytes": 4096.0,
}  # fmt: skip
AROUND = COST["launch"] + COST["cta_start"] + COST["end"] + COST["call"]
THREAD, COPY, TENSOR = range(3)


def records(*rows: tuple[Any, ...], ctas: int = 1, threads: int = 64) -> np.ndarray[Any, Any]:
    """Records behind those of a launch: op, warp, and a, b, c, x."""
    found = np.zeros(len(rows) + 1, RECORD)
    found[0]["a"], found[0]["b"] = ctas, threads | 1 << 16
    for record, (op, warp, *operands) in zip(found[1:], rows, strict=True):
        record["op"], record["warp"] = OPS.index(op), warp
        for name, value in zip("abcx", operands, strict=False):
            record[name] = value
    return found


def cycles(*rows: tuple[Any, ...], **launch: int) -> float:
    us, _ = replay(records(*rows, **launch), COST)
    return us * 1e3 - AROUND


def test_a_launch_that_does_nothing_starts_and_ends() -> None:
    assert cycles() == pytest.approx(0)


def test_a_wait_ends_with_the_other_warps_arrival() -> None:
    own = ("tmem_store", 0, 100)
    arrival, wait = ("arrive", 0, 1, 0, THREAD), ("wait", 1, 1, 1)
    alone = COST["issue"] + 100 * COST["tmem_store_register"]
    assert cycles(own, arrival, wait) == pytest.approx(alone + COST["arrive"] + COST["handoff"])


def test_a_wait_for_a_phase_before_the_first_does_not_wait() -> None:
    assert cycles(("wait", 0, 1, 0)) == pytest.approx(COST["wait"])


def test_a_commit_arrives_when_the_tensor_core_is_through() -> None:
    mma = ("mma", 0, 128, 256, 1)
    rows = [mma, mma, ("tensor_commit", 0), ("arrive", 0, 1, 0, TENSOR), ("wait", 1, 1, 1)]
    each = max(COST["mma_least"], 256 * COST["mma_column"])
    tail = COST["mma_latency"] + COST["arrive"] + COST["wait"]
    assert cycles(*rows) == pytest.approx(COST["issue"] + 2 * each + tail)


def test_a_wgmma_takes_its_columns_and_a_wait_leaves_the_newest_groups() -> None:
    product, commit = ("warpgroup_mma", 0, 256, 0, 1), ("warpgroup_commit", 0)
    one = 256 * COST["wgmma_column"]
    for pending, products in ((0, 2), (1, 1)):
        rows = [product, commit, product, commit, ("warpgroup_wait", 0, pending)]
        expected = COST["issue"] + products * one + COST["wgmma_latency"]
        assert cycles(*rows) == pytest.approx(expected)


def test_a_narrow_wgmma_waits_for_a_in_shared_memory() -> None:
    def alone(columns: int, registers: int) -> float:
        rows = [("warpgroup_mma", 0, columns, registers, 1), ("warpgroup_commit", 0)]
        return cycles(*rows, ("warpgroup_wait", 0, 0)) - COST["issue"] - COST["wgmma_latency"]

    half = 8 * COST["wgmma_column"] / 2
    assert alone(8, 0) == pytest.approx(max(2 * half, COST["wgmma_shared"] + half))
    assert alone(8, 1) == pytest.approx(2 * half)


def test_instructions_take_a_warps_time_and_an_issue_slot_of_a_quarter() -> None:
    path = np.array([(100, 20, 70, 10, 15, 1, 2, 0)], STRETCH)

    def both(second: int, **costs: float) -> float:
        rows = [("accesses", warp, 0, 0, 0, 1) for warp in (0, second)]
        us, _ = replay(records(*rows, threads=256), COST | costs, stretches=path)
        return us * 1e3 - AROUND

    alike = {"integer_slot": 0.0}
    assert both(1, instruction=4, **alike) == pytest.approx(400)
    assert both(1, instruction=0.5, **alike) == pytest.approx(100)
    assert both(4, instruction=0.5, **alike) == pytest.approx(200)
    classes = {"float_slot": 1.0, "integer_slot": 2.0, "special_slot": 8.0}
    latencies = {"special_latency": 17.0, "shared_latency": 23.0}
    slots, chain = 20 + 2 * 70 + 8 * 10, 17 + 2 * 23
    assert both(1, instruction=4, **classes, **latencies) == pytest.approx(slots)
    assert both(4, instruction=4, **classes, **latencies) == pytest.approx(2 * slots)
    assert both(4, instruction=40, **classes, **latencies) == pytest.approx(15 * 40 + chain)


def test_code_that_an_sm_has_not_executed_comes_from_memory() -> None:
    paths = np.array([(10, 0, 0, 0, 0, 0, 0, 6), (10, 0, 0, 0, 0, 0, 0, 4)], STRETCH)

    def of(*numbers: int) -> float:
        rows = [("accesses", 0, 0, 0, 0, number) for number in numbers]
        us, _ = replay(records(*rows), COST, stretches=paths)
        return us * 1e3 - AROUND

    assert of(1) == of(1, 1) == pytest.approx(6 * COST["fetch"])
    assert of(1, 2, 1) == pytest.approx(10 * COST["fetch"])


def test_fragments_in_registers_keep_a_warp_until_the_tensor_core_takes_them() -> None:
    def second(registers: int) -> float:
        product = ("warpgroup_mma", 0, 256, registers, 1)
        return cycles(product, product, ("tmem_store", 0, 100))

    store = COST["issue"] + 100 * COST["tmem_store_register"]
    assert second(0) == pytest.approx(2 * COST["issue"] + store)
    waits = COST["issue"] + 256 * COST["wgmma_column"]
    assert second(1) == pytest.approx(waits + store)


def test_a_chain_goes_by_registers_and_places_of_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    hook = "call   30 <__sanitizer_cov_trace_pc@plt>"
    listing = [
        "0000000000000040 <kernel>:", "_ZN2kb4step6kernelEv():", "/kb/step/kernel.cuh:3",
        f"  40:\t{hook}", "  45:\tcall   30 <__tsan_read4@plt>", "  47:\tmov    (%rbx),%eax",
        "  49:\tshr    $0x3,%eax", "  4b:\tand    $0xe0e,%eax", "  4d:\tor     %ecx,%eax",
        "  4f:\tmov    %eax,-0x8(%rbp)", "  51:\tadd    $0x1,%edx", "  53:\taddss  %xmm1,%xmm0",
        "  55:\tadd    -0x8(%rbp),%edx", "  57:\tcvttss2si %xmm0,%esi",
        f"  60:\t{hook}", "_ZN2kb8prmt_b32Ejjj():", "/kb/common/backend/emu/half_words.inl:8",
        "  65:\tfnop", "  67:\tshr    $0x8,%edx", "  69:\tand    $0xff,%edx",
    ]  # fmt: skip
    monkeypatch.setattr(instructions, "_listing", lambda _: "\n".join(listing))
    paths = np.array([8, 3, 0x45, 1 << 31 | 1, 0x65, 7, 1, 0x45], np.uint32)
    found = stretches_of("a library of a test", paths)
    # A load, three of integers, the sum that takes them: `and` and `or` are one. Then PRMT.
    assert found[0].tolist() == (8, 1, 5, 1, 4, 0, 1, 8)
    assert found[1].tolist()[-1] == 0
    assert stretches_of("", paths[:0]).size == 0


def test_a_block_is_as_many_instructions_as_a_gpu_has_for_it() -> None:
    hook = "call   30 <__sanitizer_cov_trace_pc@plt>"
    listing = [
        "0000000000000040 <kernel>:", "/kb/step/kernel.cuh:3",
        f"  40:\t{hook}", "  45:\tmov    (%rbx),%eax", "  47:\tadd    $0x1,%eax",
        "  4a:\tmulss  %xmm1,%xmm0", "  4e:\tdivss  %xmm1,%xmm0", "  52:\txor    %esi,%esi",
        "  54:\tlea    0x8(%rbx),%rdi", "  58:\tcall   30 <__tsan_read4@plt>",
        "  5d:\tcall   20 <expf@plt>", "  62:\tcmp    %eax,%ebx", "  64:\tjne    40 <kernel>",
        f"  66:\t{hook}", "/kb/common/backend/emu/cvt.inl:8", "  6b:\tfnop", "  6d:\tshr    %eax",
        "0000000000000070 <other>:", "/kb/step/kernel.cuh:9", "  70:\tadd    $0x1,%eax",
    ]  # fmt: skip
    found = blocks_of("\n".join(listing))
    counts = {int(at): int(found[at]) for at in found.nonzero()[0]}
    assert counts == {0x45: 1 + 10 + 15 + 1, 0x6B: 1}
    assert blocks_of("").size == 0


def test_without_objdump_a_prediction_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentProblem, match="objdump") as raised:
        instructions_by_block("lib.so")
    assert raised.value.hint == "install binutils"


def test_a_bulk_store_delays_the_loads_behind_it() -> None:
    store, load = ("store", 0, 64 * 1024), ("load", 1, 7, 4096, 1, 1)
    behind = ("arrive", 1, 1, 0, COPY), ("wait", 1, 1, 1), ("tmem_store", 1, 100)
    passes = 64 * COST["store_kib"] + 4096 / COST["port_bytes"]
    rest = COST["wait"] + COST["issue"] + 100 * COST["tmem_store_register"]
    assert cycles(store, load, *behind) == pytest.approx(COST["issue"] + passes + rest)


def test_a_store_takes_as_long_as_the_sectors_and_passes_of_its_warp() -> None:
    assert cycles(("accesses", 0, 0, 5 << 32)) == pytest.approx(5 * COST["global_store"])
    assert cycles(("accesses", 0, 7 << 32)) == pytest.approx(7 * COST["shared_store"])


def test_warps_of_one_quarter_of_an_sm_share_a_tensor_core() -> None:
    def both(second: int) -> float:
        rows = [
            (op, warp, *of)
            for warp in (0, second)
            for op, *of in (
                ("warpgroup_mma", 256, 0, 1), ("warpgroup_commit",), ("warpgroup_wait", 0),
            )
        ]  # fmt: skip
        return cycles(*rows, threads=256)

    assert both(4) - both(1) == pytest.approx(256 * COST["wgmma_column"])


def test_a_wait_for_cp_async_waits_for_the_bytes_of_32_lanes() -> None:
    rows = [("async_copy", 0, 64, 16), ("async_commit", 0), ("async_wait", 0, 0)]
    by_hbm = 512 / COST["hbm_gb_s"] + COST["latency_hbm"]
    assert cycles(*rows) == pytest.approx(COST["async_copy"] + by_hbm)
    written = [("async_copy", 0, 64, 16, 0, 1 << 31), *rows[1:]]
    assert by_hbm > cycles(*written) - COST["async_copy"] > COST["latency_l2"]


def test_a_dependent_grid_starts_early_and_waits_for_the_one_before() -> None:
    work = [("tmem_load", 0, 1000), ("tmem_wait", 0)]
    first = records(("grid_trigger", 0), *work, threads=32)
    alone = cycles(*work, threads=32)
    both = {}
    for dependent in (0, 1):
        second = records(("grid_wait", 0), threads=32)
        second[0]["x"] = dependent
        found = np.concatenate([first, second])
        us, parts = replay(found, COST, 10)
        assert sum(part.us for part in parts) == pytest.approx(us)
        both[dependent] = 1e3 * us - AROUND - alone
    again = COST["launch"] + COST["cta_start"]
    assert both[0] == pytest.approx(COST["end"] + again)
    assert both[1] == pytest.approx(0)


def test_registers_limit_how_many_ctas_are_resident() -> None:
    costs = COST | {"registers": 65536.0, "sms": 1.0}
    found = records(ctas=4, threads=128)
    none_known, _ = replay(found, costs)
    found[0]["pc"] = 168  # three CTAs of four warps
    assert replay(found, costs)[0] - none_known == pytest.approx(COST["cta_start"] / 1e3)


def test_a_second_load_of_the_same_bytes_comes_from_l2() -> None:
    def load(barrier: int, address: int) -> list[tuple[Any, ...]]:
        return [("load", 0, address, 4096, 1, 1), ("arrive", 0, barrier, 0, COPY)]

    wait = [("wait", 0, 1, 1)]
    again = cycles(*load(1, 64), *wait, *load(2, 64), ("wait", 0, 2, 1))
    other = cycles(*load(1, 64), *wait, *load(2, 65536), ("wait", 0, 2, 1))
    by_hbm = 4096 / COST["hbm_gb_s"] + COST["latency_hbm"]
    by_l2 = 4096 / COST["l2_gb_s"] + COST["latency_l2"]
    assert other - again == pytest.approx(by_hbm - by_l2)


def test_ctas_beyond_the_resident_ones_come_later() -> None:
    costs = COST | {"shared_per_sm": 1024.0}  # one CTA on an SM
    one, _ = replay(records(ctas=2), costs)
    two, _ = replay(records(ctas=3), costs)
    assert two - one == pytest.approx(COST["cta_start"] / 1e3)


def test_the_path_of_a_later_cta_goes_on_in_the_one_that_made_room() -> None:
    costs = COST | {"shared_per_sm": 1024.0, "sms": 1.0}
    found = records(("tmem_load", 0, 100), ("tmem_wait", 0), ctas=2, threads=32)
    us, parts = replay(found, costs, 10)
    path = {part.cause: part.us for part in parts}
    assert 1e3 * path["launch and start"] == pytest.approx(AROUND + COST["cta_start"])
    assert sum(path.values()) == pytest.approx(us)
    assert path["tcgen05.ld"] > 0


def test_a_wait_for_what_never_comes_is_said() -> None:
    # Each warp arrives at what the other waits for, once it has waited itself.
    first = [("wait", 0, 1, 1), ("arrive", 0, 2, 0, THREAD)]
    second = [("wait", 1, 2, 1), ("arrive", 1, 1, 0, THREAD)]
    with pytest.raises(KernelbenchError, match="does not end"):
        replay(records(*first, *second), COST)


def test_the_critical_path_is_the_time() -> None:
    mma = ("mma", 0, 128, 256, 1)
    found = records(mma, ("tensor_commit", 0), ("arrive", 0, 1, 0, TENSOR), ("wait", 1, 1, 1))
    us, bubbles = replay(found, COST, 20)
    assert sum(each.us for each in bubbles) == pytest.approx(us)
    assert "tensor core" in [each.cause for each in bubbles]


#: The places of a load, an MMA and a commit, and what each of them is in a row of its own.
AT_LOAD, AT_MMA, AT_COMMIT, AT_WAIT = 1, 2, 3, 4


def load_and_multiply() -> np.ndarray[Any, Any]:
    """Warp 0 loads 4096 B, warp 1 waits for them, multiplies and waits: one chain, no choice."""
    found = records(
        ("load", 0, 64, 4096, 1, 1),
        ("arrive", 0, 1, 0, COPY),
        ("wait", 1, 1, 1),
        ("mma", 1, 128, 256, 1),
        ("tensor_commit", 1),
        ("arrive", 1, 2, 0, TENSOR),
        ("wait", 1, 2, 1),
    )
    found["pc"][1:] = [AT_LOAD, AT_LOAD, AT_WAIT, AT_MMA, AT_COMMIT, AT_COMMIT, AT_WAIT]
    return found


@pytest.mark.parametrize(
    ("cause", "place", "saved"),
    [
        ("copy: HBM", AT_LOAD, 4096 / COST["hbm_gb_s"] - 4096 / COST["l2_gb_s"]),
        ("copy: latency", AT_LOAD, COST["latency_hbm"]),
        ("copy: TMA unit", AT_LOAD, COST["tma_issue"]),
        ("copy: HBM", AT_MMA, 0),
        # The commit is issued while the MMA runs; the wait for it then costs what any wait does.
        ("tensor core", AT_MMA,
         256 * COST["mma_column"] + COST["mma_latency"] + COST["arrive"] - COST["issue"]),
        ("tensor core", AT_COMMIT, 0),
        ("issue", 0, 2 * COST["issue"]),
        ("launch and start", 0, AROUND),
    ],
)  # fmt: skip
def test_what_is_free_at_a_place_costs_nothing_there(cause: str, place: int, saved: float) -> None:
    trace = load_and_multiply()
    us, _ = replay(trace, COST)
    free, _ = replay(trace, COST, free=(cause, [place]))
    assert 1e3 * (us - free) == pytest.approx(saved)


class Places:
    """Symbols of an artificial trace: two addresses of each line."""

    def place(self, pc: dict[str, int]) -> Place:
        line = (pc["offset"] + 1) // 2
        return Place(Path("kernel.cuh"), "kernel.cuh", line, "", "")


def test_bubbles_are_the_parts_of_the_path_and_the_time_without_them() -> None:
    trace = load_and_multiply()
    trace["pc"] *= 2
    costs = COST | {"mma_column": 4.0}
    us, _ = replay(trace, costs)
    found = api.bubbles_of(StepTrace(trace, Places()), costs)  # type: ignore[arg-type]
    assert {(each.cause, each.where) for each in found} == {
        ("tensor core", f"kernel.cuh:{AT_MMA}"), ("copy: HBM", f"kernel.cuh:{AT_LOAD}"),
        ("issue", ""), ("launch and start", ""),
    }  # fmt: skip
    assert found[0].cause == "tensor core"
    assert sum(each.on_path_us for each in found) == pytest.approx(us)
    assert [each.if_free_us for each in found] == sorted(each.if_free_us for each in found)
    assert all(us - each.on_path_us - 1e-9 <= each.if_free_us <= us for each in found)


def test_a_timeline_has_the_waits_of_each_warp_and_what_its_units_do() -> None:
    trace = load_and_multiply()
    trace["pc"] *= 2
    costs = COST | {"mma_column": 4.0}
    rows = timeline_rows(StepTrace(trace, Places()), costs)  # type: ignore[arg-type]
    assert [row.name for row in rows] == ["warp 0", "warp 1", TENSOR_CORE, COPIES, PATH]
    load, wait, core, copies, path = rows
    assert load.spans == ()
    begun, ended = wait.life
    assert load.life[0] == begun == pytest.approx((COST["launch"] + COST["cta_start"]) / 1e3)
    us, parts = replay(trace, costs, 20)
    assert ended == pytest.approx(us - (COST["end"] + COST["call"]) / 1e3)
    # The critical path fills the time, and is what the list of its parts says.
    assert path.spans[0].begin == 0 and path.spans[-1].end == pytest.approx(us)
    assert all(a.end == pytest.approx(b.begin) for a, b in itertools.pairwise(path.spans))
    for part in parts:
        of = [each for each in path.spans if each.cause == part.cause]
        assert sum(each.end - each.begin for each in of) == pytest.approx(
            sum(other.us for other in parts if other.cause == part.cause)
        )
    copy, product = wait.spans
    assert (copy.kind, copy.where) == ("waits for a copy", f"kernel.cuh:{AT_LOAD}")
    assert (product.kind, product.where) == ("waits for the tensor core", f"kernel.cuh:{AT_MMA}")
    # A wait ends when what it waits for has come, and it has seen that.
    (landing,), (busy,) = copies.spans, core.spans
    assert copy.end == pytest.approx(landing.end + COST["wait"] / 1e3)
    assert busy.end - busy.begin == pytest.approx(256 * 4.0 / 1e3)
    assert copy.end < busy.begin < busy.end < product.end <= ended


def schedule(step: str, timeline: Timeline) -> Schedule:
    where = f"kernel.cuh:{AT_MMA // 2}"
    bubble = api.Bubble("tensor core", where, 0.5, timeline.us / 2)
    made = api.Prediction(step, "u0", timeline.us, None, "", 0.9, 1.1, "", (bubble,))
    return schedule_of(device(), made, timeline)


def test_a_timeline_can_be_drawn_and_opened_in_perfetto(tmp_path: Path) -> None:
    trace = load_and_multiply()
    rows = timeline_rows(StepTrace(trace, Places()), COST)  # type: ignore[arg-type]
    us, _ = replay(trace, COST)
    found = [Timeline(step, "u0", "NVIDIA B200", us, rows) for step in ("v15", "v16")]
    drawn = [schedule(each.step, each) for each in found]
    for each in drawn:
        saved = save_schedule(tmp_path, each)
    core = next(lane for lane in drawn[0].lanes if lane.name == TENSOR_CORE)
    covered = sum(core.runs[1::3]) / drawn[0].columns
    assert core.busy is not None and covered == pytest.approx(core.busy, abs=0.01)
    assert saved == tmp_path / "predicted" / "b200-v16-u0.json"
    assert read_schedules(tmp_path) == (drawn, [])
    assert saved.stat().st_size < 20_000
    saved.write_text("{}")
    kept, (broken,) = read_schedules(tmp_path)
    assert kept == drawn[:1] and "b200-v16-u0.json" in broken
    gone = {("tensor core", f"kernel.cuh:{AT_MMA // 2}")}
    text = schedules_svg(drawn, gone)
    root = ElementTree.fromstring(text)
    words = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    assert f"v16 on u0: {short_us(us)} µs, predicted for NVIDIA B200" in words
    assert {"waits for a copy", "warp 1", "v16 removes it"} <= {*words}
    marks = [each for each in root.iter() if each.get("class") == "gone"]
    # In the legend, and once on the parent's critical path.
    assert len(marks) == 2
    assert marks[0][0].text == f"tensor core, kernel.cuh:{AT_MMA // 2}"
    document = perfetto(found)
    assert "not measured" in document["otherData"]["note"]
    slices = [each for each in document["traceEvents"] if each["ph"] == "X"]
    spans = sum(len(row.spans) for row in rows if row.name != COPIES)
    assert len(slices) == 2 * spans
    assert {each["args"]["where"] for each in slices} >= {f"kernel.cuh:{AT_LOAD // 2}"}


def test_another_path_of_the_same_length_leaves_nothing_to_save() -> None:
    rows = [("tmem_load", 0, 100), ("tmem_wait", 0), ("tmem_load", 1, 100), ("tmem_wait", 1)]
    trace = records(*rows)
    trace["pc"][1:] = [1, 2, 3, 4]
    us, _ = replay(trace, COST)
    assert replay(trace, COST, free=("tcgen05.ld", [2]))[0] == pytest.approx(us)


def test_an_operation_without_a_cost_is_refused_by_name() -> None:
    model = device()
    costs = {name: cost for name, cost in model.costs.items() if name != "try_cancel"}
    trace = StepTrace(records(("try_cancel", 0)), symbols=None)  # type: ignore[arg-type]
    model.require(trace)
    with pytest.raises(UsageError, match=r"clusterlaunchcontrol\.try_cancel has no cost"):
        replace(model, costs=costs).require(trace)
    wgmma = StepTrace(records(("warpgroup_mma", 0)), symbols=None)  # type: ignore[arg-type]
    device("h200").require(wgmma)
    with pytest.raises(UsageError, match=r"b200\.toml: wgmma has no cost"):
        model.require(wgmma)
    dense = StepTrace(records(("dense_mma", 0)), symbols=None)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="other than FP4 is not in the model"):
        model.require(dense)


def test_schedules_are_equal_where_only_addresses_differ() -> None:
    def hashed(*addresses: int) -> str:
        rows = [("load", 0, address, 64, 1, 1) for address in addresses]
        return StepTrace(records(*rows), symbols=None).schedule()  # type: ignore[arg-type]

    assert hashed(512, 1024, 512) == hashed(4096, 64, 4096)
    assert hashed(512, 1024, 512) != hashed(512, 1024, 1024)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('wait = { value = 1, kind = "guess" }', "wait takes value, kind and source"),
        ('wait = { value = 1, kind = "sure", source = "me" }', "kind is one of"),
        ('wat = { value = 1, kind = "guess", source = "me" }', "unknown cost 'wat'"),
        ("", "'wait' is missing"),
    ],
)
def test_a_devices_file_says_where_each_value_is_from(tmp_path: Path, line: str, said: str) -> None:
    text = Path(api.__file__).with_name("b200.toml").read_text()
    kept = [each for each in text.splitlines() if not each.startswith("wait =")]
    at = kept.index("[costs]") + 1
    file = tmp_path / "other.toml"
    file.write_text("\n".join([*kept[:at], line, *kept[at:]]))
    with pytest.raises(UsageError, match=said):
        read_device(file)


def made(step: str, us: float, schedule: str, host: str = "v14") -> api.Prediction:
    return api.Prediction(step, "A", us, 2.0, host, us, us, schedule)


@pytest.mark.parametrize(
    ("cand", "verdict"),
    [
        (made("v16", 50, "b"), "faster"),
        (made("v16", 200, "b"), "slower"),
        (made("v16", 100.5, "b"), "no call"),
        (made("v16", 50, "b", "v09"), "no call"),
        (made("v16", 100, "a"), "same schedule"),
    ],
)
def test_what_a_prediction_says_of_a_change(cand: api.Prediction, verdict: str) -> None:
    model = replace(device(), spread={"change": Cost(0.1, "fitted", "a test")})
    assert api.changed(model, made("v15", 100, "a"), cand).verdict == verdict


@pytest.mark.parametrize(
    ("host_us", "time"), [([2.0], "call"), ([None], "device"), ([2.0, None], "call or device")]
)
def test_headings_name_the_time(host_us: list[float | None], time: str) -> None:
    found = tuple(replace(made("v16", 50, "b"), host_us=each) for each in host_us)
    assert f"90 % of {time}" in api.Predictions(device(), found).rows()[0]
    changes = tuple(api.PredictedChange(each, each, 0, 0, "no call") for each in found)
    headings = [*api.Changes(device(), changes).rows()[0]]
    assert [each.strip() for each in headings if "µs" in each] == [f"v16 predicted {time} µs"] * 2


@pytest.mark.parametrize(
    ("kind", "arch", "words"),
    [("triton", "any", "s1 is a Triton step"), ("step", "sm_80", "a compiled step for sm_80")],
)
def test_a_step_without_a_model_is_refused_by_what_it_is(kind: str, arch: str, words: str) -> None:
    (step,) = Context.find().lineages.select(["v22"])
    with pytest.raises(UsageError, match=f"models compiled steps for sm_100a and .*{words}$"):
        api._device_of(replace(step, name="s1", kind=kind, arch=arch))


def test_a_step_and_one_that_differs_on_the_host_have_one_schedule() -> None:
    found = api.compare("v22", "v23", ["u0"])
    (change,) = found.found
    assert change.verdict == "same schedule"
    assert change.base.device_us > 0
    assert all("predicted" in heading for heading in found.rows()[0] if "µs" in heading)


def test_the_bubbles_of_a_step_name_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["run", "v22", "--predict", "--shape", "u0", "--json", "-"]) == ExitCode.PASS
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["predicted"]) == (api.SCHEMA, True)
    (step,) = found["predictions"]
    bubbles = step["bubbles"]
    assert len(bubbles) == api.SHOWN_BUBBLES
    assert any(each["where"].startswith("v22/") for each in bubbles)
    assert all(0 < each["if_free_us"] <= step["device_us"] for each in bubbles)
    assert sum(each["on_path_us"] for each in bubbles) <= step["device_us"]


def test_the_schedule_of_a_change_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("a.svg", "a.json"):
        to = str(tmp_path / name)
        assert invoke(["ab", "v22", "v23", "--shape", "u0", "--predict-plot", to]) == ExitCode.PASS
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    named = {
        each["args"]["name"] for each in events if each["ph"] == "M" and "name" in each["args"]
    }
    assert "v23 on u0, predicted for NVIDIA B200" in named
    assert any(each.endswith("mma_warp") for each in named)
    assert "epilogue_warps" in (tmp_path / "a.svg").read_text()


def test_a_hopper_step_is_predicted_for_either_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    for name, given in (("H200", ["--predict"]), ("H100", ["--predict-on", "h100"])):
        assert invoke(["run", "m05", *given, "--shape", "s5"]) == ExitCode.PASS
        out = capsys.readouterr().out
        assert f"PREDICTED for NVIDIA {name}" in out
        assert "m05/" in out


def test_a_predicted_time_is_set_against_the_floor(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["roofline", "--predict", "v22", "--shape", "u0", "--json", "-"]
    assert invoke(given) == ExitCode.PASS
    found = json.loads(capsys.readouterr().out)
    assert found["predicted"] and found["device"] == "NVIDIA B200"
    assert 0 < found["floors_us"]["u0"] < found["predictions"][0]["device_us"]


def test_registers_are_those_of_the_kernels_in_code_lock() -> None:
    step = Context.find().lineages.select(["m05"])[0]
    assert set(locked_registers(step)) == {
        "multiply_experts", "prepare_rows", "lay_out_routes", "route_tokens",
    }  # fmt: skip


def test_a_new_step_has_the_registers_of_its_parent() -> None:
    (m05,) = Context.find().lineages.select(["m05"])
    assert locked_registers(replace(m05, name="mine", parent="m05")) == locked_registers(m05)
    assert locked_registers(replace(m05, name="mine", parent="other")) == {}


def test_a_call_that_hangs_says_so() -> None:
    with pytest.raises(IncorrectError, match="hang"):
        api.predict("v5-1", "u0")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "v22", "--predict", "--check-only"], "--predict and --check-only"),
        (["ab", "v15", "v16", "--predict", "--fail-on", "slower"], "--predict and --fail-on"),
        (["roofline", "--predict", "v22", "--measure"], "--predict and --measure"),
        (["run", "v22", "m05", "--predict"], "b200.toml for sm_100a"),
        (["run", "m05", "--predict-on", "v100"], "there are models of b200, h200, h100"),
        (["run", "v22", "--predict-plot", "a.svg"], "--predict-plot draws one shape"),
        (["ab", "v15", "v16", "--predict-plot", "a.xls", "--shape", "u0"], "cannot draw to a.xls"),
    ],
)
def test_what_a_prediction_does_not_take_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_a_probed_file_keeps_what_was_fitted(tmp_path: Path) -> None:
    samples = {name: np.linspace(10, 20, 101) for name in PROBES}
    file = tmp_path / "mine.toml"
    file.write_text(file_text(device("h200"), "NVIDIA mine", samples))
    made = device(str(file))
    assert (made.device, made.arch) == ("NVIDIA mine", "sm_90a")
    assert made.costs["atomic"].value == 15
    assert made.costs["atomic"].kind == "probed"
    assert "101 times: 90 % within 10.5 to 19.5" in made.costs["atomic"].source
    for name, cost in device("h200").costs.items():
        if name not in PROBES:
            assert made.costs[name] == cost
        elif cost.kind == "fitted":
            assert made.costs[name].value == cost.value
            assert "90 % within 10.5" in made.costs[name].source


def test_probes_take_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelbench.machine.devices.gpus", list)
    monkeypatch.setattr("kernelbench.machine.devices.gpu_problem", lambda: "no GPU in this test")
    file = tmp_path / "mine.toml"
    assert invoke(["calibrate", "--model", str(file)]) == ExitCode.ENVIRONMENT
    assert "no GPU in this test" in capsys.readouterr().err
    assert not file.exists()


def test_figures_that_are_all_fitted_have_no_line_of_held_out_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evidence, "measured", lambda *_: {("m08", "qwen35"): 100.0})
    monkeypatch.setattr(evidence, "_device_us", lambda *_: 90.0)
    text = "\n".join(evidence._hopper(Context.find(), device("h200"), (), None))
    assert "| m, fitted half | 1 | 10.0 % |" in text
    assert "held" not in text


def test_a_removed_bubble_is_told_from_one_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = load_and_multiply()
    slow["pc"] *= 2
    without = slow[[0, 1, 2, 3]]
    traces = {"m08": slow, "m09": without, "m07": slow}
    monkeypatch.setattr(
        evidence, "_traced", lambda _, __, step, *___: StepTrace(traces[step.name], Places())
    )
    changes = [
        evidence._Change("m08", "m09", "qwen35", 100, 90),
        evidence._Change("m08", "m07", "qwen35", 100, 90),
        evidence._Change("m08", "m09", "qwen35", 100, 99),
        evidence._Change("m08", "m09", "A", 100, 50),
    ]
    monkeypatch.setattr(evidence, "_changes", lambda *_: changes)
    model = replace(device("h200"), costs={n: Cost(v, "guess", "a test") for n, v in COST.items()})
    text = "\n".join(evidence._bubbles(Context.find(), model, ["qwen35"], None))
    rows = [line for line in text.splitlines() if line.startswith("| m")]
    assert len(rows) == 1
    assert rows[0].startswith("| m08 → m09 | qwen35 | tensor core, kernel.cuh:2 | 1 |")
    assert rows[0].endswith(" 10.0 % |")
    assert "* removed, if free: 1, off by" in text
    assert "* all, by replay: 2, off by" in text
