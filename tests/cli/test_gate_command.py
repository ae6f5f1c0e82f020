"""``kernelbench gate``: stored tables, and live against a copy of the project."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import COUNTED, ENVIRONMENT, PROTOCOL, ROOT, launch, write_project, write_step
from conftest import result_row as row
from conftest import run_record as record

from kernelbench.base import json_file
from kernelbench.cli import invoke as run_cli
from kernelbench.records.run_record import RunRecord

ROWS = (row("v01", "A", 40.0), row("v02", "A", 30.0), row("v02", "B", 35.0))


@pytest.fixture
def gate(
    in_checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:  # fmt: skip
    """Compare two records with ``gate``; its exit code, stdout and stderr."""
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def call(before: RunRecord, after: RunRecord, *more: object) -> tuple[int, str, str]:
        json_file.write_json(tmp_path / "before.json", before)
        json_file.write_json(tmp_path / "after.json", replace(after, id="y"))
        arguments = ["--baseline", tmp_path / "before.json", "--current", tmp_path / "after.json"]
        code = run_cli(
            ["gate", *map(str, arguments), "--results", str(tmp_path / "r"), *map(str, more)]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_equal_tables_pass(gate: Callable[..., Any]) -> None:
    code, out, err = gate(record(*ROWS), record(*ROWS))
    assert (code, err) == (0, "")
    assert "PASS: 3 unchanged" in out
    assert "spread between sessions unknown" in out


def test_three_percent_fails_and_is_named(gate: Callable[..., Any]) -> None:
    slower = (*ROWS[:2], row("v02", "B", 35.0 * 1.03))
    code, out, _ = gate(record(*ROWS), record(*slower))
    assert code == 1
    assert "FAIL: v02: 1 regressed · 2 unchanged" in out
    assert re.search(r"\*\*v02 B device\*\*: \+3\.00% against the predecessor", out)
    assert gate(record(*slower), record(*ROWS))[0] == 0


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (ROWS[:2], "in the baseline, not in the current table"),
        ((*ROWS[:2], row("v02", "B", 35, device_us=None)), "none now"),
        ((*ROWS[:2], row("v02", "B", 35, status="skipped", device_us=None, reason="no")), "no"),
    ],
)
def test_a_missing_row_fails(after: Any, said: str, gate: Callable[..., Any]) -> None:
    code, out, _ = gate(record(*ROWS), record(*after))
    assert code == 1
    assert "FAIL: v02: 1 missing" in out
    assert said in out


def test_an_incorrect_row_outranks_times(gate: Callable[..., Any]) -> None:
    bad = row("v01", "A", 10.0, status="hang", reason="no answer", device_us=None)
    code, out, _ = gate(record(*ROWS), record(bad, *ROWS[1:]))
    assert code == 3
    assert "FAIL: v01: 1 incorrect" in out
    assert "hang: no answer" in out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": "NVIDIA B200"}, "device (NVIDIA B200, NVIDIA H200)"),
        ({"environment": replace(ENVIRONMENT, driver="1")}, "driver (1, 580.65)"),
        ({"protocol": replace(PROTOCOL, l2="warm")}, "L2 mode (warm, cold)"),
        ({"complete": False}, "the baseline run was interrupted"),
        ({"results": ()}, "the baseline holds no correct row"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    changes: dict[str, Any], said: str, gate: Callable[..., Any]
) -> None:
    code, out, err = gate(record(*ROWS, **changes), record(*ROWS))
    assert code == 5
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_stale_or_absent_baseline_is_refused(
    gate: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate(record(*ROWS), record(*ROWS))
    after = str(tmp_path / "after.json")
    stale = tmp_path / "stale.json"
    value = json.loads(Path(after).read_text())
    stale.write_text(json.dumps(value | {"schema": "kernelbench.run/0"}))
    for name in (str(stale), str(tmp_path / "absent.json")):
        assert run_cli(["gate", "--baseline", name, "--current", after]) == 5
        captured = capsys.readouterr()
        assert name in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


def test_options_of_the_live_form_are_refused_with_tables(gate: Callable[..., Any]) -> None:
    for more in (["v01"], ["--shape", "A"], ["--best", "HEAD"], ["--update-best"]):
        code, _, err = gate(record(*ROWS), record(*ROWS), *more)
        assert code == 2
        assert "belong to the live form" in err


def test_every_form_of_the_report(
    gate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    code, out, err = gate(
        record(*ROWS), record(*ROWS[:2], row("v02", "B", 37.0), row("v03", "A", 20.0)),
        "--markdown", tmp_path / "g.md", "--junit", tmp_path / "g.xml", "--json", "-",
    )  # fmt: skip
    assert code == 1
    value = json.loads(out)
    assert value["schema"] == "kernelbench.gate/1"
    statuses = {(r["step"], r["shape"]): r["status"] for r in value["report"]["rows"]}
    assert statuses == {("v01", "A"): "ok", ("v02", "A"): "ok", ("v02", "B"): "regression",
                        ("v03", "A"): "new"}  # fmt: skip
    text = (tmp_path / "g.md").read_text()
    assert text.startswith("## kernelbench gate: FAIL: v02")
    assert "| v02 | B |" in text
    assert summary.read_text() == "before\n" + text
    assert "FAIL: v02" in err
    suite = ElementTree.parse(tmp_path / "g.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "1", "0")
    (failed,) = [case for case in suite.iter("testcase") if case.find("failure") is not None]
    assert failed.get("classname") == "kernelbench.gate.v02"
    assert failed.get("name") == "B device"


def test_a_summary_that_cannot_be_written_is_a_warning(
    gate: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary"))
    code, out, err = gate(record(*ROWS), record(*ROWS))
    assert code == 0
    assert "PASS" in out
    assert "warning: cannot add to GITHUB_STEP_SUMMARY" in err


def test_best_ever_is_the_least_of_the_saved_runs(gate: Callable[..., Any], tmp_path: Path) -> None:
    """Creeping: within the margin of the predecessor, not of the best."""
    from kernelbench.records import store

    store.save_run(tmp_path / "r", record(row("v01", "A", 38.0), id="20200101T000000Z-a"), [])
    code, out, _ = gate(record(*ROWS), record(*ROWS))
    assert code == 1
    assert re.search(r"v01 A device\*\*: \+5\.26% against the best of 1 runs", out)


# -- live

CALL = ("--metric", "call", "--shape", "u0", "--sessions", 1, "--reps", 30, "--budget", 5)


@pytest.fixture(scope="module")
def regressed(
    tmp_path_factory: pytest.TempPathFactory, right_source: str, slow_source: str
) -> tuple[Any, Path, Path]:
    """s00 is unchanged, s01 slower, s02 gone, s03 new; the gate's outcome and both projects."""
    folder = tmp_path_factory.mktemp("gate")
    names = ("s00", "s01", "s02")
    before = write_project(folder / "before", dict.fromkeys(names, right_source))
    after = folder / "after"
    shutil.copytree(before, after)
    write_step(after / "tiny", "s01", slow_source)
    shutil.rmtree(after / "tiny" / "s02")
    write_step(after / "tiny", "s03", right_source)
    outcome = launch(
        "gate", "--against", before, *CALL, "--json", folder / "g.json", root=after, env=COUNTED
    )
    return outcome, before, folder / "g.json"


