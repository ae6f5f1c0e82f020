"""``kernelbench bringup`` with the emulator in the GPU's place: outcomes, report, interruption."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ENVIRONMENT, Outcome, result_row, write_project, write_step
from gpu_tools import H200, on_h200

from kernelbench.base import schema
from kernelbench.base.errors import EnvironmentProblem, ExitCode
from kernelbench.bringup import native_stages, parity_runner, stages
from kernelbench.bringup.bringup_record import SHARED, BringupLine, BringupRecord
from kernelbench.bringup.native_stages import ROUNDING, SUITES, functions_of, points
from kernelbench.bringup.open_points import POINTS
from kernelbench.bringup.parity_runner import ParityCase, Ran
from kernelbench.bringup.stages import StepStage
from kernelbench.build import compiler
from kernelbench.cli import invoke
from kernelbench.inspection import doctor
from kernelbench.machine import clocks, devices
from kernelbench.project.context import Context
from kernelbench.project.registry import Lineages
from kernelbench.records.run_record import Result
from kernelbench.runs import plan as planning
from kernelbench.runs.runner import Runner, StepRun

__all__ = ["on_h200"]  # fixtures

Change = Callable[[dict[str, Ran]], dict[str, Ran]]

needs_host = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
#: Makes a right step wrong.
ZEROS = """

_right = custom_kernel


def custom_kernel(data):
    return [output.zero_() for output in _right(data)]
