"""Which names of ``check`` are files and no steps, apart from what checks them: that takes time."""

from __future__ import annotations

from pathlib import Path

from kernelbench.project.step_files import is_submission


def is_file_to_check(name: str) -> bool:
    """Whether a name is that of a PTX file, a CUDA program, or a script that is no submission."""
    path = Path(name)
    if path.suffix in (".ptx", ".cu"):
        return True
    return path.suffix == ".py" and path.is_file() and not is_submission(path)
