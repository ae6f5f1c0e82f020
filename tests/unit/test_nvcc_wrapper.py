"""The nvcc of ``kernelbench check --build``, in front of one that shows its words."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelbench.build.nvcc_wrapper import toolkit_with


def _toolkit(folder: Path) -> Path:
    """A toolkit with a header, whose nvcc says its words."""
    nvcc = folder / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text('#!/bin/sh\necho "$@"\n')
    nvcc.chmod(0o755)
    (folder / "include").mkdir()
    (folder / "include" / "cuda.h").write_text("CUresult CUDAAPI cuInit(unsigned int Flags);\n")
    return nvcc


def test_it_stays_and_is_the_real_one_outside_a_check(tmp_path: Path) -> None:
    """CMake keeps the path of the compiler that it has found, for later builds of any kind."""
    nvcc = _toolkit(tmp_path / "a toolkit")
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


def test_it_follows_a_toolkit(tmp_path: Path) -> None:
    """What is new there is here, and where one is gone the present one takes its place."""
    nvcc = _toolkit(tmp_path / "13.0")
    root = tmp_path / "cache" / "toolkits"
    own = Path(toolkit_with(root, nvcc, [])["CUDA_HOME"])
    (tmp_path / "13.0" / "lib64").mkdir()
    toolkit_with(root, nvcc, [])
    assert (own / "lib64").is_dir()
    (tmp_path / "13.0").rename(tmp_path / "13.1")
    toolkit_with(root, tmp_path / "13.1" / "bin" / "nvcc", [])
    assert (own / "include").resolve() == tmp_path / "13.1" / "include"
    said = subprocess.run([own / "bin" / "nvcc", "-c"], check=True, capture_output=True, text=True)
    assert said.stdout == "-c\n"


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_programs_link_with_libraries_where_none_are(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.mkdir()
    (headers / "cublas_v2.h").write_text(
        '#define cublasCreate cublasCreate_v2\nextern "C" int cublasCreate(void**);\n'
    )
    nvcc = _toolkit(tmp_path / "13.0")
    environment = toolkit_with(tmp_path / "toolkits", nvcc, [], headers)
    source = tmp_path / "main.cpp"
    source.write_text(
        '#include <cublas_v2.h>\nextern "C" int cuInit(unsigned);\n'
        "int main() { return cuInit(0) + cublasCreate(nullptr); }\n"
    )
    command = ["c++", "-o", str(tmp_path / "program"), str(source), "-lcuda", "-lcublas"]
    subprocess.run(command, check=True, env={**os.environ, **environment})
    needed = (tmp_path / "program").read_bytes()
    assert b"libcuda.so.1" in needed and b"libcublas.so" in needed
