"""``kernelbench`` from Python: what it returns, raises, tells and leaves behind."""

from __future__ import annotations

import json
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TINY, processes_with, result_row, run_record, write_project, write_step

import kernelbench
from kernelbench.base.errors import ExitCode, PlannedStepError, UnknownNameError
from kernelbench.build import compiler
from kernelbench.machine import devices
from kernelbench.records import ledger, store
from kernelbench.runs.api import RunPlan
from kernelbench.worker import launcher

WRONG = '"""Nothing right."""\n\n\ndef custom_kernel(data):\n    return "<b>&"\n'
QUICK: dict[str, Any] = {"reps": 20, "budget_s": 0.2}

needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process and its workers see no GPU; afterwards none of them is left."""
    mark = secrets.token_hex(16)
    monkeypatch.setenv("KERNELBENCH_TEST_MARK", mark)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(devices, "gpus", lambda: [])
    yield
    # What was killed takes a moment to go.
    last = time.monotonic() + 30
    while processes_with(mark) and time.monotonic() < last:
        time.sleep(0.05)
    assert processes_with(mark) == []


@pytest.fixture
def project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_source: str, no_gpu: None
) -> Path:
    """A project with a right step, a copy of it, a slower one, a wrong one and a planned one."""
    sources = {"s00": right_source, "s01": right_source + "\n# other\n", "s02": WRONG, "s03": None}
    root = write_project(tmp_path / "p", sources)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    return root


@pytest.fixture
def checkout(monkeypatch: pytest.MonkeyPatch, no_gpu: None) -> None:
    """Calls work on this checkout."""
    monkeypatch.setenv("KERNELBENCH_ROOT", str(ROOT))


class Told(kernelbench.Observer):
    """Hands on what it is told to functions, by the names of its methods."""

    def __init__(self, **told: Any) -> None:
        vars(self).update(told)


def files_of(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if "__pycache__" not in path.parts}


class TestRun:
    def test_it_returns_what_it_told_and_saves_nothing(self, project: Path) -> None:
        before = files_of(project)
        plans: list[RunPlan] = []
        said: list[str] = []
        rows: list[kernelbench.Result] = []
        record = kernelbench.run(
            project / "tiny" / "s00", TINY, seed=7, **QUICK,
            observer=Told(planned=plans.append, progress=said.append, row=rows.append),
        )  # fmt: skip
        assert tuple(rows) == record.results
        assert [(row.inputs, row.status) for row in rows] == [
            ("gpu-mode", "pass"), ("full", "pass"), ("structured", "pass"),
        ]  # fmt: skip
        assert not record.failures
        assert record.complete
        assert (record.protocol.seed, record.protocol.reps) == (7, 20)
        assert rows[0].metrics.get("call") is not None
        assert [step.step.name for step in plans[0].steps] == ["s00"]
        assert any(TINY in text for text in said)
        assert record.command == f"kernelbench.run('s00', '{TINY}')"
        assert files_of(project) == before

    def test_it_saves_where_it_is_asked_to(self, project: Path, tmp_path: Path) -> None:
        saved: list[Path] = []
        record = kernelbench.run(
            "s00", "u0", inputs="gpu-mode", **QUICK, save=True, results=tmp_path / "r",
            observer=Told(saved=saved.append), command="a test",
        )  # fmt: skip
        assert len(saved) == 1
        (found,), broken = store.load_runs(tmp_path / "r")
        assert not broken
        assert (found.id, found.results, found.command) == (record.id, record.results, "a test")
        assert not (project / "results").exists()

    def test_a_wrong_step_is_in_the_record(self, project: Path) -> None:
        record = kernelbench.run(["s00", "s02"], "u0", inputs=["gpu-mode"], timed=False)
        (failed,) = record.failures
        assert (failed.step, failed.status) == ("s02", "wrong")
        assert {row.metrics.get("call") for row in record.results} == {None}

    def test_a_warning_is_pythons_unless_taken(self, project: Path) -> None:
        with pytest.warns(UserWarning, match="planned, left out: s03"):
            kernelbench.run("tiny", "u0", inputs="gpu-mode", timed=False)

    def test_ctrl_c_keeps_what_there_is(self, project: Path, tmp_path: Path) -> None:
        def stop(row: kernelbench.Result) -> None:
            signal.raise_signal(signal.SIGINT)

        with pytest.raises(kernelbench.Interrupted) as stopped:
            kernelbench.run(
                ["s00", "s01"], "u0", inputs="gpu-mode", timed=False, observer=Told(row=stop),
                save=True, results=tmp_path / "r",
            )  # fmt: skip
        partial = stopped.value.partial
        assert isinstance(partial, kernelbench.RunRecord)
        assert [row.step for row in partial.results] == ["s00"]
        assert not partial.complete
        ((found,), _) = store.load_runs(tmp_path / "r")
        assert found.id == partial.id
        assert isinstance(stopped.value, KeyboardInterrupt)

    def test_ctrl_c_before_the_first_row(self, project: Path) -> None:
        def stop(text: str) -> None:
            if text.endswith(": load"):
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(kernelbench.Interrupted) as stopped:
            kernelbench.run("s00", "u0", timed=False, observer=Told(progress=stop))
        assert stopped.value.partial is None

    def test_an_error_of_a_callback_comes_through(self, project: Path) -> None:
        def broken(row: kernelbench.Result) -> None:
            raise ValueError("the caller's own")

        with pytest.raises(ValueError, match="the caller's own"):
            kernelbench.run("s00", "u0", inputs="gpu-mode", timed=False, observer=Told(row=broken))

    def test_a_record_that_cannot_be_saved_is_not_lost(
        self, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> Path:
            raise kernelbench.EnvironmentProblem("no space")

        monkeypatch.setattr(store, "save_run", full)
        with pytest.raises(kernelbench.EnvironmentProblem, match="no space") as failed:
            kernelbench.run(
                "s00", "u0", inputs="gpu-mode", timed=False, save=True, results=tmp_path / "r"
            )
        assert isinstance(failed.value.partial, kernelbench.RunRecord)
        assert len(failed.value.partial.results) == 1

    @needs_compiler
    def test_a_finding_of_the_emulator_is_told(self, checkout: None) -> None:
        told: list[tuple[str, str, str, Any]] = []
        record = kernelbench.run(
            "v6-splitk", "u1", inputs="gpu-mode", emulation=kernelbench.Emulation(sms=2),
            observer=Told(reported=lambda *found: told.append(found)),
        )  # fmt: skip
        assert [row.status for row in record.failures] == ["hang"]
        ((step, shape, inputs, report),) = told
        assert (step, shape, inputs) == ("v6-splitk", "u1", "gpu-mode")
        assert any(finding.kind == "hang" for finding in report.findings)


class TestAb:
    def test_call_times_on_a_cpu(self, project: Path, tmp_path: Path) -> None:
        said: list[str] = []
        comparison = kernelbench.ab(
            "s00", "s01", "u0", metric="call", sessions=1, inputs="gpu-mode", why="none",
            save=True, results=tmp_path / "r", observer=Told(progress=said.append),
            reps=20, budget_s=5,
        )  # fmt: skip
        (row,) = comparison.rows()
        assert comparison.verdicts == {"u0": row["verdict"]}
        assert row["change_low"] <= row["change"] <= row["change_high"]
        assert comparison.complete
        assert said
        (entry,) = ledger.read_ledger(tmp_path / "r")
        assert (entry.id, entry.why) == (comparison.ledger_id, "none")
        assert entry.command == "kernelbench.ab('s00', 's01')"

    def test_what_cannot_be_timed_is_an_error_with_the_checks(self, project: Path) -> None:
        before = files_of(project)
        with pytest.raises(kernelbench.NotTimed, match="device time needs a GPU") as untimed:
            kernelbench.ab("s00", "s01", "u0", inputs="gpu-mode", check=True, save=True)
        checks = untimed.value.partial.checks
        assert [(row.step, row.status) for row in checks] == [("s00", "pass"), ("s01", "pass")]
        assert untimed.value.exit_code == ExitCode.ENVIRONMENT
        assert untimed.value.partial.verdicts == {}
        with pytest.raises(kernelbench.NotTimed) as wrong:
            kernelbench.ab("s00", "s02", "u0", inputs="gpu-mode", check=True)
        assert wrong.value.exit_code == ExitCode.INCORRECT
        assert files_of(project) == before

    def test_each_shape_is_told_when_it_is_measured(self, project: Path) -> None:
        told: list[tuple[str, float]] = []
        comparison = kernelbench.ab(
            "s00", "s01", ["u0", TINY], metric="call", sessions=1, inputs="gpu-mode", reps=20,
            budget_s=5,
            observer=Told(
                row=lambda row: told.append((row.shape.name, row.median_us("call", "cand")))
            ),
        )  # fmt: skip
        assert [shape for shape, _ in told] == ["u0", TINY]
        assert [us for _, us in told] == [row["cand_us"] for row in comparison.rows()]

    def test_a_wrong_arm(self, project: Path) -> None:
        with pytest.raises(kernelbench.ArmFailure, match="s02 on shape u0 is wrong") as failed:
            kernelbench.ab("s00", "s02", "u0", metric="call", sessions=1, **QUICK)
        assert failed.value.arm == "cand"
        assert failed.value.partial is None

    def test_ctrl_c_keeps_the_shapes_before(self, project: Path) -> None:
        def stop(text: str) -> None:
            if text.startswith(TINY):
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(kernelbench.Interrupted) as stopped:
            kernelbench.ab(
                "s00", "s01", ["u0", TINY], metric="call", sessions=1, inputs="gpu-mode",
                observer=Told(progress=stop), reps=20, budget_s=5,
            )  # fmt: skip
        partial = stopped.value.partial
        assert isinstance(partial, kernelbench.Comparison)
        assert list(partial.verdicts) == ["u0"]
        assert not partial.complete

    def test_the_same_code_needs_no_times(
        self, project: Path, tmp_path: Path, right_source: str
    ) -> None:
        write_step(project / "tiny", "s04", right_source)
        comparison = kernelbench.ab("s00", "s04", ["u0", TINY])
        assert comparison.same_code
        assert comparison.verdicts == {"u0": "SAME", TINY: "SAME"}
        assert comparison.rows() == []
        assert "the same code" in comparison._repr_html_()


@needs_compiler
class TestCheck:
    def test_a_missing_fence_is_found(self, checkout: None) -> None:
        said: list[str] = []
        rows: list[Any] = []
        report = kernelbench.check(
            "nofence", "u0", schedules=1, sms=[2, 2], seed=5, jobs=1,
            observer=Told(progress=said.append, row=rows.append),
        )  # fmt: skip
        (failed,) = report.failures
        assert rows == [failed]
        assert (report.sms, report.seed, report.complete) == ((2,), 5, True)
        (row,) = report.rows()
        assert (row["step"], row["shape"], row["status"]) == ("nofence", "u0", "wrong")
        assert any(line.startswith("proxy-fence: ") for line in row["findings"])
        assert said
        assert "proxy-fence" in report._repr_html_()
        json.dumps(report.rows(), allow_nan=False)

    def test_a_right_step_has_no_failures(self, checkout: None) -> None:
        report = kernelbench.check("v01", "u0", schedules=1, sms=[1])
        assert report.failures == ()
        assert [row["status"] for row in report.rows()] == ["clean"]

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_ctrl_c_keeps_what_there_is(self, checkout: None, jobs: int) -> None:
        def stop(text: str) -> None:
            if "schedule" in text:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(kernelbench.Interrupted) as stopped:
            kernelbench.check(
                "v01", "u0", schedules=9, sms=[1], jobs=jobs, observer=Told(progress=stop)
            )
        partial = stopped.value.partial
        assert isinstance(partial, kernelbench.CheckReport)
        assert not partial.complete

    def test_ctrl_c_between_two_steps_keeps_the_first(self, checkout: None) -> None:
        def stop(text: str) -> None:
            if text == "v02: building for the checker":
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(kernelbench.Interrupted) as stopped:
            kernelbench.check("v01..v03", "u0", schedules=1, sms=[1], observer=Told(progress=stop))
        partial = stopped.value.partial
        assert isinstance(partial, kernelbench.CheckReport)
        assert [step.step for step in partial.steps] == ["v01"]
        assert not partial.complete

    @pytest.mark.parametrize("jobs", [1, 2])
    def test_an_error_of_a_callback_comes_through(self, checkout: None, jobs: int) -> None:
        def broken(text: str) -> None:
            if "schedule" in text:
                raise ValueError("the caller's own")

        with pytest.raises(ValueError, match="the caller's own"):
            kernelbench.check(
                "v01", ["u0", "u1"], schedules=9, sms=[1], jobs=jobs, observer=Told(progress=broken)
            )

    def test_launchers_serve_all_steps(
        self, checkout: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One process per job imports torch, however many steps there are."""
        started: list[object] = []
        start = subprocess.Popen

        def counting(command: list[str], **options: Any) -> Any:
            if "kernelbench.worker.fork_server" in command:
                started.append(command)
            return start(command, **options)

        monkeypatch.setattr(launcher.subprocess, "Popen", counting)
        kernelbench.check("v01..v03", ["u0", "u1"], schedules=1, sms=[1], jobs=2)
        assert len(started) <= 2


