"""Peers: which they are, how they are planned, and how steps stand against them."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import ENVIRONMENT, ROOT, result_row, run_record, times, write_project, write_step

from kernelbench.base import console, json_file, schema
from kernelbench.base.errors import UnknownNameError, UsageError
from kernelbench.cli.run import RunView
from kernelbench.executors import targets
from kernelbench.kinds import python_step
from kernelbench.kinds.callables import load_callable, notes_of
from kernelbench.measure import ceilings_bench
from kernelbench.measure.results import CheckResult, TimedBlock
from kernelbench.problems.fused_moe.problem import PROBLEM, FusedMoe
from kernelbench.problems.moe_layer import MoeLayer
from kernelbench.project.context import Context
from kernelbench.project.problem import Inputs, Work
from kernelbench.project.project_file import find_project, project_at
from kernelbench.project.registry import Lineages, Step, load_lineages
from kernelbench.records import run_record as records
from kernelbench.records.run_record import ReadFloor, Result
from kernelbench.runs.peers import Standing, standings
from kernelbench.runs.plan import plan
from kernelbench.runs.runner import Runner
from kernelbench.worker import job_runner
from kernelbench.worker.jobs import Timing
from kernelbench.worker.launcher import WorkerExit
from kernelbench.worker.messages import (
    BlockTimed,
    ClassChecked,
    EnvironmentRead,
    FloorRead,
    Message,
    MetricMeasured,
    Reporter,
    ShapeBegins,
)

PEERS = ["moe-torch", "moe-triton", "moe-vllm"]
FLOOR = ReadFloor(264_000_000, 63.0, 100, "bulk copies")


@pytest.fixture(scope="module")
def lineages() -> Lineages:
    return load_lineages(find_project(ROOT))


@pytest.fixture
def project(tmp_path: Path, right_source: str) -> Path:
    """Lineage ``tiny`` with step ``a``, and its peers: ``p`` runs, ``q`` needs what is nowhere."""
    root = write_project(tmp_path / "project", {"a": right_source})
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["tiny", "peers/tiny"]\n')
    peers = root / "peers" / "tiny"
    peers.mkdir(parents=True)
    text = (root / "tiny" / "lineage.toml").read_text().replace('"tiny"', '"peers.tiny"')
    (peers / "lineage.toml").write_text(text + 'peers_of = "tiny"\n')
    write_step(peers, "p", right_source)
    write_step(peers, "q", right_source, extra='needs = ["gpu", "no_such_module"]')
    return root


def plans(root: Path, *steps: str, executor: str = "auto", peers: bool = False) -> list[Any]:
    context = Context(project_at(root))
    return plan(context, steps, (), executor, (), 0, warn=pytest.fail, peers=peers)


# -- which steps are peers


def test_peers_are_no_part_of_the_chain(lineages: Lineages) -> None:
    assert [step.name for step in lineages.select(["peers.moe"])] == PEERS
    assert not {step.name for step in lineages.select(["moe"])} & set(PEERS)
    assert all(step.parent is None for step in lineages.select(["peers.moe"]))


def test_commands_over_all_lineages_leave_peers_out(
    bench: Callable[..., Any], lineages: Lineages
) -> None:
    assert [lineage.name for lineage in lineages.chains] == [
        "group_gemm",
        "moe",
        "moe_layer",
        "group_gemm_hopper",
    ]
    outcome = bench("roofline", "--device", "h200", "--shape", "qwen35")
    assert [line for line in outcome.out.splitlines() if " on NVIDIA H200" in line] == [
        "moe  on NVIDIA H200"
    ]


def test_the_peers_of_steps(lineages: Lineages) -> None:
    def peers_of(*names: str) -> list[str]:
        return [step.name for step in lineages.peers_of(lineages.select(names))]

    assert peers_of("m01", "m02") == PEERS
    assert peers_of("m02", "moe-triton") == ["moe-torch", "moe-vllm"]
    assert peers_of("v00") == []
    assert peers_of("moe-torch") == []


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ('peers_of = "tiny"', 'peers_of = "tinny"', UnknownNameError, "unknown lineage 'tinny'"),
        ('name = "peers.tiny"', 'name = "peers..tiny"', UsageError, "found 'peers..tiny'"),
        ('name = "peers.tiny"', 'name = "peers."', UsageError, "found 'peers.'"),
        ('peers_of = "tiny"', "peers_of = 3", UsageError, "field 'peers_of'"),
    ],
)
def test_a_malformed_lineage_of_peers(
    project: Path, old: str, new: str, error: type[UsageError], message: str
) -> None:
    file = project / "peers" / "tiny" / "lineage.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(error, match=message):
        load_lineages(project_at(project))


# -- planning


def test_peers_join_on_request(project: Path) -> None:
    assert [each.step.name for each in plans(project, "a")] == ["a"]
    assert [each.step.name for each in plans(project, "a", peers=True)] == ["a", "p", "q"]
    assert [each.step.name for each in plans(project, "q", "a", peers=True)] == ["q", "a", "p"]


def test_asking_for_peers_that_nobody_has(lineages: Lineages) -> None:
    with pytest.raises(UsageError, match="no peers of v00 here"):
        plans(ROOT, "v00", peers=True)


def test_a_peer_that_cannot_run_is_skipped_with_the_reason(project: Path) -> None:
    runs, skipped = plans(project, "peers.tiny", executor="torch")
    assert (runs.step.name, runs.skip) == ("p", {})
    assert skipped.step.name == "q"
    assert skipped.skip == {
        shape.name: "not available: no_such_module not installed" for shape in skipped.shapes
    }


def test_an_unknown_executor_is_no_missing_peer(project: Path) -> None:
    with pytest.raises(UsageError, match="unknown executor 'gpux'"):
        plans(project, "peers.tiny", executor="gpux")


def test_what_a_step_needs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = load_lineages(project_at(project)).get("q")
    verdicts = {name: why for name, works, why in targets.executors_for(step) if not works}
    assert verdicts["gpu"] == verdicts["torch"] == "no_such_module not installed"
    monkeypatch.setattr(python_step, "lacking_modules", lambda _step: "")
    verdicts = {name: why for name, works, why in targets.executors_for(step) if not works}
    assert verdicts["torch"] == "q needs a GPU"


def test_only_python_steps_have_needs(project: Path) -> None:
    file = project / "tiny" / "a" / "step.toml"
    text = file.read_text().replace('kind = "python"', 'kind = "step"')
    file.write_text(text.replace('arch = "any"', 'arch = "sm_90a"') + 'needs = ["triton"]\n')
    with pytest.raises(UsageError, match="field 'needs': a compiled step's arch says"):
        _ = load_lineages(project_at(project)).steps


def test_a_run_with_a_missing_peer(bench: Callable[..., Any], project: Path) -> None:
    outcome = bench(
        "run", "a", "--peers", "--executor", "torch", "--reps", 3, "--no-save", root=project
    )
    assert outcome.code == 0, outcome.err
    assert "q u0: skipped: not available: no_such_module not installed" in outcome.out
    assert "→ 2 passed, 1 skipped of 3" in outcome.out
    table = outcome.out.split("vs best peer")[1]
    assert [line.split()[0] for line in table.splitlines()[1:3]] == ["a", "p"]


# -- standings


def moe_row(step: str, us: float, **changes: Any) -> Result:
    lineage = "peers.moe" if step in PEERS else "moe"
    values = {"lineage": lineage, "problem": "fused_moe", "shape": "qwen35"} | changes
    return result_row(step, median=us, **values)


def test_standings_take_the_best_right_peer_of_each_shape(lineages: Lineages) -> None:
    rows = [
        moe_row("m02", 120.0, floor=FLOOR),
        moe_row("moe-torch", 200.0),
        moe_row("moe-triton", 90.0),
        moe_row("moe-vllm", 10.0, status="wrong"),
        moe_row("m02", 30.0, shape="qwen35-m1"),
        moe_row("m02", 7.0, inputs="skewed", device_us=None),
    ]
    found = standings(rows, lineages.lineages)
    assert found == [
        Standing("m02", "qwen35", "device", 120.0, "moe-triton", 90.0, 63.0),
        Standing("moe-torch", "qwen35", "device", 200.0, "moe-triton", 90.0),
        Standing("moe-triton", "qwen35", "device", 90.0, "moe-triton", 90.0),
        Standing("m02", "qwen35-m1", "device", 30.0),
    ]
    assert found[0].vs_best_peer == pytest.approx(0.75)
    assert found[0].of_floor == pytest.approx(0.525)
    assert found[3].vs_best_peer is found[3].of_floor is None


def test_no_standings_without_peers(lineages: Lineages) -> None:
    assert standings([moe_row("m02", 120.0)], lineages.lineages) == []


def test_call_times_stand_in_only_where_no_row_has_a_device_time(lineages: Lineages) -> None:
    call = {"device_us": None, "floor": FLOOR}
    on_cpu = [
        moe_row("mref", 0, call_us=times(50.0), **call),
        moe_row("moe-torch", 0, call_us=times(25.0), **call),
    ]
    found = standings(on_cpu, lineages.lineages)
    assert [(row.step, row.metric, row.us, row.vs_best_peer) for row in found] == [
        ("mref", "call", 50.0, 0.5),
        ("moe-torch", "call", 25.0, 1.0),
    ]
    assert all(row.of_floor is None for row in found)
    mixed = standings([*on_cpu, moe_row("moe-triton", 9.0)], lineages.lineages)
    assert [row.step for row in mixed] == ["moe-triton"]


def test_the_table_fits_and_says_what_is_measured() -> None:
    text = io.StringIO()
    view = RunView(console.Console(file=text, width=100, highlight=False))
    view.standings(
        [
            Standing(
                "moe-triton", "qwen35-m4096", "device", 123456.0, "moe-triton", 123456.0, 99000.0
            ),
            Standing("m02", "qwen35", "device", 120.0, "moe-triton", 90.0, 63.0),
            Standing("m02", "qwen35-m1", "device", 30.0),
        ]
    )
    lines = text.getvalue().splitlines()
    assert all(len(line) <= 100 for line in lines[:5])
    row = next(line for line in lines if line.startswith("m02         qwen35  "))
    assert row.split() == [
        "m02",
        "qwen35",
        "120.00",
        "moe-triton",
        "0.75×",
        "63.00",
        "52%",
    ]
    assert "only reading the same bytes, measured" in lines[-1]
    text.truncate(0)
    view.standings([])
    assert text.getvalue() == ""


# -- the read floor


def test_a_record_keeps_the_floor_and_older_ones_have_none(tmp_path: Path) -> None:
    record = run_record(moe_row("m02", 120.0, floor=FLOOR))
    json_file.write_json(tmp_path / "run.json", record)
    assert records.read_run(tmp_path / "run.json").results[0].floor == FLOOR
    value = schema.encode(record) | {"schema": "kernelbench.run/1"}
    del value["results"][0]["floor"]
    assert records.parse_run(value, "here").results[0].floor is None


def test_the_floor_reads_the_bytes_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, str]] = []

    def read_floor(device: int, nbytes: int, l2: str) -> ReadFloor:
        asked.append((device, nbytes, l2))
        return ReadFloor(nbytes, 1.0, 100, "vector loads")

    monkeypatch.setattr(ceilings_bench, "read_floor", read_floor)
    messages = measured_floor()
    assert asked == [(3, 1000, "warm")]
    assert messages[-1] == FloorRead("x", ReadFloor(1000, 1.0, 100, "vector loads"), "")


def test_a_floor_that_cannot_be_measured_is_a_note() -> None:
    messages = measured_floor()
    (found,) = [message for message in messages if isinstance(message, FloorRead)]
    assert found.floor is None
    assert found.note.startswith("no read floor: no GPU 3 to measure")


def test_a_row_has_the_floor_that_its_worker_measured(project: Path) -> None:
    (planned,) = plans(project, "a", executor="torch")
    (shape,) = planned.shapes
    right = CheckResult("pass", True, 0.0, notes=("tile 16",), rel_rms_err=0.0)
    name = shape.name
    messages: list[Message] = [
        EnvironmentRead(ENVIRONMENT),
        ShapeBegins(name),
        ClassChecked(name, planned.classes[0], right),
        BlockTimed(name, "device", TimedBlock([0], [0], [5.0])),
        MetricMeasured(name, "device", "graph", (), 1.0),
        FloorRead(name, FLOOR, ""),
    ]
    launcher: Any = SimpleNamespace(
        run=lambda _job: iter(messages), ending=WorkerExit("done", "x", "", "")
    )
    timing = Timing(1, 1, "cold", "single", ("device",), 1.0)
    runner = Runner(launcher, seed=1, timing=timing, call_limit_s=9.0)
    (row,) = runner.run(dataclasses.replace(planned, classes=planned.classes[:1]))
    assert (row.status, row.floor, row.notes) == ("pass", FLOOR, ("tile 16",))
    messages[-1] = FloorRead(name, None, "no read floor: because")
    (row,) = runner.run(dataclasses.replace(planned, classes=planned.classes[:1]))
    assert (row.floor, row.notes) == (None, ("tile 16", "no read floor: because"))


# -- what peers do before they are timed

UNTIMED_SETUP = """
def _setup(data):
    {what}

