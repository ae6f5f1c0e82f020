"""``kernelbench roofline`` on a project of its own, with saved runs of a device not here."""

from __future__ import annotations

import dataclasses
import json

import pytest

from kernelbench.base import json_file
from kernelbench.base.errors import ExitCode
from kernelbench.cli import invoke as run
from kernelbench.measure import speed_of_light
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.records import run_record
from kernelbench.records.metrics import Summary
from kernelbench.records.run_record import Environment, Protocol, Result, RunRecord

PROBLEM = """
from dataclasses import dataclass
from kernelbench.project.problem import Work

@dataclass(frozen=True)
class Shape:
    name: str
    mb: int
    def describe(self):
        return f"mb={self.mb}"

class Copy:
    name = "copy"
    input_classes = ("random",)
    benchmark_shapes = ("small", "large")
    def parse_shape(self, name, fields):
        return Shape(name, fields["mb"])
    def make_inputs(self, shape, input_class, seed, device): ...
    def outputs_of(self, result, inputs): ...
    def reference(self, inputs, shape, input_class): ...
    def compare(self, outputs, reference, shape, input_class): ...
    def broken_limit(self, shape, limits): return ""
    def work(self, shape, inputs=None):
        return Work(1e6, shape.mb * 1e6, 0.0, "fp4")

PROBLEM = Copy()
"""
ARCH = {"python": "any", "step": "sm_90a"}
STEP = """name = "{name}"
title = "t"
technique = "t"
hypothesis = "h"
arch = "{arch}"
kind = "{kind}"
status = "{status}"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A lineage written for sm_90a on a problem that reads a given number of megabytes."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["steps"]\n')
    (tmp_path / "shapes.yaml").write_text("copy:\n  small: {mb: 48}\n  large: {mb: 480}\n")
    steps = tmp_path / "steps"
    for name, kind, status in (("a00", "python", "works"), ("a01", "step", "planned")):
        (steps / name).mkdir(parents=True)
        (steps / name / "step.toml").write_text(
            STEP.format(name=name, arch=ARCH[kind], kind=kind, status=status)
        )
    (steps / "a00" / "submission.py").write_text("def custom_kernel(data):\n    return data\n")
    (steps / "p.py").write_text(PROBLEM)
    (steps / "lineage.toml").write_text('name = "mine"\ntitle = "t"\nproblem = "p.py:PROBLEM"\n')
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return tmp_path


def save_run(project, identifier, us, status="pass", l2="cold", executor="gpu", shape="large"):
    stats = Summary(us, us, us, us, us, 0.0, 500, "graph")
    result = Result(
        step="a00",
        lineage="mine",
        problem="copy",
        shape=shape,
        dims="mb=480",
        inputs="random",
        executor=executor,
        status=status,
        exact=True,
        max_abs_err=0.0,
        metrics={"device": stats},
        reason="" if status == "pass" else "wrong",
    )
    environment = Environment(
        "NVIDIA H200", "cuda", "sm_90", 132, 60 << 20, 1, "580", "13.0", "2.11", "3.12", "0.1.0"
    )
    record = RunRecord(
        schema=run_record.RUN_SCHEMA,
        id=identifier,
        created="2026-11-20T00:00:00+00:00",
        command="kernelbench run a00",
        device="NVIDIA H200",
        environment=environment,
        protocol=Protocol(1, 500, 50, l2, "single", 0),
        results=(result,),
    )
    path = project / "results" / "nvidia-h200" / "runs" / f"{identifier}.json"
    json_file.write_json(path, record)
    return path


def report(capsys, *arguments, code=ExitCode.PASS):
    assert run(["roofline", "--json", "-", *arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_floors_by_name(project, capsys):
    found = report(capsys, "--device", "h200", "--l2", "both")
    assert found["schema"] == "kernelbench.roofline/1"
    (lineage,) = found["lineages"]
    assert lineage["device"]["assumed"] == ""
    small, large = lineage["shapes"]
    assert [f["floor"]["l2_mode"] for f in large["floors"]] == ["cold", "warm"]
    assert large["floors"][0]["floor"]["us"] == pytest.approx(100.0)
    assert large["floors"][1]["floor"]["us"] == pytest.approx((480e6 - (60 << 20)) / 4.8e6)
    assert small["floors"][1]["floor"]["memory_us"] == 0.0
    assert any("no fp4 rate" in note for note in lineage["notes"])


def test_without_a_gpu_the_device_is_assumed_and_said(project, capsys):
    lineage = report(capsys)["lineages"][0]
    assert lineage["device"]["name"] == "NVIDIA H200"
    assert "assumed" in lineage["device"]["assumed"]
    assert run(["roofline", "--shape", "large", "--l2", "cold"]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert "mine  on NVIDIA H200 (assumed: no GPU here" in out
    assert "100.00 mem" in out
    assert "no measured steps on NVIDIA H200" in out


def test_the_newest_pass_counts(project, capsys):
    save_run(project, "20261101T000000Z-00000001", 125.0)
    save_run(project, "20261102T000000Z-00000002", 111.0, status="wrong")
    save_run(project, "20261103T000000Z-00000003", 150.0, l2="warm")
    save_run(project, "20261104T000000Z-00000004", 5.0, executor="gpu-soft")
    large = report(capsys, "--device", "h200")["lineages"][0]["shapes"][1]
    times = {step["l2"]: step for step in large["steps"]}
    assert times["cold"]["time_us"] == 125.0
    assert times["cold"]["fraction"] == pytest.approx(0.8)
    assert times["cold"]["fraction_measured"] is None
    assert times["cold"]["below_floor"] is False
    assert times["warm"]["time_us"] == 150.0
    save_run(project, "20261105T000000Z-00000005", 120.0)
    large = report(capsys, "--device", "h200", "--l2", "cold")["lineages"][0]["shapes"][1]
    assert [step["time_us"] for step in large["steps"]] == [120.0]


def test_faster_than_possible_fails(project, capsys):
    """Below the datasheet's speed of light is a record; below what the pins can do, a failure."""
    save_run(project, "20261101T000000Z-00000001", 99.0)
    report(capsys, "--device", "h200")
    save_run(project, "20261102T000000Z-00000002", 97.0)
    found = report(capsys, "--device", "h200", code=ExitCode.INCORRECT)
    assert found["lineages"][0]["shapes"][1]["steps"][0]["below_floor"] is True
    assert run(["roofline", "--device", "h200"]) == ExitCode.INCORRECT
    assert "FAIL faster than possible" in capsys.readouterr().out
    # The same time is possible where operands may be in the L2.
    report(capsys, "--device", "h200", "--l2", "warm")


