"""``kernelbench init``: projects that run at once, whole or not at all."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from conftest import ROOT, environment_of, launch

from kernelbench.base.errors import EnvironmentProblem, ExitCode, UsageError
from kernelbench.cli.init import command
from kernelbench.lineages.scaffold import files_of, new_project, template_names
from kernelbench.machine import devices, toolchain

TEMPLATES = template_names()
#: Commands that have to time a Triton step, which takes a GPU.
TIMED = ("ab", "gate")
#: Whether the templates' Triton steps run here, on the emulator.
HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
#: One of them in `make test`.
each_template = pytest.mark.parametrize(
    "template",
    [pytest.param(each, marks=[pytest.mark.long] * (each != "gemm")) for each in TEMPLATES],
)


def blocks_of(readme: str) -> list[str]:
    """The blocks of commands and code."""
    return re.findall(r"^```\w*\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)


def commands_of(readme: str) -> list[list[str]]:
    """The words of every command of a README."""
    block = blocks_of(readme)[0]
    # As a shell does it: inside a word, # begins no comment.
    return [re.split(r"\s#", line)[0].split()[1:] for line in block.splitlines()]


@pytest.mark.parametrize("template", TEMPLATES)
def test_the_workflow_installs_what_its_variable_says(template: str) -> None:
    """No index has the package: another's of that name must not be installed in its place."""
    text = files_of(template)[Path(".github/workflows/kernels.yml")].read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    for job in jobs.values():
        script = next(step["run"] for step in job["steps"] if "run" in step)
        command = ["bash", "-c", f"pip() {{ echo $*; }}; {script}"]
        told = subprocess.run(
            command, env={"KERNELBENCH": "my.whl"}, capture_output=True, text=True
        )
        assert told.stdout == "install my.whl\n"
        unset = subprocess.run(command, env={"KERNELBENCH": ""}, capture_output=True, text=True)
        assert unset.returncode != 0 and unset.stdout == ""
        (line,) = unset.stderr.splitlines()
        assert "KERNELBENCH: set it as the top of kernels.yml says" in line


def test_nothing_is_installed_by_a_name_that_is_on_no_index() -> None:
    texts = [each for each in (ROOT / "kernelbench").rglob("*") if each.suffix in {".py", ".yml"}]
    assert texts and not [each for each in texts if "kernelbench-lineage[" in each.read_text()]


def git(root: Path, *arguments: str) -> None:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
             "GIT_COMMITTER_EMAIL": "a@b"}  # fmt: skip
    subprocess.run(["git", *arguments], cwd=root, check=True, env={**os.environ, **names},
                   capture_output=True)  # fmt: skip


def small(root: Path) -> None:
    """What takes seconds on a CPU stands for the shape that is worth timing."""
    shapes = root / "shapes.yaml"
    shapes.write_text(re.sub(r"\d{4}", "64", re.sub(r"  small:.*\n", "", shapes.read_text())))


def committed(root: Path) -> None:
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        git(root, *arguments)


@each_template
def test_every_command_of_the_readme(template: str, tmp_path: Path) -> None:
    root = tmp_path / "project"
    made = launch("init", root, "--problem", template, root=ROOT)
    assert made.code == 0
    assert {line.strip() for line in made.out.splitlines() if line.startswith("  /")} == {
        str(root / path) for path in files_of(template)
    }
    readme = (root / "README.md").read_text()
    small(root)
    committed(root)
    found = commands_of(readme)
    in_triton = template != "blank"
    assert {words[0] for words in found} == {"list", "doctor", "run", "ab", "new", "gate"} | (
        {"check"} if in_triton else set()
    )
    for words in found:
        lacks = in_triton and (words[0] in TIMED or (words[0] == "check" and not HAS_TRITON))
        done = launch(*words, root=root)
        assert done.code == (ExitCode.ENVIRONMENT if lacks else 0), (words, done.out, done.err)
        if words == ["run", template] and in_triton:
            assert ("s1 large: skipped: not available: " in done.out) == (not HAS_TRITON)
    assert (root / "kernels" / "s2" / "submission.py").is_file()


#: What the pages name beside a README's commands, and how it leaves without a GPU: of the
#: templates' Triton step, and of a Python step.
COMMANDS: dict[str, tuple[int, int]] = {
    "run s0 s1 --check-only --json run.json": (0, 0),
    "check s1 --schedules 2 --sms 1,3": (0 if HAS_TRITON else 5, 2),
    "ab s0 s1 --metric call --sessions 1 --budget 2s --check": (5, 0),
    "ab s0 s1": (5, 5),
    "diff s0 s1": (0, 0),
    "lineage": (0, 0),
    "inspect s1": (0 if HAS_TRITON else 5, 2),
    "lint s1": (2, 2),
    "sanitize s1": (5, 5),
    "profile s1": (5, 5),
    "export s1 -o s1.py --leaderboard mine": (0, 0),
    "show": (0, 0),
    "log": (0, 0),
    "results": (0, 0),
    "roofline --device h200": (0, 0),
    "report -o page.html": (0, 0),
}