_right = custom_kernel
_seen = []

def _ids(data):
    return [id(tensor) for group in data[0] for tensor in group]

def custom_kernel(data):
    if _ids(data) != _seen:
        raise RuntimeError("not these tensors")
    return _right(data)

custom_kernel.{name} = _setup
"""


@pytest.mark.parametrize(
    ("name", "what", "lineage", "wanted"),
    [
        ("untimed_setup", "_seen[:] = _ids(data)", "peers/tiny", "pass"),
        ("beforehand", "pass", "peers/tiny", "raised RuntimeError: not these tensors"),
        ("untimed_setup", "_seen[:] = _ids(data)", "tiny", "only peers may"),
    ],
)
def test_only_peers_have_an_untimed_setup(
    bench: Callable[..., Any],
    project: Path,
    right_source: str,
    name: str,
    what: str,
    lineage: str,
    wanted: str,
) -> None:
    root = project / lineage
    write_step(root, "z", right_source + UNTIMED_SETUP.format(what=what, name=name))
    outcome = bench("run", "z", "--no-save", "--reps", "4", "--budget", "1", root=project)
    assert wanted in outcome.out.replace("PASS", "pass"), outcome.out


def measured_floor() -> list[Message]:
    messages: list[Message] = []
    job: Any = SimpleNamespace(target=SimpleNamespace(gpu=SimpleNamespace(index=3)))
    timing: Any = SimpleNamespace(l2="warm")
    shape: Any = SimpleNamespace(name="x")
    report = Reporter(messages.append)
    job_runner._measure_floor(job, timing, Work(1.0, 1000.0, 10.0, "fp8"), shape, report)
    return messages


# -- what peers declare


def step_with(**config: Any) -> Step:
    return Step(
        "s", "moe", "", None, "", "", "", "any", "works", "python", Path("s"), None, config=config
    )


def test_the_tolerance_is_the_coarsest_that_a_step_declares() -> None:
    assert PROBLEM.for_steps([step_with()]).intermediate == "float32"
    both = [step_with(), step_with(intermediate="bfloat16")]
    assert PROBLEM.for_steps(both).intermediate == "bfloat16"
    with pytest.raises(UnknownNameError, match="float16"):
        PROBLEM.for_steps([step_with(intermediate="float16")])


def test_only_the_peer_that_rounds_says_so(lineages: Lineages) -> None:
    coarse = {
        step.name
        for step in lineages.select(["moe", "peers.moe"])
        if PROBLEM.for_steps([step]).intermediate != "float32"
    }
    assert coarse == {"moe-torch"}


def test_a_layer_with_bfloat16_in_between_is_right_where_its_peer_says_so() -> None:
    layer = MoeLayer()
    shape = layer.parse_shape("x", {"m": 128, "h": 256, "i": 256, "e": 8, "topk": 4})
    inputs = layer.make_inputs(shape, "random", 1, "cpu")
    reference = layer.reference(inputs, shape, "random")
    step = load_callable(ROOT / "layer" / "l00" / "submission.py")
    silu = torch.nn.functional.silu
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.functional, "silu", lambda gate: silu(gate.bfloat16()).float())
        output = step(inputs.data).bfloat16().float()
    coarse = layer.for_steps([step_with(intermediate="bfloat16")])
    assert isinstance(coarse, MoeLayer)
    assert not layer.compare([output], reference, shape, "random").ok
    assert coarse.compare([output], reference, shape, "random").ok
    assert not coarse.compare([output * 1.03], reference, shape, "random").ok


def test_every_peer_of_the_layer_says_that_it_rounds(lineages: Lineages) -> None:
    peers = lineages.select(["peers.layer"])
    assert [step.name for step in peers] == ["layer-deepgemm", "layer-sglang", "layer-vllm"]
    assert {MoeLayer().for_steps([step]).intermediate for step in peers} == {"bfloat16"}


def test_notes_of_a_callable() -> None:
    def kernel(data: Any) -> Any:
        return data

    assert notes_of(kernel) == ()
    kernel.notes = ["tile 16", 5]  # type: ignore[attr-defined]
    assert notes_of(kernel) == ("tile 16", "5")
    kernel.notes = "one line"  # type: ignore[attr-defined]
    assert notes_of(kernel) == ()


# -- the torch peer's arithmetic


@pytest.mark.parametrize("input_class", PROBLEM.input_classes)
@pytest.mark.parametrize(
    "fields",
    [
        {"m": 5, "n": 128, "k": 256, "e": 8, "topk": 2},
        {"m": 37, "n": 256, "k": 384, "e": 12, "topk": 3, "renormalize": False, "softcap": 5.0},
        {"m": 33, "n": 128, "k": 128, "e": 40, "topk": 8, "routing": "one"},
    ],
)
def test_the_torch_peer_on_a_cpu(input_class: str, fields: dict[str, Any]) -> None:
    kernel = load_callable(ROOT / "peers" / "moe" / "moe-torch" / "submission.py")
    problem = FusedMoe()
    shape = problem.parse_shape("x", fields)
    inputs: Inputs = problem.make_inputs(shape, input_class, 3, "cpu")
    inputs.outputs[0].fill_(torch.nan)
    output = kernel(inputs.data)
    reference = problem.reference(inputs, shape, input_class)
    assert problem.compare([output], reference, shape, input_class).ok
    assert notes_of(kernel) == (
        "no grouped FP8 in torch here: float32, one expert after the other",
    )


def test_the_torch_peer_on_operands_that_are_not_finite() -> None:
    kernel = load_callable(ROOT / "peers" / "moe" / "moe-torch" / "submission.py")
    shape = PROBLEM.parse_shape("x", {"m": 8, "n": 128, "k": 256, "e": 8, "topk": 2})
    inputs = PROBLEM.make_inputs(shape, "random", 5, "cpu")
    inputs.data.hidden[1, 200] = torch.nan
    inputs.data.hidden[2, 0] = -torch.inf
    inputs.data.gating[4, 7] = torch.nan
    inputs.data.gating[6, 1:] = -torch.inf
    output = kernel(inputs.data)
    assert PROBLEM.compare([output], PROBLEM.reference(inputs, shape, "random"), shape, "random").ok
    assert torch.isnan(output).all(dim=1).nonzero().flatten().tolist() == [1, 2, 4]
