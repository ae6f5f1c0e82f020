"""``kernelbench new``, and the commands that are next."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_project

from kernelbench.cli import invoke as run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right_source: str) -> Path:
    root = write_project(tmp_path / "project", {"one": right_source})
    monkeypatch.setenv("KERNELBENCH_ROOT", str(root))
    monkeypatch.chdir(root)
    monkeypatch.setenv("KERNELBENCH_CACHE", str(tmp_path / "cache"))
    return root


@pytest.mark.parametrize("variant", [False, True])
def test_a_new_step_runs_at_once(
    root: Path, variant: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = ["--variant"] if variant else []
    assert run(["new", "two", "--from", "one", "--title", "Another", *extra]) == 0
    text = capsys.readouterr()
    folder = "tiny/variants/two" if variant else "tiny/two"
    files = ["README.md", "step.toml", *([] if variant else ["submission.py"])]
    assert text.out.splitlines() == [f"{folder}/{name}" for name in files]
    assert "then `kernelbench run two --shape u0`, `kernelbench diff two`" in text.err
    copy = "copy there what you change from tiny/one (submission.py)"
    assert (copy in text.err) is variant
    assert run(["run", "two", "--shape", "u0", "--reps", "2", "--budget", "0.2"]) == 0
    assert "1 passed of 1" in capsys.readouterr().out
    assert run(["diff", "two"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("one → two  Another")
    assert "the sources are the same" in text
    assert run(["lineage", "tiny"]) == 0
    drawn = "└─ two" if variant else "two  "
    assert any(line.startswith(drawn) for line in capsys.readouterr().out.splitlines())


def test_a_name_before_the_parents(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["new", "all", "--from", "one"]) == 0
    error = capsys.readouterr().err
    assert error.startswith("warning: all comes before its parent one in ranges")


SMALL = "  u1: {m: [1, 17, 129], n: 256, k: 512}\n"
SMALL_WITH_MORE_TO_DO = "  u3: {m: [40, 76, 168, 72, 164], n: 512, k: 768}\n"


@pytest.mark.parametrize(
    ("limits", "shape"), [("", " --shape u3"), ("max_groups = 3", " --shape u1"),
                          ("max_groups = 2", "")],
)  # fmt: skip
def test_a_first_run_on_a_small_shape_that_the_step_takes(
    root: Path, limits: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (root / "shapes.yaml").open("a") as file:
        file.write(SMALL + SMALL_WITH_MORE_TO_DO)
    with (root / "tiny" / "one" / "step.toml").open("a") as file:
        file.write(f"[limits]\n{limits}\n")
    assert run(["new", "two", "--from", "one"]) == 0
    assert f"then `kernelbench run two{shape}`," in capsys.readouterr().err


def test_a_broken_shapes_file_costs_no_new_step(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "shapes.yaml").write_text("nonsense: 1\n")
    assert run(["new", "two", "--from", "one"]) == 0
    assert "then `kernelbench run two" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["two"], "Missing option '--from'"),
        (["one", "--from", "one"], "one exists: "),
        (["two", "--from", "on"], "unknown step 'on'; did you mean 'one'?"),
        (["two", "--from", "moer"], "unknown step 'moer'; did you mean 'm"),
        (["two", "--from", "moe"], "'moe' is 26 steps; start from one"),
        (["two", "--from", "one", "--file", "x"], "--file goes with --variant"),
    ],
)
def test_mistakes_are_one_line(
    root: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["new", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "mean 'moe'" not in error, "a lineage"
    assert error.count("\n") == 1