"""
SUITE = next(suite for suite in SUITES if suite.name == "threads")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_source: str) -> Path:
    """A project with a Python step, which bringup does not run; nothing of what ships is run."""
    root = write_project(tmp_path / "project", {"w0": right_source})
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    monkeypatch.setattr(Lineages, "all_steps", property(lambda found: found.steps))
    return root


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[Change], None]:
    """The emulator as the GPU, with what it leaves changed; one suite, and no open point."""

    def install(change: Change) -> None:
        def on_gpu(
            stem: str, _backend: str, works: Mapping[str, ParityCase], *, limit_s: float
        ) -> dict[str, Ran]:
            library = parity_runner.emulator_library(stem)
            return change(parity_runner.run_parity(library, works, ROUNDING, limit_s=limit_s))

        monkeypatch.setattr(native_stages, "on_gpu", on_gpu)
        monkeypatch.setattr(native_stages, "gpu_library", lambda *_: Path())
        monkeypatch.setattr(native_stages, "SUITES", (SUITE,))
        monkeypatch.setattr(native_stages, "POINTS", ())

    return install


def lines(report: Path, stage: str) -> dict[str, BringupLine]:
    """The lines of a stage by name, from the report."""
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    return {line.name: line for each in record.stages if each.name == stage for line in each.lines}


def test_without_a_gpu_it_is_one_line(bench: Callable[..., Outcome], tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    outcome = bench("bringup", "--report", report)
    assert outcome.code == ExitCode.ENVIRONMENT
    assert "bringup needs a GPU" in outcome.error
    assert not report.exists()


def test_a_gpu_without_a_backend_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ampere = replace(H200, name="NVIDIA A100", capability=(8, 0))
    monkeypatch.setattr(devices, "gpus", lambda: [ampere])
    assert invoke(["bringup", "--report", str(project / "r.json")]) == ExitCode.ENVIRONMENT
    assert "this is NVIDIA A100 (sm_80)" in capsys.readouterr().err


def test_the_report_is_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert invoke(["bringup", "--report", str(tmp_path / "r.md")]) == ExitCode.USAGE
    assert "name a .json file" in capsys.readouterr().err


@needs_host
def test_equal_bits_pass(project: Path, on_h200: None, stand_in: Callable[[Change], None]) -> None:
    stand_in(lambda ran: ran)
    report = project / "r.json"
    assert invoke(["bringup", "--quick", "--seed", "1", "--report", str(report)]) == ExitCode.PASS
    found = lines(report, "functions")
    assert {line.outcome for line in found.values()} == {"PASS"}
    assert "mbarrier_init" in found
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    assert record.complete
    assert [stage.state for stage in record.stages] == ["done"] * 5
    assert "| mbarrier_init | PASS |" in report.with_suffix(".md").read_text()


@needs_host
def test_what_differs_hangs_and_faults_is_told_apart(
    project: Path, on_h200: None, stand_in: Callable[[Change], None]
) -> None:
    def spoil(ran: dict[str, Ran]) -> dict[str, Ran]:
        out = ran["exchanges"].out
        assert out is not None
        return ran | {
            "exchanges": Ran(out ^ np.uint32(1), ""),
            "reductions": Ran(None, "did not end within 1 s", timed_out=True),
            "conversions": Ran(None, "illegal instruction"),
            "relay": Ran(None, "not run: 2 processes before it did not end", started=False),
        }

    stand_in(spoil)
    report = project / "r.json"
    code = invoke(["bringup", "--quick", "--seed", "1", "--report", str(report)])
    assert code == ExitCode.INCORRECT
    found = lines(report, "functions")
    assert found["shfl_sync_idx"].outcome == "DIFFERS"
    assert "exchanges: 384 of 384 words: [0] 0x" in found["shfl_sync_idx"].detail
    assert found["cvt_f32_f16"].outcome == "FAILED"
    assert "illegal instruction" in found["cvt_f32_f16"].detail
    only_in = {name for name in found if name in functions_of(SUITE.stem, "reductions")}
    assert {found[name].outcome for name in only_in} <= {"TIMED OUT", "DIFFERS"}
    assert "TIMED OUT" in {found[name].outcome for name in only_in}
    assert found["mbarrier_arrive"].outcome == "PASS"


@needs_host
def test_what_cannot_be_run_is_not_a_pass(
    project: Path, on_h200: None, stand_in: Callable[[Change], None]
) -> None:
    def refuse(_ran: dict[str, Ran]) -> dict[str, Ran]:
        raise EnvironmentProblem("no nvcc", "install it")

    stand_in(refuse)
    report = project / "r.json"
    assert invoke(["bringup", "--quick", "--report", str(report)]) == ExitCode.ENVIRONMENT
    found = lines(report, "functions")
    assert {line.outcome for line in found.values()} == {"NOT RUN"}
    assert "no nvcc; install it" in found["mapa"].detail


@needs_host
def test_a_defect_in_a_stage_costs_that_stage(
    project: Path,
    on_h200: None,
    stand_in: Callable[[Change], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("broken")

    stand_in(lambda ran: ran)
    monkeypatch.setattr(native_stages, "points", broken)
    report = project / "r.json"
    assert invoke(["bringup", "--quick", "--report", str(report)]) == ExitCode.ENVIRONMENT
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    states = {stage.name: stage.state for stage in record.stages}
    assert states["points"] == "failed" and states["timed"] == "done"
    assert "ValueError('broken')" in record.stages[2].reason


@needs_host
def test_ctrl_c_leaves_what_was_done(
    project: Path, on_h200: None, stand_in: Callable[[Change], None]
) -> None:
    def interrupt(ran: dict[str, Ran]) -> dict[str, Ran]:
        raise KeyboardInterrupt

    stand_in(interrupt)
    report = project / "r.json"
    assert invoke(["bringup", "--report", str(report)]) == 130
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    assert not record.complete
    states = [stage.state for stage in record.stages]
    assert states == ["done", "stopped", "not run", "not run", "not run"]
    assert "**not complete**" in report.with_suffix(".md").read_text()


@needs_host
def test_points_are_confirmed_refuted_or_not_run(
    stand_in: Callable[[Change], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoil(ran: dict[str, Ran]) -> dict[str, Ran]:
        if "cluster" in ran:
            return {"cluster": Ran(None, "did not end within 1 s", timed_out=True)}
        out = ran["masks"].out if "masks" in ran else None
        return ran if out is None else {"masks": Ran(out + np.uint32(1), "")}

    stand_in(spoil)
    names = (
        "elected-lane", "cluster-address", "swizzle-address", "empty-commit", "alloc-order",
        "plain-meeting-loads", "triggers-hand-on",
    )  # fmt: skip
    chosen = tuple(point for point in POINTS if point.name in names)
    monkeypatch.setattr(native_stages, "POINTS", chosen)
    found = {line.name: line for line in points("sm90a", 1, 60, lambda _text: None, planted=True)}
    assert {name: line.outcome for name, line in found.items()} == {
        "elected-lane": "REFUTED",
        "cluster-address": "TIMED OUT",
        "swizzle-address": "CONFIRMED",
        "empty-commit": "NOT RUN",
        "alloc-order": "NOT RUN",
        "plain-meeting-loads": "CONFIRMED",
        "triggers-hand-on": "NOT RUN",
    }
    assert "with a fault planted refuted: 1 of 1 cases" in found["plain-meeting-loads"].detail
    # Without the checker the emulator runs grids one after another: no fault can show.
    assert "the probe proves nothing: with a fault planted" in found["triggers-hand-on"].detail
    assert "did not end within 1 s" in found["cluster-address"].detail
    assert "needs sm100a" in found["empty-commit"].detail


@pytest.fixture
def steps_on_cpu(
    on_h200: None, stand_in: Callable[[Change], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python steps on the CPU in the place of compiled ones on the GPU, and no native function."""
    stand_in(lambda ran: ran)
    monkeypatch.setattr(native_stages, "SUITES", ())
    plan = planning.plan

    def on_cpu(context, steps, shapes, executor, *rest, **named):
        assert executor == "gpu"
        return plan(context, steps, shapes, "torch", *rest, **named)

    monkeypatch.setattr(planning, "plan", on_cpu)
    monkeypatch.setattr(stages, "native_steps", lambda context, *_: list(context.lineages.steps))
    monkeypatch.setattr(stages, "_QUICK_REPS", 3)


