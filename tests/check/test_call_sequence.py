"""Host paths that keep something too long: one schedule of one call does not show it."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import ROOT

import kernelbench
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.problems.fused_moe.problem import PROBLEM as MOE
from kernelbench.problems.group_gemm.problem import PROBLEM as GEMM
from kernelbench.problems.moe_layer.problem import PROBLEM as LAYER
from kernelbench.project.arena import bits
from kernelbench.project.problem import Case
from kernelbench.worker import call_sequence as calls

pytestmark = [
    pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("ready_workers"),
]

GEMM_SHAPES = ("m=8,24:n=128:k=256", "m=40:n=256:k=512")
MOE_SHAPES = ("m=3:n=128:k=256:e=8:topk=2", "m=2:n=128:k=128:e=4:topk=2")
SYNCHRONIZE = "  rt::stream_synchronize(stream);"


def planted(root: Path, source: str, *changes: tuple[str, str]) -> None:
    """A project with a copy of a shipped step in which the host path is changed."""
    folder, problem = ("moe", "fused_moe") if source[0] == "m" else ("kernels", "group_gemm")
    copy = root / "own" / "x00"
    shutil.copytree(ROOT / folder / source, copy)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    blocks = 'building_blocks = "moe"\n' if folder == "moe" else ""
    (root / "own" / "lineage.toml").write_text(
        f'name = "own"\ntitle = "x"\nproblem = "kernelbench.problems.{problem}:PROBLEM"\n{blocks}'
    )
    toml = (copy / "step.toml").read_text().replace(f'name = "{source}"', 'name = "x00"')
    (copy / "step.toml").write_text(toml)
    launch = (copy / "launch.cu").read_text()
    for before, after in changes:
        assert before in launch
        launch = launch.replace(before, after)
    (copy / "launch.cu").write_text(launch)


def checked(root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    moe = (root / "own" / "x00" / "route_quantize.cuh").is_file()
    (row,) = (
        kernelbench.check(
            "x00",
            (MOE_SHAPES if moe else GEMM_SHAPES)[:1],
            schedules=1,
            sms=(3,),
            seed=7,
            **options,
        )
        .steps[0]
        .rows
    )
    return row


OUTPUT_MAP = "encode_output_map(c, m, n, kTileM, kChunkN)"
KEPT_MAP = (
    "    static TensorMap kept = {};\n    static bool filled = false;\n"
    f"    if (!filled) kept = {OUTPUT_MAP};\n    filled = true;\n    groups.table[g] = {{"
)
PLAN_EQUAL = "  friend bool operator==(const Plan&, const Plan&) = default;"
ONLY_SIZES = (
    "  friend bool operator==(const Plan& a, const Plan& b) {\n"
    "    return a.call.m == b.call.m && a.call.k == b.call.k &&\n"
    "           a.call.softcap == b.call.softcap &&\n"
    "           a.call.renormalize == b.call.renormalize;\n  }"
)


def all_but(option: str) -> str:
    """Plans are compared without one of the problem's options."""
    return (
        "  friend bool operator==(const Plan& a, const Plan& b) {\n"
        f"    Plan same = a;\n    same.call.{option} = b.call.{option};\n"
        "    return same.call == b.call && same.codes == b.codes;\n  }"
    )