class TestErrors:
    @pytest.mark.parametrize(
        ("call", "error", "said"),
        [
            (lambda: kernelbench.run("s0O"), UnknownNameError, "did you mean 's00'"),
            (lambda: kernelbench.run("s00", "u99"), UnknownNameError, "unknown shape 'u99'"),
            (lambda: kernelbench.run("s03"), PlannedStepError, "s03 is planned"),
            (lambda: kernelbench.run([]), kernelbench.UsageError, "no step"),
            (lambda: kernelbench.run("s00", reps=0), kernelbench.UsageError, "reps is 0"),
            (lambda: kernelbench.run("s00", l2="hot"), kernelbench.UsageError, "l2 is 'hot'"),
            (lambda: kernelbench.run("s00", seed=-1), kernelbench.UsageError, "seed is -1"),
            (lambda: kernelbench.run("s00", call="x"), kernelbench.UsageError, "call is 'x'"),
            (
                lambda: kernelbench.run("s00", timeout_s=float("nan")),
                kernelbench.UsageError,
                "timeout_s is nan",
            ),
            (lambda: kernelbench.run("s00", executor="x"), kernelbench.UsageError, "'x'"),
            (lambda: kernelbench.run("s00", inputs="x"), UnknownNameError, "input class 'x'"),
            (lambda: kernelbench.ab("s00", "tiny"), kernelbench.UsageError, "'tiny' is 4 steps"),
            (lambda: kernelbench.ab("s00", "s03"), PlannedStepError, "s03"),
            (lambda: kernelbench.ab("s00", "s01", alpha=0), kernelbench.UsageError, "alpha is 0"),
            (lambda: kernelbench.ab("s00", "s01", margin=2), kernelbench.UsageError, "margin is 2"),
            (lambda: kernelbench.ab("s00", "s01", metric="x"), kernelbench.UsageError, "metric"),
            (lambda: kernelbench.check("s00"), kernelbench.UsageError, "Python"),
            (lambda: kernelbench.check("s00", sms=[]), kernelbench.UsageError, "sms is ()"),
            (lambda: kernelbench.check("s00", sms=[0]), kernelbench.UsageError, "sms is (0,)"),
            (lambda: kernelbench.check("s00", jobs=0), kernelbench.UsageError, "jobs is 0"),
            (lambda: kernelbench.load("nothing"), UnknownNameError, "unknown step"),
            (lambda: kernelbench.load("tiny"), kernelbench.UsageError, "is 4 steps"),
            (lambda: kernelbench.load("s03"), PlannedStepError, "s03"),
        ],
    )
    def test_they_are_typed_and_one_line(
        self, project: Path, call: Callable[[], object], error: type[Exception], said: str
    ) -> None:
        with pytest.raises(error) as refused:
            call()
        assert isinstance(refused.value, kernelbench.KernelbenchError)
        assert said in str(refused.value)
        assert "\n" not in str(refused.value)

    def test_an_unwritable_folder_is_noticed_first(self, project: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        rows: list[object] = []
        with pytest.raises(kernelbench.EnvironmentProblem, match="cannot write results"):
            kernelbench.run(
                "s00",
                "u0",
                save=True,
                results=tmp_path / "file" / "r",
                observer=Told(row=rows.append),
            )
        assert rows == []

    def test_no_project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
        with pytest.raises(kernelbench.UsageError):
            kernelbench.run("s00")


class TestNotebook:
    def test_markup_is_escaped(self) -> None:
        row = result_row(step="<s>", reason="<script>alert(1)</script> & more", notes=("<i>",))
        page = run_record(row, command="<img src=x>")._repr_html_()
        for text in ("<script>", "<s>", "<i>", "<img"):
            assert text not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in page
        assert page.startswith("<table>")

    def test_columns_that_nobody_fills_are_left_out(self) -> None:
        page = run_record(result_row(), result_row(shape="B"))._repr_html_()
        assert "<th>device_us</th>" in page
        assert "<th>call_us</th>" not in page
        assert page.count("<tr>") == 3
        assert run_record()._repr_html_().count("<td>") == 0

    def test_rows_are_plain(self) -> None:
        rows = run_record(result_row(median=41.5), result_row(status="wrong")).rows()
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows
        assert rows[0]["device_us"] == 41.5
        assert rows[0].keys() == rows[1].keys()


def test_load(project: Path) -> None:
    assert kernelbench.load(project / "tiny" / "s00").__name__ == "custom_kernel"
    assert kernelbench.load("s02")(None) == "<b>&"
