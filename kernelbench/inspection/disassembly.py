"""SASS of a cubin, by whichever disassembler is there."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.machine.toolchain import nvcc

__all__ = ["disassemble", "disassembler"]


def disassembler() -> Path | None:
    """``nvdisasm`` or ``cuobjdump``: on ``PATH``, of a CUDA toolkit, or from PyPI."""
    for name in ("nvdisasm", "cuobjdump"):
        found = shutil.which(name)
        if found:
            return Path(found)
        for folder in _tool_folders():
            if os.access(folder / name, os.X_OK):
                return folder / name
    return None


def _tool_folders() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin"
    yield Path("/usr/local/cuda/bin")
    compiler = nvcc()
    if compiler is not None:
        yield compiler.path.resolve().parent
    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        yield from sorted(Path(folder).glob("nvidia/*/bin"), reverse=True)
    spec = importlib.util.find_spec("triton")  # its wheel has both
    for place in (spec.submodule_search_locations or []) if spec else []:
        yield Path(place) / "backends" / "nvidia" / "bin"


def disassemble(file: Path) -> str:
    """The SASS of a cubin.

    Raises:
        EnvironmentProblem: If there is no disassembler, or it does not know the GPU.
    """
    tool = disassembler()
    if tool is None:
        raise EnvironmentProblem(
            "no SASS: neither nvdisasm nor cuobjdump on PATH, in CUDA_HOME or in the Python "
            "environment",
            "install the CUDA toolkit, or `pip install nvidia-cuda-nvdisasm`",
        )
    options = ["-c"] if tool.name == "nvdisasm" else ["-sass"]
    try:
        run = subprocess.run(
            [str(tool), *options, str(file)],
            capture_output=True, text=True, errors="replace", timeout=120, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{tool} does not run: {error}") from error
    if run.returncode or not run.stdout.strip():
        lines = [line for line in run.stderr.splitlines() if line.strip()]
        why = " ".join(lines[0].split()) if lines else f"status {run.returncode}"
        raise EnvironmentProblem(
            f"{tool.name} cannot read the code: {why}", "is it older than nvcc?"
        )
    return run.stdout
