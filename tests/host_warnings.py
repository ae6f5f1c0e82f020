"""What the host's compiler says of a step that it reads as plain C++."""

from __future__ import annotations

from pathlib import Path

from kernelbench.build import compiler as build

COMMON = Path(__file__).resolve().parents[1] / "kernels" / "common"
# Designated initializers leave fields out on purpose; `#pragma unroll` is nvcc's.
FLAGS = (
    "-x", "c++", "-std=c++20", "-Wall", "-Wextra",
    "-Wno-missing-field-initializers", "-Wno-unknown-pragmas",
)  # fmt: skip


def host_warnings(source: Path, *include_dirs: Path) -> str:
    """Warnings and errors; empty if there are none. What was read before is in the cache.

    Args:
        include_dirs: Searched before the building blocks that all lineages share.
    """
    folders = (*include_dirs, COMMON, COMMON / "backend" / "emu")
    compiler = build.host_compiler()
    try:
        library = build.compile_shared(
            f"{source.parent.name} (warnings)", [source], FLAGS,
            include_dirs=folders, compiler=compiler,
        )  # fmt: skip
    except build.CompileFailure as failure:
        return str(failure)
    return build.build_log(library)