def test_steps_are_checked_then_timed(project: Path, steps_on_cpu: None, right_source: str) -> None:
    """One of the two is wrong."""
    reported = (
        '[reported]\ndevice = "NVIDIA B200"\nmetric = "call"\nunit = "us"\nvalues = { u0 = 12.5 }\n'
    )
    write_step(project / "tiny", "w0", right_source, reported)
    write_step(project / "tiny", "w1", right_source + ZEROS)
    report = project / "r.json"
    code = invoke(["bringup", "--quick", "--seed", "1", "--report", str(report)])
    assert code == ExitCode.INCORRECT
    small, timed = lines(report, "small"), lines(report, "timed")
    assert (small["w0"].outcome, small["w1"].outcome) == ("PASS", "DIFFERS")
    assert (timed["w0"].outcome, timed["w1"].outcome) == ("PASS", "NOT RUN")
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    (figure,) = record.figures
    assert (figure.step, figure.shape) == ("w0", "u0")
    assert figure.medians["call"] > 0
    assert figure.reported == "12.5 µs, call time, reported on NVIDIA B200"
    assert [row.step for row in record.results] == ["w0", "w1", "w0"]
    assert "12.5 µs, call time, reported on NVIDIA B200" in report.with_suffix(".md").read_text()


def using(counts: Iterator[int | None]) -> Callable[[int], int | None]:
    """In the place of the query to NVML: how many other processes use the GPU, look by look."""

    def other_processes(index: int) -> int | None:
        assert index == 0
        return next(counts)

    return other_processes


@pytest.mark.parametrize(
    ("counts", "outcome", "said"),
    [
        ((0,), "ok", "no other process"),
        ((2, 1, 0), "ok", "no other process"),
        ((None,), "warn", "does not tell"),
    ],
)
def test_others_are_waited_for(
    in_checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    counts: tuple[int | None, ...],
    outcome: str,
    said: str,
) -> None:
    looks, told = iter(counts), []
    monkeypatch.setattr(clocks, "other_processes", using(looks))
    monkeypatch.setattr(stages, "_POLL_S", 0.001)
    stage = StepStage(Context.find(), seed=1, limit_s=1, progress=told.append)
    line = stage.wait_for_others(60)
    assert line.outcome == outcome
    assert said in line.detail
    assert [text.split(":")[0] for text in told] == [
        f"{count} other process(es) use the GPU" for count in counts if count
    ]
    assert next(looks, "no more") == "no more"


