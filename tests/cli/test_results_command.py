"""``kernelbench results``, and what is under version control in this repository's own."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, result_row, run_record

from kernelbench.base import json_file
from kernelbench.cli import invoke as run_cli
from kernelbench.project.project_file import project_at
from kernelbench.records import outcomes, store
from kernelbench.records import run_record as records
from kernelbench.report.readme_tables import updated_results

OLD = ROOT / "tests" / "fixtures" / "run_1.json"


@pytest.fixture(autouse=True)
def _project(in_checkout: Path) -> None:
    """Commands find the lineages of this checkout."""


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run_cli(["results", *(str(argument) for argument in arguments)]) == 0
    return capsys.readouterr().out


def test_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no saved runs" in call(capsys, "--results", tmp_path)
    store.save_run(tmp_path, run_record(result_row()), [])
    assert call(capsys, "--results", tmp_path).split()[3:5] == ["nvidia-h200", "1"]


def test_upgrade_then_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tmp_path / "nvidia-h200" / "runs"
    runs.mkdir(parents=True)
    shutil.copy(OLD, runs / "20261120T154643Z-8d34eb64.json")
    assert "1 record(s) rewritten" in call(capsys, "upgrade", "--results", tmp_path)
    assert [path.name for path in runs.iterdir()] == ["20261120T154643Z-8d34eb64.json.gz"]
    assert "|mref|qwen35|gpu|cold|pass|" in (tmp_path / "nvidia-h200/table.md").read_text()
    assert "every record is of this version" in call(capsys, "--results", tmp_path, "upgrade")


def test_tables_are_made_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store.save_run(tmp_path, run_record(result_row()), [])
    table = path.parent.parent / "table.csv"
    before = table.read_text()
    table.unlink()
    assert "nvidia-h200: table.md" in call(capsys, "tables", "--results", tmp_path)
    assert table.read_text() == before


def test_outcomes_of_named_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = [
        store.save_run(tmp_path, run_record(result_row(step), id=f"r{i}"), [{"t": [1]}])
        for i, step in enumerate(("v00", "v01"))
    ]
    text = call(capsys, "outcomes", saved[0], "--results", tmp_path)
    assert "outcomes.json: 1 outcomes, 1 of them new" in text
    assert {each.step for each in outcomes.read_outcomes(tmp_path).values()} == {"v00"}
    assert "2 outcomes, 1 of them new" in call(capsys, "outcomes", *saved, "--results", tmp_path)
    assert "2 outcomes, 0 of them new" in call(
        capsys, "outcomes", tmp_path / "nvidia-h200", "--results", tmp_path
    )


def test_lineage_says_what_the_outcomes_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_record(result_row("v01", executor="emulator"), id="r1", device="CPU x")
    path = store.save_run(tmp_path, run, [])
    call(capsys, "outcomes", path, "--results", tmp_path)
    shutil.rmtree(path.parent.parent)
    assert run_cli(["lineage", "group_gemm", "--results", str(tmp_path), "--json", "-"]) == 0
    (tree,) = json.loads(capsys.readouterr().out)["lineages"]
    (node,) = [node for node in tree["nodes"] if node["step"] == "v01"]
    assert node["checked"] == [{"executor": "emulator", "right": ["A"], "wrong": []}]


def test_stale_tables_and_outcomes_are_found(tmp_path: Path) -> None:
    """Outside a git checkout every record counts."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["kernels"]\n')
    project = project_at(tmp_path)
    path = store.save_run(project.results, run_record(result_row("v01")), [])
    folder = path.parent.parent

    def stale() -> set[Path]:
        return {file for file, old, new in updated_results(project) if old != new}

    assert stale() == {project.results / "outcomes.json"}
    for file, _, new in updated_results(project):
        file.write_text(new)
    assert stale() == set()
    (folder / "table.md").write_text("v01 is the fastest\n")
    assert stale() == {folder / "table.md"}
    store.rebuild_tables(folder)
    records.write_run(
        path.with_name("y.json.gz"),
        run_record(result_row("v01", status="wrong", reason="off"), id="y"),
    )
    assert stale() == {
        project.results / "outcomes.json", folder / "table.md", folder / "table.csv",
    }  # fmt: skip


class TestCommitted:
    """The results that a visitor gets."""

    @pytest.fixture
    def files(self) -> list[Path]:
        """Every file below results/ that is under version control."""
        answer = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "results"], capture_output=True, text=True
        )
        if answer.returncode != 0 or not answer.stdout:
            pytest.skip("not a git checkout")
        return [ROOT / line for line in answer.stdout.splitlines()]

    def test_a_clone_stays_light(self, files: list[Path]) -> None:
        assert sum(path.stat().st_size for path in files) <= 1_500_000

    def test_no_cpu_and_no_lock(self, files: list[Path]) -> None:
        places = [path.relative_to(ROOT / "results").parts for path in files]
        assert not [place for place in places if place[0].startswith("cpu-")]
        assert not [place for place in places if place[-1].startswith(".")]

    def test_records_are_compact_and_of_this_version(self, files: list[Path]) -> None:
        saved = {*records.list_runs(ROOT / "results")} & {*files}
        assert saved
        for path in saved:
            assert path.name.endswith(records.RUN_SUFFIX), path
            assert path.stat().st_size <= 40_000, path
            assert json_file.read_json(path)["schema"] == records.RUN_SCHEMA, path

    def test_tables_are_small_and_have_one_row_for_a_setting(self, files: list[Path]) -> None:
        tables = [path for path in files if path.name in ("table.md", "table.csv")]
        assert tables
        for path in tables:
            assert path.stat().st_size <= 81_000, path
            if path.suffix == ".csv":
                rows = [tuple(line.split(",")[:4]) for line in path.read_text().splitlines()]
                settings = [(step, shape, l2) for step, shape, _, l2 in rows]
                assert len(settings) == len({*settings})