@each_template
def test_every_command_of_the_pages(template: str, tmp_path: Path) -> None:
    new_project(tmp_path, template)
    small(tmp_path)
    for line, codes in COMMANDS.items():
        done = launch(*line.split(), root=tmp_path, cwd=tmp_path)
        assert done.code == codes[template == "blank"], (line, done.out, done.err)
        assert done.code in (0, 5) or done.error
    assert (tmp_path / "page.html").is_file()


@pytest.mark.skipif(not HAS_TRITON, reason="no Triton")
@pytest.mark.parametrize("template", [each for each in TEMPLATES if each != "blank"])
def test_the_triton_step_is_clean(template: str, tmp_path: Path) -> None:
    new_project(tmp_path, template)
    found_clean("s1", tmp_path)


def found_clean(step: str, root: Path) -> None:
    """By the command, the function and the plug-in alike, calls in sequence included."""
    small(root)
    options = ("--schedules", "1", "--sms", "2")
    done = launch("check", step, *options, "--json", "-", "--no-save", root=root)
    assert done.code == 0, done.out + done.err
    made = """
import kernelbench, sys
from kernelbench.testing.plugin import KernelTests
for check in (kernelbench.check, KernelTests().assert_clean):
    (row,) = check(sys.argv[1], schedules=1, sms=(2,)).steps[0].rows
    assert row.status == "clean" and len(row.calls) >= 4, row
"""
    asked = subprocess.run([sys.executable, "-c", made, step], env=environment_of(root),
                           capture_output=True, check=False)  # fmt: skip
    assert asked.returncode == 0, asked.stderr.decode()


@pytest.fixture
def cuda_step(tmp_path: Path) -> Path:
    """A project with the CUDA step that a README shows, s2."""
    root = tmp_path / "project"
    new_project(root, "rmsnorm")
    assert launch("new", "s2", "--from", "s1", root=root).code == 0
    _, settings, source = blocks_of((root / "README.md").read_text())
    folder = root / "kernels" / "s2"
    toml = folder / "step.toml"
    toml.write_text(toml.read_text().replace('kind = "triton"\n', settings))
    (folder / "submission.py").unlink()
    (folder / "kernel.cu").write_text(source)
    return root


@needs_nvcc
def test_the_readmes_cuda_step_is_clean(cuda_step: Path) -> None:
    found_clean("s2", cuda_step)


@needs_nvcc
def test_the_readmes_cuda_step_compiles(cuda_step: Path) -> None:
    done = launch("inspect", "s2", root=cuda_step)
    assert done.code == 0, done.err
    assert "rms_norm_rows" in done.out


@pytest.mark.gpu
@pytest.mark.skipif(not devices.gpus() or toolchain.nvcc() is None, reason="no GPU or no nvcc")
def test_the_readmes_cuda_step_is_right(cuda_step: Path) -> None:
    done = launch("run", "s2", "--check-only", "--no-save", root=cuda_step, gpu=True)
    assert "2 passed of 2" in done.out, done.out + done.err


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_problem_is_short(template: str) -> None:
    lines = files_of(template)[Path("kernels/problem.py")].read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 25


@pytest.mark.parametrize("template", TEMPLATES)
def test_what_a_readme_names_is_there(template: str) -> None:
    files = files_of(template)
    named = re.findall(
        r"`((?:kernels|\.github|shapes)[\w./]*)`", files[Path("README.md")].read_text()
    )
    assert len(named) >= 4
    for name in named:
        assert any(path == Path(name) or Path(name) in path.parents for path in files), name
    assert Path(".gitignore") in files


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    with pytest.raises(UsageError, match="kernels exists: nothing is overwritten"):
        new_project(tmp_path, "blank")
    assert [path.name for path in tmp_path.iterdir()] == ["kernels"]


def test_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    new_project(tmp_path, "blank")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {
        "notes.txt", "kernels", "shapes.yaml", "README.md", "pyproject.toml", ".github",
        ".gitignore",
    }  # fmt: skip


@pytest.mark.parametrize(("place", "moved"), [("deep/project", 0), (".", 3)])
def test_whole_or_not_at_all(
    place: str, moved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []
    rename = Path.rename

    def stumble(self: Path, target: Path) -> Path:
        if len(done) == moved:
            raise OSError(28, "No space left on device")
        done.append(target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", stumble)
    with pytest.raises(EnvironmentProblem, match=r"cannot write .*: No space left"):
        new_project(tmp_path / place, "gemm")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_template_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(command, [str(tmp_path), "--problem", "softmax"])
    assert found.exit_code == ExitCode.USAGE
    assert "'blank', 'gemm', 'rmsnorm'" in found.output


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file is a file"):
        new_project(tmp_path / "file", "blank")