def test_a_slower_step_is_measured_again_before_it_fails(regressed: tuple[Any, Path, Path]) -> None:
    outcome, _, path = regressed
    assert outcome.code == 1, outcome.out + outcome.err
    rows = {r["step"]: r for r in json.loads(path.read_text())["report"]["rows"]}
    assert rows["s01"]["status"] == "regression"
    assert "against the predecessor, confirmed" in rows["s01"]["reason"]
    assert rows["s01"]["current"] - rows["s01"]["base"] == pytest.approx(1000, abs=50)
    assert re.search(
        r"s01 u0 against predecessor: \+[\d.]+%, measured again \+[\d.]+%: confirmed", outcome.out
    )


def test_the_other_steps(regressed: tuple[Any, Path, Path]) -> None:
    outcome, _, path = regressed
    rows = {r["step"]: r for r in json.loads(path.read_text())["report"]["rows"]}
    assert rows["s00"]["status"] == "ok"
    assert rows["s00"]["reason"] == "identical code, not timed"
    assert rows["s00"]["current"] is None
    assert (rows["s02"]["status"], rows["s03"]["status"]) == ("missing", "new")
    assert "gone now" in rows["s02"]["reason"]
    assert "FAIL: s01, s02" in outcome.out


def test_identical_code_passes_without_being_timed(
    regressed: tuple[Any, Path, Path], bench: Callable[..., Any]
) -> None:
    _, before, _ = regressed
    outcome = bench("gate", "--against", before, *CALL, root=before)
    assert outcome.code == 0, outcome.err
    assert "PASS: 3 unchanged" in outcome.out
    assert "no time was compared" in outcome.out


