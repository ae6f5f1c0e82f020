"""``kernelbench export``: what is written, what is refused, what is left alone."""

from __future__ import annotations

import pytest

from kernelbench.base.errors import ExitCode
from kernelbench.cli import invoke as run

TEXT = (
    "#!POPCORN leaderboard board\n#!POPCORN gpu B200\ndef custom_kernel(data):\n    return data\n"
)
STEP = """name = "{name}"
title = "t"
technique = "t"
hypothesis = "h"
arch = "any"
kind = "python"
status = "{status}"
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one lineage with a step that works and one that is planned."""
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["steps"]\n')
    steps = tmp_path / "steps"
    for name, status in (("a00", "works"), ("a01", "planned")):
        (steps / name).mkdir(parents=True)
        (steps / name / "step.toml").write_text(STEP.format(name=name, status=status))
    (steps / "a00" / "submission.py").write_text(TEXT)
    (steps / "lineage.toml").write_text('name = "mine"\ntitle = "t"\nproblem = "p.py:PROBLEM"\n')
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_writes_the_file(project, capsys):
    assert run(["export", "a00", "-o", "out.py"]) == ExitCode.PASS
    assert (project / "out.py").read_text() == TEXT
    assert capsys.readouterr().out == "wrote out.py: a00 for leaderboard board on B200\n"


def test_stdout_holds_the_file_and_nothing_else(project, capsys):
    assert run(["export", "a00", "-o", "-"]) == ExitCode.PASS
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == (TEXT, "")


def test_never_overwrites_unasked(project, capsys):
    (project / "out.py").write_text("precious")
    assert run(["export", "a00", "-o", "out.py"]) == ExitCode.USAGE
    assert (project / "out.py").read_text() == "precious"
    assert capsys.readouterr().err == "kernelbench: out.py exists; give --force to replace it\n"
    assert run(["export", "a00", "-o", "out.py", "--force"]) == ExitCode.PASS
    assert (project / "out.py").read_text() == TEXT


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a01", "-o", "x.py"], "a01 is planned"),
        (["a0", "-o", "x.py"], "did you mean"),
        (["mine", "-o", "x.py"], "2 steps"),
        (["a00", "-o", "steps"], "is a folder"),
        (["a00", "-o", "absent/x.py"], "its folder does not exist"),
        (["a00"], "Missing option"),
    ],
)
def test_refusals_are_one_line(project, capsys, arguments, said):
    assert run(["export", *arguments]) == ExitCode.USAGE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert said in captured.err
    assert not (project / "x.py").exists()


def test_a_compiled_step_is_one_line_away(in_checkout, tmp_path, capsys):
    file = tmp_path / "moe.py"
    assert run(["export", "m10", "-o", str(file)]) == ExitCode.PASS
    assert capsys.readouterr().out == f"wrote {file}: m10, built on import\n"
    assert file.read_text().startswith("# m10: ")
    assert run(["export", "v22", "-o", str(file), "--force", "--gpu", "B300"]) == ExitCode.PASS
    said = "v22, built on import for leaderboard nvfp4_group_gemm on B300\n"
    assert capsys.readouterr().out.endswith(said)
    lines = file.read_text().splitlines()
    assert lines[:2] == ["#!POPCORN leaderboard nvfp4_group_gemm", "#!POPCORN gpu B300"]


def test_a_foreign_file_that_breaks_a_rule(project, capsys):
    (project / "theirs.py").write_text(TEXT + "import numpy\n")
    assert run(["export", "theirs.py", "-o", "x.py"]) == ExitCode.USAGE
    assert "line 5: imports 'numpy'" in capsys.readouterr().err
    assert not (project / "x.py").exists()
