"""A project of its own made of a task folder: the task as a lineage, its template as a first step.

The task's files are copied side by side, wherever they came from, so that the project stands alone.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from kernelbench.base.errors import UsageError
from kernelbench.base.files import write_folder
from kernelbench.base.toml_file import toml_table
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
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", task.name).strip("_-") or "task"
    name = name if name[0].isalpha() else f"x{name}"
    task_file = find_task_file(Path(task_folder).expanduser())
    rows = [
        f"  {shape.name}: {json.dumps(shape.arguments(), default=str)}" for shape in task.shapes
    ]
    lineage = {"name": name, "title": f"GPU MODE task {name}", "problem": _PROBLEM}
    files: dict[str, str | Path] = {
        "pyproject.toml": f'[tool.kernelbench]\nlineages = ["{name}"]\n',
        ".gitignore": "results/\n__pycache__/\n",
        "shapes.yaml": "\n".join([f"{name}:", *rows]) + "\n",
        f"{name}/task/task.yml": _side_by_side(task_file, task),
        f"{name}/lineage.toml": toml_table({**lineage, "reference": _REFERENCE}),
        **{f"{name}/task/{module}.py": path for module, path in task.modules},
    }
    for step, parent, title, source in (
        (_REFERENCE, {}, "the task's own ref_kernel", _REFERENCE_STEP),
        (_FIRST, {"parent": _REFERENCE}, "the first kernel", _first(task)),
    ):
        files[f"{name}/{step}/submission.py"] = source
        files[f"{name}/{step}/step.toml"] = toml_table(
            {
                "name": step, **parent, "title": title, "technique": title,
                "hypothesis": "none yet", "arch": "any", "kind": "python", "status": "works",
            }
        )  # fmt: skip
    write_folder(target, files)
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
