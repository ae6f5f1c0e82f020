"""``kernelbench sweep`` as a user calls it; real commands of a small project."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SUBMISSIONS, Outcome, read_document, write_project

from kernelbench.base.errors import ExitCode
from kernelbench.cli import invoke
from kernelbench.records import run_record

Bench = Callable[..., Outcome]
CAMPAIGN = """name: small
campaign:
  - run: [t0, t1]
    shapes: [u0]
    check-only: true
    inputs: gpu-mode
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    right = (SUBMISSIONS / "right.py").read_text()
    wrong = right.replace("c[:, :, 0] = product", "c[:, :, 0] = 2 * product")
    root = write_project(tmp_path_factory.mktemp("sweep") / "p", {"t0": right, "t1": wrong})
    (root / "small.yaml").write_text(CAMPAIGN)
    return root


def test_a_campaign_is_run_recorded_and_not_run_again(project: Path, bench: Bench) -> None:
    dry = bench("sweep", project / "small.yaml", "--dry-run", root=project)
    assert (dry.code, "2 pieces, 0 recorded already, 2 to do" in dry.out) == (0, True)
    assert not (project / "results").exists(), "a dry run writes nothing"
    first = bench("sweep", project / "small.yaml", "--workers", "0", root=project)
    assert first.code == ExitCode.INCORRECT, first.err
    assert "not right: kernelbench run t1 --shape u0 --check-only --inputs gpu-mode" in first.out
    records = [run_record.read_run(path) for path in project.glob("results/*/runs/*.json.gz")]
    assert sorted(each.results[0].status for each in records) == ["pass", "wrong"]
    assert {each.results[0].step for each in records} == {"t0", "t1"}
    again = bench("sweep", project / "small.yaml", "--workers", "0", "--json", "-", root=project)
    assert again.code == ExitCode.INCORRECT
    report = read_document(again.out)
    assert report["schema"] == "kernelbench.sweep/1"
    assert (report["pieces"], report["recorded"], report["done"]) == (2, 2, 0)
    assert report["complete"]
    assert len(list(project.glob("results/*/runs/*.json.gz"))) == 2
    dry = bench("sweep", project / "small.yaml", "--dry-run", "--json", "-", root=project)
    assert json.loads(dry.out)["estimate_s"] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["none.yaml"], ExitCode.USAGE, "cannot be read"),
        (["bad.yaml"], ExitCode.USAGE, "bad.yaml:3: run has no option 'rep'"),
        (["small.yaml", "--workers", "2", "--scheduler", "tcp://h:1"], ExitCode.USAGE, "--workers"),
        (["small.yaml", "--workers", "1"], ExitCode.ENVIRONMENT, "pip install"),
    ],
)
def test_errors_are_one_line(
    project: Path,
    arguments: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (project / "bad.yaml").write_text("name: a\ncampaign:\n  - {run: t0, rep: 3}\n")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(project))
    there = importlib.util.find_spec

    def without_dask(name: str, *rest: Any) -> Any:
        return None if name == "distributed" else there(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", without_dask)
    words = [str(project / word) if word.endswith(".yaml") else word for word in arguments]
    assert invoke(["sweep", *words, "--results", str(project / "others")]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
