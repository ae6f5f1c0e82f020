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


def is_file_to_check(name: str) -> bool:
    """Whether a name is that of a PTX file, a CUDA program, a script, or a submission with kernels.

    A submission that is a step's, an exported one, and one in torch alone are steps. An executable
    is named with its folder, as a shell wants it: ``./program``.
    """
    path = Path(name)
    if path.suffix in (".ptx", *SOURCES) or ("/" in name and is_executable(path)):
        return True
    if path.suffix != ".py" or not path.is_file():
        return False
    return not is_submission(path) or _has_kernels(path)


def _has_kernels(submission: Path) -> bool:
    if (submission.parent / "step.toml").is_file():
        return False
    text = submission.read_text(errors="replace")
    return _KERNELS.search(text) is not None and read_exported(submission) is None
