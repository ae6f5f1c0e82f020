"""Which names of ``check`` are files and no steps, apart from what checks them: that takes time."""

from __future__ import annotations

import re
from pathlib import Path

from kernelbench.executors.exported import read_exported
from kernelbench.project.step_files import is_submission
from kernelbench.ptx.hosts.built_program import is_executable
from kernelbench.ptx.hosts.cuda_build import SOURCES

#: An import of what makes kernels.
_KERNELS = re.compile(r"^\s*(?:import|from)\s.*\b(?:triton|cpp_extension)\b", re.M)

#: Pytest's names of files with tests; a script calls what it has.
_TEST_FILES = ("test_*.py", "*_test.py")
_MAIN = re.compile(r"""^if\s+__name__\s*==\s*["']__main__""", re.M)


def is_file_to_check(name: str) -> bool:
    """Whether a name is that of a PTX file, a CUDA program, a script, a submission with kernels, or
    a folder of tests.

    A submission that is a step's, an exported one, and one in torch alone are steps. An executable
    is named with its folder, as a shell wants it: ``./program``.
    """
    path = Path(name)
    if path.suffix in (".ptx", *SOURCES) or ("/" in name and is_executable(path)):
        return True
    if path.suffix != ".py" or not path.is_file():
        return path.is_dir() and bool(files_of_tests(path))
    return not is_submission(path) or _has_kernels(path)


def files_of_tests(path: Path) -> list[Path]:
    """Files whose tests pytest calls: a file that does nothing by itself, or those of a folder."""
    if path.is_dir():
        if any((path / each).is_file() for each in ("step.toml", "lineage.toml")):
            return []
        found = {file for name in _TEST_FILES for file in path.rglob(name)}
        return sorted(file for file in found if "site-packages" not in file.parts)
    tests = any(map(path.match, _TEST_FILES)) and path.is_file()
    return [path] if tests and not _MAIN.search(path.read_text(errors="replace")) else []


def _has_kernels(submission: Path) -> bool:
    if (submission.parent / "step.toml").is_file():
        return False
    text = submission.read_text(errors="replace")
    return _KERNELS.search(text) is not None and read_exported(submission) is None