def test_against_a_commit(tmp_path: Path, bench: Callable[..., Any], right_source: str) -> None:
    root = write_project(tmp_path / "p", {"s00": right_source})

    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@example.org", *arguments],
            cwd=root, check=True, capture_output=True,
        )  # fmt: skip

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    write_step(root / "tiny", "s00", right_source.replace("outputs = []", "raise ValueError"))
    unknown = bench("gate", "--against", "v9", *CALL, root=root)
    assert unknown.code == 5
    assert "'v9' is neither a folder nor a commit" in unknown.error
    outcome = bench("gate", "--against", "HEAD", *CALL, root=root)
    assert outcome.code == 3
    assert "FAIL: s00: 1 incorrect" in outcome.out
    assert "raised ValueError" in outcome.out


def test_without_steps_those_that_can_be_compared_are(
    tmp_path: Path, bench: Callable[..., Any]
) -> None:
    """The README's own command: --shape names a shape that only one of the lineages has."""
    (tmp_path / "results").mkdir()
    against = ("gate", "--against", ROOT, "--results", tmp_path / "results", "--shape", "D")
    outcome = bench(*against)
    assert outcome.code == 5
    assert "device time needs a GPU" in outcome.error
    outcome = bench(*against, "--metric", "call")
    assert outcome.code == 0, outcome.err
    assert "no call times here, left out: v01, v02" in outcome.err
    # Of group_gemm and group_gemm_hopper the steps in Python: v00 and h00.
    assert "PASS: 2 unchanged; no time was compared" in outcome.out


@pytest.mark.parametrize(
    ("kept", "delta", "dirty", "said"),
    [
        (False, 0.0, False, ""),
        (True, 0.004, False, "no faster"),
        (True, -0.02, False, ""),
        (False, None, False, "nothing was timed"),
        (True, -0.02, True, "uncommitted changes"),
    ],
)
def test_the_best_is_replaced_only_by_what_is_faster(
    kept: bool, delta: float | None, dirty: bool, said: str,
    tmp_path: Path, right_source: str,
) -> None:  # fmt: skip
    """Else each pass would become the best, and losses within the margin would add up."""
    from kernelbench.compare.gate_report import GateReport, GateRow
    from kernelbench.compare.gating import keep_best
    from kernelbench.project.project_file import project_at

    root = write_project(tmp_path / "p", {"s00": right_source})
    for words in ("init -q", "add .", "-c user.name=n -c user.email=e@example.org commit -qm c"):
        subprocess.run(["git", *words.split()], cwd=root, check=True, capture_output=True)
    if dirty:
        write_step(root / "tiny", "s01", right_source)
    best = tmp_path / "r" / "d" / "best.json"
    if kept:
        best.parent.mkdir(parents=True)
        best.write_text("{}")
    row = GateRow(
        "s00", "u0", "", "device", "ok", base=1.0, current=1.0, best=1.0, delta=0.0,
        delta_best=delta, margin=0.005, margin_best=0.005,
    )  # fmt: skip
    if delta is None:
        row = replace(row, delta=None)
    report = GateReport("live", "d", (row,), "")
    why_not = keep_best(project_at(root), tmp_path / "r", report)
    assert (best.is_file() and "commit" in best.read_text()) is not bool(said)
    assert said in why_not
    assert bool(why_not) is bool(said)


def test_an_unknown_revision_is_said_before_what_the_machine_lacks() -> None:
    done = launch("gate", "--against", "no-such-revision", "v22")
    assert done.code == 5
    assert "'no-such-revision' is neither a folder nor a commit" in done.error
