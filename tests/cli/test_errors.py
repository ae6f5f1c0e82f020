"""What a user does wrong: one clear line on stderr, the right exit code, nothing on stdout."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SUBMISSIONS, write_project

from kernelbench.cli import INTERRUPTED
from kernelbench.cli import invoke as run_cli
from kernelbench.machine import devices
from kernelbench.project.context import Context
from kernelbench.worker.launcher import Launcher

needs_no_gpu = pytest.mark.skipif(bool(devices.gpus()), reason="this machine has a GPU")


def refused(
    capsys: pytest.CaptureFixture[str], code: int, *arguments: object, starts: bool = False
) -> str:
    """Run in this process; the one line of its refusal."""
    assert run_cli([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    if not starts:
        assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("kernelbench: ")
    return captured.err.strip()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "v0O"], "unknown step 'v0O'; did you mean 'v"),
        (["run", "v1"], "unknown step 'v1'; did you mean 'v01'?"),
        (["run", "group_gem"], "unknown step 'group_gem'; did you mean 'group_gemm'?"),
        (["run", "zzzzzz"], "unknown step 'zzzzzz'; known: v00, "),
        (["run", "v00", "v99", "--shape", "A"], "unknown step 'v99'; did you mean 'v"),
        (["run", "v03..v01"], "range 'v03..v01': v01 comes before v03; write v01..v03"),
        (["run", "v01..m01"], "v01 is of lineage group_gemm, m01 of moe"),
        (["run", "v00", "--shape", "AA"], "unknown shape 'AA'; did you mean 'A'?"),
        (["run", "mref", "--shape", "qwen36"], "unknown shape 'qwen36'; did you mean 'qwen35"),
        (["run", "v00", "--shape", "qwen35"], "'qwen35' belongs to fused_moe, not to group_gemm"),
        (["run", "v00", "mref", "--shape", "A"], "steps of different problems (fused_moe, group_"),
        (["run", "v00", "mref", "--inputs", "full"], "steps of different problems"),
        (["run", "v00", "--inputs", "ful"], "unknown input class 'ful'; did you mean 'full'?"),
        (["run", "v00", "--executor", "gppu"], "unknown executor 'gppu'; choose from auto, gpu"),
        (["run", "v00", "--shape", "m=8"], "shape 'm=8': "),
        (["run", "v00", "--shape", "m=8:n=128:k=65"], "k must be a multiple of 64, found 65"),
        (["run", "v00", "--shape", "m=8:n=128:k=256:q=1"], "'q'"),
        (["run", "v00", "--shape", "m=8,9:n=128,128,128:k=64"], "n"),
        (["run", "v00", "--shape", "m=-1:n=128:k=64"], "m"),
        (["run", "v00", "--shape", "m=x:n=128:k=64"], "m"),
        (["run", "v00", "--shape", "m=8:m=9:n=128:k=64"], "field 'm' is given twice"),
        (["run", "v00", "--shape", "m=:n=128:k=64"], "'m=' is not FIELD=VALUE"),
        (["run", "v00", "--json", "/no/such/folder/x.json"], "cannot write /no/such/folder/x.json"),
        (["run", "./nowhere.py"], "nowhere.py: no such file or folder"),
        (["run", "."], "not a step: no step.toml there"),
        (["run", "pyproject.toml/"], "pyproject.toml: "),
        (["run"], "Missing argument"),
        (["run", "v00", "--reps", "0"], "0 is not in the range"),
        (["run", "v00", "--timeout", "0"], "0"),
        (["run", "v00", "--device", "-1"], "-1 is not in the range"),
        (["run", "v00", "--frobnicate"], "No such option"),
        (["rum", "v00"], "unknown command 'rum'; did you mean 'run'?"),
        (["ab", "v00"], "Missing argument"),
        (["ab", "v00", "v0O"], "unknown step 'v0O'; did you mean 'v"),
        (["ab", "v00", "mref"], "different problems"),
        (["ab", "v00", "mref", "--shape", "A"], "different problems"),
        (["ab", "group_gemm", "v00"], "'group_gemm' is "),
        (["ab", "v00", "v00", "--margin", "half"], "expected a percentage such as 0.5%"),
        (["ab", "v00", "v00", "--margin", "0.5"], "0.5 is 50%: write 0.5% or 50%"),
        (["list", "--status", "old"], "'failed', 'fixed'; see `kernelbench list --help`"),
        (["run", "v00.."], "range 'v00..' has one end only"),
        (["ab", "v00", "v00", "--alpha", "0.9"], "0.9"),
        (["gate"], "gate takes --baseline FILE --current FILE, or --against REF"),
        (["gate", "--baseline", "x.json"], "--baseline and --current go together"),
        (["gate", "--against", "x", "--baseline", "a", "--current", "b"], "or --against REF"),
        (["calibrate", "v00"], "calibrate takes one shape; give --shape once: A, B, C, D"),
        (["calibrate", "v01..v02", "--shape", "u0"], "'v01..v02' is 2 steps; calibrate takes one"),
        (["calibrate", "v00", "--shape", "u0", "--aa", "3"], "3 is not in the range"),
        (["show", "v00", "--results", "/no/such/folder"], "no saved run matches"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)  # fmt: skip
def test_usage(
    arguments: list[str], line: str, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, 2, *arguments)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "p01"], "p01 is planned: no kernel yet; `kernelbench list` shows"),
        (["run", "p01..p02"], "p01, p02 are planned: no kernel yet"),
        (["ab", "p00", "p01"], "p01 is planned"),
        (["check", "p01"], "p01: no kernel yet"),
    ],
)
def test_planned_steps(
    arguments: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["steps"]\n')
    (tmp_path / "shapes.yaml").write_text((ROOT / "shapes.yaml").read_text())
    steps = tmp_path / "steps"
    for name, kind, status in (
        ("p00", "python", "works"), ("p01", "step", "planned"), ("p02", "step", "planned"),
    ):  # fmt: skip
        (steps / name).mkdir(parents=True)
        (steps / name / "step.toml").write_text(
            f'name = "{name}"\nkind = "{kind}"\ntitle = "t"\ntechnique = "t"\n'
            f'hypothesis = "h"\narch = "{"any" if kind == "python" else "sm_100a"}"\n'
            f'status = "{status}"\n'
        )
    (steps / "p00" / "submission.py").write_text("def custom_kernel(data):\n    return []\n")
    problem = "kernelbench.problems.group_gemm:PROBLEM"
    (steps / "lineage.toml").write_text(f'name = "mine"\ntitle = "t"\nproblem = "{problem}"\n')
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert line in refused(capsys, 2, *arguments)


@needs_no_gpu
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["run", "v00", "--executor", "gpu"], "executor 'gpu' cannot run v00: "),
        (["run", "v00", "--executor", "emulator"], "executor 'emulator' cannot run v00: "),
        (["calibrate", "v00", "--shape", "u0"], "device times and planted slowdowns need a GPU"),
        (["calibrate", "v00", "--shape", "u0", "--metric", "call"], "--planted 0"),
        (["gate", "--against", ".", "v00"], "device time needs a GPU; --metric call"),
    ],
)
def test_no_device(
    arguments: list[str], line: str, in_checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert line in refused(capsys, 5, *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "v00"],
        ["ab", "v00", SUBMISSIONS / "right.py", "--metric", "call"],
        ["calibrate", "v00", "--metric", "call", "--planted", "0"],
        ["gate", "v00", "--against", ".", "--update-best"],
        ["roofline", "--measure"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_results_that_cannot_be_written_are_refused_before_anything_runs(
    arguments: list[object],
    in_checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Launcher, "run", lambda *_: pytest.fail("a worker was started"))
    (tmp_path / "file").write_text("")
    results = tmp_path / "file" / "results"
    line = refused(capsys, 5, *arguments, "--shape", "u0", "--results", results)
    assert line.startswith(
        f"kernelbench: cannot write results to {results}: {tmp_path / 'file'} is not a writable "
        "folder; choose another with --results"
    )


def test_results_are_not_asked_for_where_none_are_saved(
    in_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Launcher, "run", started)
    (tmp_path / "file").write_text("")
    unsaved = ["--no-save", "--results", str(tmp_path / "file" / "results")]
    assert run_cli(["run", "v00", "--shape", "u0", *unsaved]) == INTERRUPTED


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_json_to_a_folder_without_permission(
    in_checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    line = refused(capsys, 2, "run", "v00", "--json", tmp_path / "x.json")
    assert f"{tmp_path} is not a writable folder" in line


@pytest.mark.parametrize(
    ("text", "place", "expected"),
    [
        ("group_gemm:\n  u0: {m: 1, n: 128, k: 256\n  u1: {m: 2}\n", ":3", "not valid YAML"),
        ("group_gemm:\n  u0: {m: 1, n: 128}\n", ":2", "k"),
        ("group_gemm:\n  u0: {m: 1, n: 128, k: 256}\n  u1:\n    m: 1\n    n: 12\n    k: 256\n",
         ":5", "n must be a multiple of 8, found 12"),
        ("group_gemm:\n  u0: {m: 1, n: 128, k: 256}\n  u0: {m: 2, n: 128, k: 256}\n", ":3",
         "already on line 2"),
        ("grop_gemm:\n  u0: {m: 1, n: 128, k: 256}\n", ":1", "did you mean 'group_gemm'?"),
        ("group_gemm: [1, 2]\n", ":1", "expected shapes of group_gemm"),
        ("", ":1", "the file is empty"),
        ("\tgroup_gemm:\n", ":1", "not valid YAML"),
    ],
)  # fmt: skip
def test_a_broken_shapes_file(
    text: str,
    place: str,
    expected: str,
    tmp_path: Path,
    right_source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = write_project(tmp_path / "p", {"s00": right_source})
    (root / "shapes.yaml").write_text(text)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    line = refused(capsys, 2, "run", "s00", "--shape", "u0")
    assert re.search(re.escape(f"{root / 'shapes.yaml'}{place}") + r"\b", line), line
    assert expected in line


def test_all_is_every_shape_of_a_file_without_the_benchmark_shapes(
    tmp_path: Path, right_source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", {"s00": right_source})
    (root / "shapes.yaml").write_text(
        "group_gemm:\n  mine: {m: 8, n: 128, k: 256}\n  other: {m: 9, n: 128, k: 256}\n"
    )
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    context = Context.find()
    problem = context.problems["group_gemm"]
    for specs in ([], ["all"], ["every"]):
        assert [s.name for s in context.shapes_for(problem, specs)] == ["mine", "other"]
    (root / "shapes.yaml").write_text(
        "group_gemm:\n  D: {m: 8, n: 128, k: 256}\n  e: {m: 9, n: 8, k: 64}\n"
    )
    assert [s.name for s in Context.find().shapes_for(problem, ["all"])] == ["D"]


def project_with_a_problem(root: Path, source: str) -> Path:
    """A project with a problem that does not ship, and a step."""
    write_project(root, {"s00": source})
    file = root / "tiny" / "lineage.toml"
    file.write_text(file.read_text().replace("kernelbench.problems.group_gemm:", "problem.py:"))
    (root / "tiny" / "problem.py").write_text(
        "from kernelbench.problems.group_gemm.problem import GroupGemm\n\n\n"
        "class Own(GroupGemm):\n    name = 'own'\n\n\nPROBLEM = Own()\n"
    )
    return root


def test_a_shapes_file_without_shapes_of_the_problem(
    tmp_path: Path,
    right_source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project_with_a_problem(tmp_path / "p", right_source)
    (root / "shapes.yaml").write_text("own: {}\n")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    assert "has no shapes of own" in refused(capsys, 2, "run", "s00")


def test_an_absent_shapes_file(
    tmp_path: Path,
    right_source: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = project_with_a_problem(tmp_path / "p", right_source)
    (root / "shapes.yaml").unlink()
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    line = refused(capsys, 2, "run", "s00", "--shape", "u0")
    assert f"{root / 'shapes.yaml'}: cannot be read" in line


def test_no_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    assert "no pyproject.toml with a [tool.kernelbench]" in refused(capsys, 2, "run", "v00")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def custom_kernel(data)\n    return 1\n", "mine.py:1: not valid Python"),
        ("def kernel(data):\n    return []\n", "mine.py: defines no custom_kernel"),
        ("", "mine.py: defines no custom_kernel"),
        ("custom_kernel = lambda data: \0", "not valid Python"),
    ],
)
def test_a_file_that_is_no_submission(
    source: str,
    expected: str,
    in_checkout: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "mine.py").write_text(source)
    assert expected in refused(capsys, 2, "run", tmp_path / "mine.py", "--shape", "u0")


def test_a_process_that_cannot_start_workers(bench: Callable[..., Any], tmp_path: Path) -> None:
    """An interpreter in which torch cannot be imported: the reason is given, not a traceback."""
    broken = tmp_path / "site" / "torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('torch is broken here')\n")
    outcome = bench(
        "run", "v00", "--shape", "u0", "--no-save",
        env={"PYTHONPATH": f"{broken.parent}{os.pathsep}{ROOT}"},
    )  # fmt: skip
    assert outcome.code == 5
    assert "torch is broken here" in outcome.error
    assert "doctor" in outcome.error
