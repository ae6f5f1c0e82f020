"""The nvcc of ``kernelbench check --build``, in front of one that shows its words."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from kernelbench.build.nvcc_wrapper import toolkit_with


def test_it_stays_and_is_the_real_one_outside_a_check(tmp_path: Path) -> None:
    """CMake keeps the path of the compiler that it has found, for later builds of any kind."""
    nvcc = tmp_path / "a toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text('#!/bin/sh\necho "$@"\n')
    nvcc.chmod(0o755)
    (nvcc.parent.parent / "include").mkdir()
    root = tmp_path / "cache" / "toolkits"
    first, other = (toolkit_with(root, nvcc, ["-arch", f"compute_{a}"]) for a in (80, 90))
    assert first["CUDA_HOME"] == other["CUDA_HOME"] and len([*root.iterdir()]) == 1
    own = Path(first["CUDA_HOME"])
    assert (own / "include").resolve() == nvcc.parent.parent / "include"

    def words(environment: dict[str, str]) -> str:
        command = [str(own / "bin" / "nvcc"), "-arch=sm_75", "a b.cu"]
        env = {**os.environ, **environment}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout

    assert words(first) == "a b.cu -arch compute_80\n"
    assert words(other) == "a b.cu -arch compute_90\n"
    assert words({}) == "-arch=sm_75 a b.cu\n"