#: What a host path keeps too long: the step, the change, and the first call that shows it.
BUGS: dict[str, tuple[str, list[tuple[str, str]], str]] = {
    "pointers of the first call": (
        "v13",
        [
            ("    table[g] = {", "    if (!filled) table[g] = {"),
            ("  uint32_t tiles = 0;", "  static bool filled = false;\n  uint32_t tiles = 0;"),
            ("  const Group* device_table", "  filled = true;\n  const Group* device_table"),
        ],
        calls.NEW_ADDRESSES,
    ),
    "staging that a copy still reads": ("v13", [(SYNCHRONIZE, "  //")], calls.QUEUED),
    "the output's map of the first call": (
        "v17",
        [
            (f".map_c = {OUTPUT_MAP}", ".map_c = g == 0 ? kept : OUTPUT_MAP"),
            (
                "    groups.table[g] = {",
                KEPT_MAP,
            ),
            ("OUTPUT_MAP", OUTPUT_MAP),
        ],
        calls.NEW_ADDRESSES,
    ),
    "a graph with the pointers that it was recorded with": (
        "m07",
        [(PLAN_EQUAL, ONLY_SIZES)],
        calls.KEPT_OUTPUTS,  # the second call of a plan records it
    ),
    "a graph with the option that it was recorded with": (
        "m07",
        [(PLAN_EQUAL, all_but("softcap"))],
        calls.OTHER_OPTIONS,
    ),
    "a graph with the other option that it was recorded with": (
        "m07",
        [(PLAN_EQUAL, all_but("renormalize"))],
        calls.OTHER_OPTIONS,
    ),
    "a graph with the depth that it was recorded with": (
        "m07",
        [(PLAN_EQUAL, all_but("k"))],
        calls.LESS_DEPTH,
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_what_is_kept_too_long(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, changes, where = BUGS[bug]
    planted(tmp_path, source, *changes)
    before = checked(tmp_path, monkeypatch, sequence=False)
    assert before.status == "clean", before
    row = checked(tmp_path, monkeypatch)
    assert row.status in ("wrong", "finding", "fault"), row
    assert row.reason.endswith(f"({where})") or row.seen[0].calls == where
    assert where in row.calls


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("v13", ("              .stream = stream},", "},")),
        ("m07", ("sizeof *counters, stream)", "sizeof *counters, {})")),
    ],
)
def test_work_on_another_stream_than_the_calls(
    source: str, change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(tmp_path, source, change)
    row = checked(tmp_path, monkeypatch, sequence=False)
    assert row.status == "fault", row
    assert "on another stream than the call's" in row.reason


ENDS_KEPT = (
    "    tiles += count_tiles(m, n, kTileM, kTileN);",
    (
        "    static uint64_t seen[64][2];\n    static uint32_t ends[64];\n"
        "    const bool same = seen[g][0] == call.c[g] && seen[g][1] == m;\n"
        "    tiles = same ? ends[g] : tiles + count_tiles(m, n, kTileM, kTileN);\n"
        "    seen[g][0] = call.c[g];\n    seen[g][1] = m;\n    ends[g] = tiles;"
    ),
)


def test_a_size_that_changes_while_addresses_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group's end is kept with its own size, not with those of the groups before it."""
    planted(tmp_path, "v13", ENDS_KEPT)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    report = kernelbench.check("x00", "m=136,24:n=128:k=256", schedules=1, sms=(3,), seed=7)
    (row,) = report.steps[0].rows
    assert row.status in ("wrong", "finding", "hang"), row
    assert row.calls[-1] == calls.FEWER_ROWS


def test_a_graph_that_is_destroyed_while_the_caller_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an H200 it ended the recording, and a later launch said so."""
    planted(tmp_path, "m07")
    graphs = (ROOT / "kernels" / "common" / "call_graphs.cuh").read_text()
    first = "    if (rt::recorded(stream)) return enqueue(plan, stream);\n"
    later = "    if (!entry->graph) {\n"
    assert first in graphs and later in graphs
    graphs = graphs.replace(first, "").replace(later, first + later)
    (tmp_path / "own" / "x00" / "call_graphs.cuh").write_text(graphs)
    row = checked(tmp_path, monkeypatch)
    assert row.status == "fault", row
    assert "ended by cudaGraphExecDestroy" in row.reason
    assert row.reason.endswith(f"({calls.MANY_RECORDED})")


_LONG = ("v13", "m01", "m07", "m10", "h06")


@pytest.mark.parametrize(
    "step",
    [
        "v03", "v17", "v23",
        *(pytest.param(each, marks=pytest.mark.long) for each in _LONG),
    ],
)  # fmt: skip
def test_steps_that_keep_what_they_may(
    step: str, in_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = MOE_SHAPES if step[0] == "m" else GEMM_SHAPES
    report = kernelbench.check(step, shapes, schedules=1, sms=(3,), seed=11)
    for row in report.steps[0].rows:
        assert row.status == "clean", row
        assert set(row.calls) >= set(calls.CALLS)
        # h06 says that it keeps memory for each stream.
        assert (calls.TWO_STREAMS in row.calls) is (step == "h06")
        assert (calls.RECORDED in row.calls) == (step in ("m07", "m10"))


def test_a_graph_is_of_one_number_of_sms(in_checkout: Path) -> None:
    """m10 keeps the graph of a call: one that was recorded on two SMs does not fit on one."""
    report = kernelbench.check("m10", MOE_SHAPES[0], schedules=2, sms=(1, 2), seed=11)
    (row,) = report.steps[0].rows
    assert (row.status, row.schedules) == ("clean", 4), row


def parsed(problem: Any, shape: str) -> Any:
    fields = {
        name: [int(item) for item in value.split(",")] if "," in value else int(value)
        for name, value in (part.split("=") for part in shape.split(":"))
    }
    return problem.parse_shape("s", fields)


@pytest.mark.parametrize(
    ("problem", "shape"),
    [(GEMM, GEMM_SHAPES[0]), (MOE, MOE_SHAPES[0])],
)
def test_inputs_with_the_outputs_of_others(problem: Any, shape: str) -> None:
    drawn = parsed(problem, shape)
    first, second = (
        problem.make_inputs(drawn, problem.input_classes[0], seed, "cpu") for seed in (1, 2)
    )
    mixed = calls.with_outputs_of(first, second)
    assert mixed is not None
    assert type(mixed.data) is type(first.data)
    assert problem.outputs_of(list(second.outputs) if problem is GEMM else second.outputs[0], mixed)
    assert mixed.arena is second.arena
    assert all(a is b for a, b in zip(mixed.operands, first.operands, strict=True))


@pytest.mark.parametrize(
    ("problem", "shape", "smaller"),
    [
        (GEMM, GEMM_SHAPES[0], "fewer_rows"),
        (GEMM, GEMM_SHAPES[1], "less_depth"),
        (MOE, MOE_SHAPES[0], "fewer_rows"),
        (MOE, MOE_SHAPES[0], "less_depth"),
        (LAYER, "m=3:h=256:i=128:e=8:topk=2", "less_depth"),
    ],
)
def test_a_smaller_shape_where_the_others_lay(problem: Any, shape: str, smaller: str) -> None:
    drawn = parsed(problem, shape)
    fewer = getattr(problem, smaller)(drawn)
    whole, less = (
        problem.make_inputs(each, problem.input_classes[0], 1, "cpu") for each in (drawn, fewer)
    )
    laid = calls.laid_over(less, whole)
    assert laid is not None
    assert calls.laid_over(whole, less) is None
    for mine, theirs in zip(laid.operands, whole.operands, strict=True):
        assert mine.data_ptr() == theirs.data_ptr()
    for mine, drawn_one in zip(laid.operands, less.operands, strict=True):
        assert (mine.shape, mine.stride()) == (drawn_one.shape, drawn_one.stride())
        assert bits(mine).equal(bits(drawn_one))
    poison = laid.arena.draw_poison(3)
    laid.arena.fill(poison)
    assert all(mask.all() for mask in laid.arena.unwritten(poison))
    for output, wanted in zip(laid.outputs, less.outputs, strict=True):
        assert output.shape == wanted.shape
        bits(output).bitwise_not_()
    assert laid.arena.guards_intact(poison)
    assert not any(mask.any() for mask in laid.arena.unwritten(poison))
    assert whole.arena.guards_intact(poison)
    if smaller == "less_depth":
        return  # outputs are as large
    last = whole.outputs[0].flatten()[-1:]
    bits(last).bitwise_not_()
    assert not laid.arena.guards_intact(poison)


def test_values_are_of_the_classes_by_turns() -> None:
    problem = SimpleNamespace(input_classes=("random", "skewed", "structured"))
    nobody: Any = None

    def drawn(input_class: str) -> list[str]:
        case: Any = Case(problem, None, input_class)  # type: ignore[arg-type]
        sequence = calls.CallSequence(nobody, case, 1, print)
        return [sequence._drawn_as(what, None).input_class for what in calls._DRAWN]

    assert drawn("random")[:4] == ["random", "skewed", "structured", "random"]
    assert set(drawn("structured")) == {"structured"}, "the one that was asked for"
    assert set(calls._DRAWN) > set(calls.CALLS) - {calls.QUEUED}
