"""What the host's compiler says of a step that it reads as plain C++."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernelbench.build import compiler as build

COMMON = Path(__file__).resolve().parents[1] / "kernels" / "common"
# Designated initializers leave fields out on purpose; `#pragma unroll` is nvcc's.
FLAGS = (
    "-x", "c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra",
    "-Wno-missing-field-initializers", "-Wno-unknown-pragmas",
)  # fmt: skip


def host_warnings(source: Path, *include_dirs: Path) -> str:
    """Warnings and errors; empty if there are none.

    Args:
        include_dirs: Searched before the building blocks that all lineages share.
    """
    compiler = build.host_compiler()
    assert compiler is not None
    folders = [f"-I{folder}" for folder in (*include_dirs, COMMON, COMMON / "backend" / "emu")]
    command = [str(compiler.path), *FLAGS, *folders, str(source)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr
