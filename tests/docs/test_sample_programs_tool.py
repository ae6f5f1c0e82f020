"""``tools/sample_programs.py --native``: builds and runs, with an nvcc that copies a script."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest
from conftest import ROOT

NATIVE = runpy.run_path(str(ROOT / "tools" / "sample_programs.py"))["native"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exit 0", "right"),
        ("echo wrong; exit 3", "exit 3: wrong"),
        ("#include <cufft.h>", "build 1: ld: cannot find -lcufft"),
    ],
)
def test_it_says_how_a_program_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-lcufft*) echo "ld: cannot find -lcufft" >&2; exit 1;; esac\n'
        '(echo "#!/bin/sh"; cat "$5") >"$4"; chmod +x "$4"\n'
    )
    nvcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program = tmp_path / "sample.cu"
    program.write_text(text + "\n")
    assert NATIVE(program) == said