def test_runs_of_other_devices_do_not_count(project, capsys):
    save_run(project, "20261101T000000Z-00000001", 125.0)
    assert report(capsys, "--device", "b200")["lineages"][0]["shapes"][1]["steps"] == []
    moved = project / "results" / "nvidia-b200" / "runs" / "20261101T000000Z-00000001.json"
    moved.parent.mkdir(parents=True)
    (project / "results" / "nvidia-h200" / "runs" / moved.name).rename(moved)
    assert report(capsys, "--device", "b200")["lineages"][0]["shapes"][1]["steps"] == []


def test_measured_ceilings_stand_beside_the_datasheet(project, capsys):
    measured = dataclasses.replace(
        speed_of_light.known_device("h200"),
        source="measured",
        dram_bytes_per_s=4.6e12,
        measured="2026-11-20",
    )
    speed_of_light.save_measured(measured, project / "results")
    save_run(project, "20261101T000000Z-00000001", 125.0)
    large = report(capsys, "--device", "h200", "--l2", "cold")["lineages"][0]["shapes"][1]
    assert [f["source"] for f in large["floors"]] == ["datasheet", "measured"]
    assert large["steps"][0]["fraction_measured"] == pytest.approx(480 / 4.6 / 125)
    assert run(["roofline", "--device", "h200"]) == ExitCode.PASS
    assert "measured 2026-11-20: 4.60 TB/s" in capsys.readouterr().out


def test_a_broken_run_is_named_and_left_out(project, capsys):
    save_run(project, "20261101T000000Z-00000001", 125.0)
    save_run(project, "20261102T000000Z-00000002", 120.0).write_text("{")
    lineage = report(capsys, "--device", "h200", "--l2", "cold")["lineages"][0]
    assert [step["time_us"] for step in lineage["shapes"][1]["steps"]] == [125.0]
    assert any("00000002" in note for note in lineage["notes"])


def test_published_figures_are_labelled(project, capsys, monkeypatch):
    published = speed_of_light.Published("a source", "B200", {"large": 61.5})
    (lineage,) = Context.find().lineages.lineages
    monkeypatch.setattr(load_problem(lineage), "published", published, raising=False)
    assert run(["roofline", "--device", "b200"]) == ExitCode.PASS
    out = capsys.readouterr().out
    assert "61.5" in out
    assert "reported: a source; not measured here" in out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--device", "h300"], ExitCode.USAGE, "did you mean 'h200'"),
        (["--device", "0"], ExitCode.ENVIRONMENT, "no GPU 0"),
        (["--measure"], ExitCode.ENVIRONMENT, "nothing to measure"),
        (["--measure", "--device", "h200"], ExitCode.USAGE, "of this machine"),
        (["--shape", "lage"], ExitCode.USAGE, "did you mean 'large'"),
        (["--lineage", "yours"], ExitCode.USAGE, "unknown lineage 'yours'"),
        (["--problem", "move"], ExitCode.USAGE, "unknown problem 'move'"),
    ],
)
def test_refusals_are_one_line(project, capsys, arguments, code, said):
    assert run(["roofline", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert captured.out == ""