@pytest.mark.parametrize("wait_s", [0, 0.01])
def test_others_are_not_waited_for_longer_than_asked(
    in_checkout: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    told: list[str] = []
    monkeypatch.setattr(clocks, "other_processes", lambda _index: 3)
    stage = StepStage(Context.find(), seed=1, limit_s=1, progress=told.append)
    line = stage.wait_for_others(wait_s)
    assert line.outcome == "warn"
    assert line.detail.startswith("3 other process(es) used it")
    assert bool(told) == bool(wait_s)


def escape_message() -> str:
    """What the timer says where a call takes longer by the host's clock than by the events."""
    from kernelbench.measure import gpu_call_time
    from kernelbench.measure.gpu_timing import GpuTiming
    from kernelbench.measure.timing import Measurement, TimedBlock, TimingFault

    measured = Measurement("call", "events", [TimedBlock([0], [0], [100.0])])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(TimingFault) as fault:
        patch.setattr(gpu_call_time, "_excess_of_nothing", lambda _gpu: 30.0)
        patch.setattr(gpu_call_time, "foreign_processes", lambda _index: 0)
        gpu = object.__new__(GpuTiming)
        gpu.device = torch.device("cuda:0")
        gpu_call_time._require_joined(gpu, 0, 5000.0, measured, 1)
    return str(fault.value)


@pytest.fixture
def timed_as(
    project: Path, steps_on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Path]:
    """Run bringup with w0 right but for what its timing is told to find; gives the report.

    ``looks`` are what NVML tells us, before and after the step; ``seen``, what it tells the worker.
    """
    monkeypatch.setattr(doctor, "examine", lambda: doctor.Diagnosis(True, {}, ()))

    def bringup(looks: tuple[int, ...], seen: int, expect: ExitCode, **found: Any) -> Path:
        def run(runner: Runner, plan: StepRun) -> Iterator[Result]:
            if runner._timing is None:
                yield result_row(plan.step.name, device_us=None)
            else:
                runner.environment = replace(ENVIRONMENT, gpu_processes=seen)
                yield result_row(plan.step.name, **found)

        monkeypatch.setattr(Runner, "run", run)
        monkeypatch.setattr(clocks, "other_processes", using(iter(looks)))
        report = project / "r.json"
        assert invoke(["bringup", "--quick", "--wait", "0", "--report", str(report)]) == expect
        return report

    return bringup


@pytest.mark.parametrize(("looks", "seen"), [((1, 0), 0), ((0, 0), 1), ((0, 1), 0), ((1, 1), 1)])
def test_times_beside_others_are_marked(
    timed_as: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    looks: tuple[int, int],
    seen: int,
) -> None:
    """Others may be there before, while and after the step is timed."""
    report = timed_as(looks, seen, ExitCode.PASS)
    timed = lines(report, "timed")
    assert timed["GPU"].outcome == ("warn" if looks[0] else "ok")
    assert (timed["w0"].outcome, timed["w0"].shared) == ("PASS", True)
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    assert [figure.times for figure in record.figures] == [("–", "40.0*")]
    assert [SHARED in row.notes for row in record.results] == [False, True]
    for text in (report.with_suffix(".md").read_text(), capsys.readouterr().out):
        assert f"1 PASS; {SHARED}" in text
        assert f"*: {SHARED}\n" in text


def test_times_of_a_gpu_of_its_own_are_not_marked(timed_as: Callable[..., Path]) -> None:
    report = timed_as((0, 0), 0, ExitCode.PASS)
    assert SHARED not in report.with_suffix(".md").read_text()
    assert not any(line.shared for line in lines(report, "timed").values())
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    assert [figure.times for figure in record.figures] == [("–", "40.0")]


@pytest.mark.parametrize(
    ("fault", "others", "outcome", "code"),
    [
        (escape_message, 1, "NOT JUDGED", ExitCode.ENVIRONMENT),
        (escape_message, 0, "DIFFERS", ExitCode.INCORRECT),
        (lambda: "a timed output is wrong", 1, "DIFFERS", ExitCode.INCORRECT),
    ],
)
def test_only_escaped_work_is_not_judged_beside_others(
    timed_as: Callable[..., Path],
    fault: Callable[[], str],
    others: int,
    outcome: str,
    code: ExitCode,
) -> None:
    reason, looks = fault(), (others, others)
    report = timed_as(looks, 0, code, status="wrong", reason=reason, device_us=None)
    line = lines(report, "timed")["w0"]
    assert (line.outcome, line.shared) == (outcome, bool(others))
    assert reason in line.detail
    record = schema.decode(BringupRecord, json.loads(report.read_text()))
    assert record.results[-1].status == ("skipped" if outcome == "NOT JUDGED" else "wrong")
    assert record.figures == ()
