"""``kernelbench lineage``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment_of, result_row, run_record

from kernelbench.base import json_file, schema
from kernelbench.cli import invoke as run
from kernelbench.lineages.tree import TreeRecord
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import load_lineages

pytestmark = pytest.mark.usefixtures("in_checkout")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with one run of v01 on an H200."""
    folder = tmp_path / "results"
    path = folder / "nvidia-h200" / "runs" / "20300101T000000Z-0.json"
    json_file.write_json(path, run_record(result_row("v01", median=51.25)))
    return folder


def test_the_tree(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lineage", "group_gemm", "--shape", "A", "--results", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("├─ v03") for line in lines)
    (row,) = [line for line in lines if line.startswith("v01 ")]
    assert "217.3" in row
    assert "51.2" in row
    assert "reported on NVIDIA B200" in "\n".join(lines)


def test_json_keeps_the_contract(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lineage", "--json", "-", "--results", str(results)]) == 0
    value = json.loads(capsys.readouterr().out)
    record = schema.decode(TreeRecord, value)
    assert value["schema"] == "kernelbench.lineage/1"
    lineages = load_lineages(find_project())
    assert [tree.lineage for tree in record.lineages] == [each.name for each in lineages.lineages]
    named = {node.step for tree in record.lineages for node in tree.nodes}
    assert named == {step.name for step in lineages.steps}
    (node,) = [n for tree in record.lineages for n in tree.nodes if n.step == "v01"]
    assert [m.time.median for m in node.measured] == [51.25]


def test_markdown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lineage", "moe", "--md", "--results", str(results)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("## moe\n")
    assert "| m05 |" in text


def test_a_plot(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "ladder.svg"
    arguments = ["lineage", "group_gemm", "--shape", "A", "--results", str(results)]
    assert run([*arguments, "--plot", str(file)]) == 0
    assert "51.2" in file.read_text()
    assert "wrote" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mo"], "unknown lineage 'mo'; did you mean 'moe'?"),
        (["--shape", "Q"], "nothing is reported, measured or compared for shape 'Q'"),
        (["--device", "tpu"], "nothing was measured on a device like 'tpu'; known: NVIDIA H200"),
        (["--plot", "x.svg"], "--plot draws one lineage; name it"),
        (["moe", "--plot", "x.gif"], "cannot draw to x.gif; name a file that ends in .png, .svg"),
        (["moe", "--plot", "/nowhere/x.svg"], "cannot write /nowhere/x.svg"),
    ],
)
def test_mistakes_are_one_line(
    results: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["lineage", *arguments, "--results", str(results)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_no_torch_is_imported() -> None:
    code = "import sys; from kernelbench.cli import invoke; invoke(['lineage', '--json', '-'])\n"
    code += "sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=environment_of(ROOT), cwd=ROOT
    )
    assert done.returncode == 0, done.stderr.decode()
