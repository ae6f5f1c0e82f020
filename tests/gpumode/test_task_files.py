"""Reading a task folder, what is refused and how, scores, and a project made of a task."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import launch

from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.problems.gpumode.judge import Guard, understood
from kernelbench.problems.gpumode.on_cpu import redirected
from kernelbench.problems.task_folder import ranked, read_task, task_context, task_project

TASKS = Path(__file__).parent / "tasks"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the ``vectoradd`` task with the ``utils.py`` beside it."""
    shutil.copytree(TASKS / "vectoradd", tmp_path / "vectoradd")
    shutil.copy(TASKS / "utils.py", tmp_path)
    return tmp_path / "vectoradd"


def test_what_a_task_says() -> None:
    task = read_task(TASKS / "vectoradd")
    assert [shape.name for shape in task.shapes] == ["test0", "test1", "bench0", "bench1"]
    assert task.tests[0].arguments() == {"size": 127, "seed": 4242}
    assert (task.ranking_by, task.test_timeout_s, task.seeded) == ("geom", 180.0, True)
    assert dict(task.modules)["utils"] == TASKS / "utils.py"
    assert set(dict(task.modules)) == {"task", "utils", "reference"}
    assert read_task(TASKS / "group_gemm").tests[0].arguments()["m"] == [16, 24]
    assert read_task(TASKS / "quantize").notes == ("task.yml: not used here: milestones",)
    assert read_task(TASKS / "gemm_fp16").gpus == ("B200",)
    assert not read_task(TASKS / "no_seed").seeded


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    """Changes a file of the task."""

    def apply(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return apply


YML = "task.yml"
#: By what is wrong: how, what is said, and the exit code.
BAD: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "no task.yml": (lambda f: (f / YML).unlink(), "vectoradd: has no task.yml", 2),
    "truncated": (
        replaced(YML, '{"size": 512, "seed": 4052}', '{"size": 512, "se'),
        "task.yml:32: not valid YAML",
        2,
    ),
    "not a mapping": (lambda f: (f / YML).write_text("- 1\n"), "task.yml:1: expected the", 2),
    "no tests": (
        lambda f: (f / YML).write_text('lang: "py"\n'),
        "field 'tests': neither tests nor benchmarks are given",
        2,
    ),
    "other language": (replaced(YML, 'lang: "py"', 'lang: "cu"'), "task.yml:10: field 'lang'", 2),
    "ranking": (replaced(YML, '"geom"', '"best"'), "expected one of last, mean, geom", 2),
    "timeout": (replaced(YML, "test_timeout: 180", "test_timeout: soon"), "number of seconds", 2),
    "test is no mapping": (replaced(YML, '{"size": 64, "seed": 5236}', "64"), "entry 1:", 2),
    "missing file": (
        replaced(YML, "../utils.py", "../../utils.py"),
        "field 'files': entry 2: utils.py: no file ../../utils.py",
        2,
    ),
    "no reference": (lambda f: (f / "reference.py").unlink(), "reference.py: no file", 2),
    "not Python": (replaced("reference.py", "def ref_kernel(", "def ("), "reference.py:6: not", 2),
    "no generator": (
        replaced("reference.py", "def generate_input(", "def make_input("),
        "reference.py: defines no generate_input",
        2,
    ),
    "no check": (
        replaced("reference.py", "check_implementation =", "check ="),
        "reference.py: defines no check_implementation",
        2,
    ),
    "argument missing": (
        replaced("reference.py", "size: int, seed: int", "size: int, seed: int, rank: int"),
        "reference.py:12: generate_input takes 'rank', which test0 (size=127 seed=4242)",
        2,
    ),
    "argument too many": (
        replaced("reference.py", "size: int, seed: int", "seed: int"),
        "generate_input takes no 'size'",
        2,
    ),
    "imports what is missing": (
        replaced("reference.py", "import torch\n", "import torch\nimport not_here_at_all\n"),
        "reference.py:2: imports 'not_here_at_all', which is not installed",
        5,
    ),
    "one call for each GPU": (
        replaced("reference.py", "size: int, seed: int", "size: int, seed: int, world_size: int"),
        "reference.py:12: a task for several GPUs: generate_input takes 'world_size'",
        5,
    ),
    "several GPUs": (
        replaced(YML, '{"size": 127,', '{"world_size": 8, "size": 127,'),
        "a task for 8 GPUs",
        5,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_one_line(name: str, folder: Path) -> None:
    spoil, expected, code = BAD[name]
    spoil(folder)
    with pytest.raises(KernelbenchError) as caught:
        task_context(folder)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == code


@pytest.mark.parametrize("listed", ["a folder of tasks", "a list of tasks", "anything"])
def test_several_tasks_are_named(listed: str, folder: Path) -> None:
    group = folder.parent
    if listed == "a folder of tasks":
        expected = f"{group}: has no task.yml; --task takes the folder of one task: vectoradd"
    else:
        group = group / "group.yaml"
        entries = "problems:\n  - {directory: group/vectoradd, name: first}\n  - 3\n"
        group.write_text(entries if listed == "a list of tasks" else "- 1\n")
        tasks = "one task: group/vectoradd" if listed == "a list of tasks" else "a GPU MODE task"
        expected = f"{group}: is not a task.yml; --task takes the folder of {tasks}"
    with pytest.raises(UsageError) as caught:
        task_context(group)
    assert str(caught.value) == expected


def test_tasks_of_one_name_in_two_groups_have_results_of_their_own(tmp_path: Path) -> None:
    for group in ("one", "other"):
        shutil.copytree(TASKS / "vectoradd", tmp_path / group / "vectoradd")
        shutil.copy(TASKS / "utils.py", tmp_path / group)
    one, other = (
        task_context(tmp_path / g / "vectoradd").project.results for g in ("one", "other")
    )
    assert one.parts[-3:] == ("gpu-mode", "one", "vectoradd")
    assert one != other


def test_the_command_says_it(folder: Path) -> None:
    (folder / "reference.py").write_text("import torch, nothing_like_it\n")
    done = launch("run", "reference", "--task", folder)
    assert done.code == 2
    assert "reference.py: defines no generate_input" in done.error
    assert "no such folder" in launch("run", "reference", "--task", folder / "x").error


def test_run_checks_tests_and_times_benchmarks(folder: Path, tmp_path: Path) -> None:
    done = launch(
        "run", folder / "right.py", "--task", folder, "--budget", "0.2", "--results",
        tmp_path / "results", "--json", tmp_path / "record.json",
    )  # fmt: skip
    assert done.code == 0, done.out + done.err
    record = json.loads((tmp_path / "record.json").read_text())
    rows = [(row["shape"], row["inputs"], row["status"]) for row in record["results"]]
    shapes = ("test0", "test1", "bench0", "bench1")
    assert rows == [(s, c, "pass") for s in shapes for c in ("fresh-seed", "task-seed")]
    timed = {row["shape"] for row in record["results"] if row["call_us"]}
    assert timed == {"bench0", "bench1"}
    means = {r["shape"]: r["call_us"]["mean"] for r in record["results"] if r["call_us"]}
    score = (means["bench0"] * means["bench1"]) ** 0.5
    assert f"score of right: {score:.2f} µs, geometric mean" in done.out
    shown = launch("show", "--task", folder, "--results", tmp_path / "results")
    assert all(shape in shown.out for shape in ("test1", "bench0"))
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        path.name for path in (TASKS / "vectoradd").iterdir() if path.name != "__pycache__"
    )


def test_ab_compares_two_submissions_of_a_task(folder: Path, tmp_path: Path) -> None:
    done = launch(
        "ab", folder / "submission.py", folder / "right.py", "--task", folder, "--metric", "call",
        "--shape", "bench0", "--sessions", "1", "--reps", "40", "--budget", "0.2",
        "--results", tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "ab submission→right" in done.out
    assert "bench0" in done.out


def test_list_shows_a_task() -> None:
    done = launch("list", "--task", TASKS / "quantize")
    assert "ranking_by geom" in done.out
    assert "tokens=8 dim=64 seed=5" in done.out
    assert "steps: reference, cheat, right, wrong" in done.out


def test_a_project_of_a_task(folder: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    made = launch("init", project, "--task", folder)
    assert made.code == 0, made.err
    assert "kernelbench run vectoradd" in made.out
    (tmp_path / "utils.py").unlink()
    shutil.rmtree(folder)
    listed = launch("list", "--json", "-", root=project)
    assert [step["name"] for step in json.loads(listed.out)["steps"]] == ["reference", "first"]
    done = launch("run", "vectoradd", "--shape", "test1", "--check-only", "--no-save", root=project)
    assert done.code == 0, done.out + done.err
    assert "2 passed of 2" in done.out
    with pytest.raises(UsageError, match="is not empty"):
        task_project(TASKS / "relu", project)


def test_a_project_that_cannot_be_written_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KernelbenchError, match="cannot write"):
        task_project(folder, tmp_path / "file" / "project")
    (folder / "reference.py").unlink()
    with pytest.raises(UsageError):
        task_project(folder, tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_every_form_of_a_verdict() -> None:
    right: list[object] = [True, (True, "fine"), "", [], (True, ""), torch.tensor(True), None]
    assert all(understood(each)[0] for each in right)
    wrong: list[object] = [
        False, (False, "no"), "no", ["no", "never"], torch.tensor(False), [False, "no"],
    ]  # fmt: skip
    assert not any(understood(each)[0] for each in wrong)
    assert understood(["a", "b"]) == (False, "a; b")
    assert understood((False, "a\\nb\n c")) == (False, "a; b c")
    for value in (3, 2.5, {"right": True}):
        with pytest.raises(TypeError):
            understood(value)


def test_scores() -> None:
    assert ranked("last", [1.0, 4.0]) == 4.0
    assert ranked("mean", [1.0, 4.0]) == 2.5
    assert ranked("geom", [1.0, 4.0]) == pytest.approx(2.0)


def test_cuda_means_the_cpu_while_redirected() -> None:
    generator = torch.Generator
    with redirected("cpu"):
        drawn = torch.Generator(device="cuda")
        x = torch.randn(3, device="cuda", generator=drawn)
        assert x.cuda().to("cuda:0").to(torch.device("cuda")).device.type == "cpu"
        assert torch.nn.Linear(3, 3).to("cuda").weight.device.type == "cpu"
        assert isinstance(drawn, generator)
    assert torch.Generator is generator


def test_the_guard_puts_back_what_was_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = Guard()
    guard.undo()
    assert guard.replaced == ""
    right = torch.allclose
    monkeypatch.setattr(torch, "allclose", lambda *_: True)
    guard.undo()
    assert guard.replaced == "torch.allclose"
    assert torch.allclose is right
