"""New projects that run at once: copies of the templates that ship with kernelbench.

A template is a folder of ``kernelbench/lineages/templates``, laid over ``common``; ``dot_`` at the
start of a name stands for a dot. Nothing is filled in: its files are what the project has.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem, UsageError

_TEMPLATES = Path(__file__).parent / "templates"
_COMMON = "common"


def template_names() -> list[str]:
    """Names of the templates of ``kernelbench init``."""
    return sorted(
        path.name for path in _TEMPLATES.iterdir() if path.is_dir() and path.name != _COMMON
    )


def files_of(template: str) -> dict[Path, Path]:
    """A template's files by their place in a project."""
    found = {}
    for folder in (_TEMPLATES / _COMMON, _TEMPLATES / template):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                parts = path.relative_to(folder).parts
                found[Path(*(re.sub("^dot_", ".", part) for part in parts))] = path
    return found


def new_project(folder: Path, template: str) -> list[Path]:
    """Make a project of a template in ``folder``, whole or not at all; returns its files, relative.

    Raises:
        UsageError: If something is in the way; nothing is overwritten.
        EnvironmentProblem: If it cannot be written.
    """
    files = files_of(template)
    top = sorted({path.parts[0] for path in files})
    for name in top:
        if (folder / name).exists() or (folder / name).is_symlink():
            raise UsageError(
                f"{folder / name} exists: nothing is overwritten",
                "give another folder: kernelbench init DIR",
            )
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file", "give a folder: kernelbench init DIR")
    try:
        with (
            _made(folder) as made,
            tempfile.TemporaryDirectory(prefix=".kernelbench-init-", dir=folder) as unfinished,
        ):
            for place, source in files.items():
                target = Path(unfinished) / place
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            for name in top:
                (Path(unfinished) / name).rename(folder / name)
                made.append(folder / name)
    except OSError as error:
        raise EnvironmentProblem(f"{folder} cannot be written: {error.strerror}") from error
    return sorted(files)


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[list[Path]]:
    """The folder, made if need be; what was put into it goes again if not all of it could be."""
    new = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for parent in new:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise
