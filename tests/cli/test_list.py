"""``kernelbench list``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernelbench.base import console, schema
from kernelbench.cli import invoke as run
from kernelbench.lineages.listing import ListRecord
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(ROOT))


def test_json_keeps_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--json", "-"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["schema"] == "kernelbench.list/1"
    names = [step.name for step in load_lineages(find_project()).steps]
    assert [step["name"] for step in value["steps"]] == names
    fields = {"name", "lineage", "parent", "kind", "arch", "status", "reported"}
    assert all(set(step) == fields for step in value["steps"])
    v14 = next(step for step in value["steps"] if step["name"] == "v14")
    assert v14["parent"] == "v12"
    assert v14["reported"]["values"] == {"A": 43.6, "B": 33.5, "C": 14.3, "D": 10.5}
    assert v14["reported"]["device"] == "NVIDIA B200"
    schema.decode(ListRecord, value)


def test_the_table_labels_figures_as_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--lineage", "moe"]) == 0
    text = capsys.readouterr().out
    assert "reported on NVIDIA H800 PCIe" in text
    assert "not measured here" in text
    (row,) = [line for line in text.splitlines() if line.startswith("m05 ")]
    assert "sm_90a" in row
    assert row.rstrip().endswith("13.18")
    assert "v00" not in text


def test_the_main_lines_unless_all_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = {}
    monkeypatch.chdir(ROOT)
    for arguments in ((), ("--all",), ("--status", "failed"), ("kernels/failed",)):
        assert run(["list", *arguments]) == 0
        shown[arguments] = capsys.readouterr().out
    assert "nofence " not in shown[()]
    assert re.search(r"^beside the main lines: \d+ variants and exp", shown[()], re.MULTILINE)
    for arguments in (("--all",), ("--status", "failed"), ("kernels/failed",)):
        assert "nofence " in shown[arguments]
        assert "beside the main lines" not in shown[arguments]


def test_a_narrow_terminal_keeps_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.out, "width", 80)
    assert run(["list", "v07..v22"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines()[:20])) <= 80
    assert re.search(r"^v14 .* 43\.6 +33\.5 +14\.3 +10\.5 *$", text, re.MULTILINE)
    assert re.search(r"^all: .*arch sm_100a", text, re.MULTILINE)


def test_status_filters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--status", "works", "--json", "-"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert {"v00", "mref"} <= {step["name"] for step in steps}
    assert {step["status"] for step in steps} == {"works"}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["v22..v23", "v20"], ["v20", "v22", "v23"]),
        (["moe"], ["mref", *(f"m{i:02}" for i in range(25))]),
        (["v01", "m01", "--lineage", "moe"], ["m01"]),
        (["nofence", "v16", "--status", "failed"], ["nofence"]),
        (["v01", "--status", "failed"], []),
    ],
)
def test_names(arguments: list[str], names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", *arguments, "--json", "-"]) == 0
    record = schema.decode(ListRecord, json.loads(capsys.readouterr().out))
    assert [step.name for step in record.steps] == names


def test_a_folder_of_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run(["list", "kernels/failed", "--json", "-"]) == 0
    listed = {step["name"] for step in json.loads(capsys.readouterr().out)["steps"]}
    assert listed == {file.parent.name for file in ROOT.glob("kernels/failed/*/step.toml")}


def test_json_to_a_file_leaves_the_table_on_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", "--json", str(tmp_path / "list.json")]) == 0
    assert capsys.readouterr().out.startswith("group_gemm")
    assert json.loads((tmp_path / "list.json").read_text())["schema"] == "kernelbench.list/1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lineage", "mow"], "unknown lineage 'mow'; did you mean 'moe'?"),
        (["v0O"], "unknown step 'v0O'; did you mean 'v"),
        ([str(ROOT / "tests" / "submissions" / "right.py")], "right is of no lineage here: "),
        (["--status", "done"], "'done' is not one of 'planned', 'works', 'failed', 'fixed'"),
        (["--json", "/nowhere/list.json"], "cannot write /nowhere/list.json"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["list", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_a_malformed_step_is_one_line_and_exit_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own" / "s1").mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    (tmp_path / "own" / "lineage.toml").write_text(
        'name = "own"\ntitle = "t"\nproblem = "p.py:P"\n'
    )
    (tmp_path / "own" / "s1" / "step.toml").write_text("name = s1\n")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    assert run(["list"]) == 2
    captured = capsys.readouterr()
    assert f"{tmp_path / 'own' / 's1' / 'step.toml'}:1: not valid TOML" in captured.err
    assert captured.err.count("\n") == 1


def test_listing_imports_little() -> None:
    """Neither torch nor what takes a tenth of the command's own time."""
    code = (
        "import sys; from kernelbench.cli import invoke; invoke(['list']); "
        "heavy = {'torch', 'numpy', 'scipy', 'yaml', 'importlib.metadata', 'hashlib', 'tempfile'}; "
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()
