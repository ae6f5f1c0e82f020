"""A project of its own made of a task folder: the task as a lineage, its template as a first step.

The task's files are copied side by side, wherever they came from, so that the project stands alone.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.problems.gpumode.static_check import require_sound
from kernelbench.problems.gpumode.task_file import Task, find_task_file, read_task

_PROBLEM = "kernelbench.problems.gpumode.problem:TASK"
_FIRST, _REFERENCE = "first", "reference"
_REFERENCE_STEP = '''"""The task's own reference."""

from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data)
'''


def task_project(task_folder: Path, target: Path) -> str:
    """Write a project for a task into ``target``, which must not exist or be empty.

    It is written beside its place and moved there when it is whole.

    Returns:
        The name of its lineage.

    Raises:
        UsageError: If the task cannot be read, or ``target`` has something in it.
        EnvironmentProblem: If the task cannot run here, or the project cannot be written.
    """
    task = read_task(task_folder)
    require_sound(task)
    target = target.expanduser().resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not empty", "give the name of a new folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as folder:
            whole = Path(folder) / target.name
            name = _write_project(whole, task, find_task_file(Path(task_folder).expanduser()))
            if target.exists():  # perhaps the current folder, which has to stay
                for child in whole.iterdir():
                    child.rename(target / child.name)
            else:
                whole.rename(target)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {target}: {error.strerror or error}", "nothing was half-written"
        ) from error
    return name


def _write_project(root: Path, task: Task, task_file: Path) -> str:
    """Write everything below ``root``; gives the lineage's name."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", task.name).strip("_-") or "task"
    name = name if name[0].isalpha() else f"x{name}"
    inside = root / name / "task"
    inside.mkdir(parents=True)
    for module, path in task.modules:
        shutil.copyfile(path, inside / f"{module}.py")
    (inside / "task.yml").write_text(_side_by_side(task_file, task), encoding="utf-8")
    _text(root / "pyproject.toml", f'[tool.kernelbench]\nlineages = ["{name}"]\n')
    _text(root / ".gitignore", "results/\n__pycache__/\n")
    rows = [
        f"  {shape.name}: {json.dumps(shape.arguments(), default=str)}" for shape in task.shapes
    ]
    _text(root / "shapes.yaml", "\n".join([f"{name}:", *rows]) + "\n")
    _text(
        root / name / "lineage.toml",
        f'name = "{name}"\ntitle = "GPU MODE task {name}"\nproblem = "{_PROBLEM}"\n'
        f'reference = "{_REFERENCE}"\n',
    )
    _step(root / name / _REFERENCE, "", "the task's own ref_kernel", _REFERENCE_STEP)
    _step(root / name / _FIRST, _REFERENCE, "the first kernel", _first(task))
    return name


def _first(task: Task) -> str:
    """The folder's own submission or template; the reference where there is none."""
    for name in ("submission.py", "template.py"):
        file = task.folder / name
        if file.is_file() and "custom_kernel" in file.read_text(encoding="utf-8", errors="replace"):
            return file.read_text(encoding="utf-8", errors="replace")
    return _REFERENCE_STEP


def _side_by_side(task_file: Path, task: Task) -> str:
    """The text of ``task.yml`` with every source beside it; comments stay."""
    text = task_file.read_text(encoding="utf-8")
    for module, path in task.modules:
        names = "|".join(re.escape(name) for name in {f"{module}.py", path.name})
        text = re.sub(
            rf"(source[\"']?\s*:\s*[\"']?)[^\"'\s,}}]*/(?:{names})(?=[\"'\s,}}]|$)",
            rf"\g<1>{module}.py",
            text,
        )
    return text


def _step(folder: Path, parent: str, title: str, source: str) -> None:
    folder.mkdir()
    lines = [f'name = "{folder.name}"', f'title = "{title}"', f'technique = "{title}"']
    lines += ['hypothesis = "none yet"', 'arch = "any"', 'kind = "python"', 'status = "works"']
    if parent:
        lines.insert(1, f'parent = "{parent}"')
    _text(folder / "step.toml", "\n".join(lines) + "\n")
    _text(folder / "submission.py", source)


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
