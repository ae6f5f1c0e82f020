"""CUDA programs of the tests (``ptx_users/programs``), with some of their text replaced."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from conftest import ROOT, Outcome

PROGRAMS = ROOT / "tests" / "ptx_users" / "programs"


def check_program(
    bench: Callable[..., Outcome],
    folder: Path,
    name: str,
    *replaced: tuple[str, str],
    schedules: int = 2,
    arch: int | None = None,
    options: tuple[object, ...] = (),
    programs: Path = PROGRAMS,
) -> Outcome:
    """Check a program.

    Args:
        folder: For the program; the headers beside it come along.
        replaced: What of its text is replaced once, and by what.
        arch: What it is compiled for; None for the default.
        options: Others of ``check``.
        programs: The folder that has it.
    """
    file = folder / name
    for each in (programs / name, *programs.glob("*.h")):
        shutil.copy(each, folder)
    text = file.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text)
    given = ("--seed", 1, "--schedules", schedules, *(("--arch", arch) if arch else ()), *options)
    return bench("check", file, *given, root=folder)
