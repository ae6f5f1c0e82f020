"""How nvcc is asked to build CUDA steps: flags, folders, what calls the function, extensions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build.compiler import CompileFailure
from kernelbench.kinds import cuda_build, cuda_step
from kernelbench.kinds.callables import LoadError
from kernelbench.machine import toolchain
from kernelbench.machine.devices import GpuInfo
from kernelbench.project.model import Step

needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
HOPPER = GpuInfo(0, "NVIDIA H200", (9, 0), 1 << 37, "580", "13.0", False)


def step_of(
    folder: Path, code: str, *flags: str, arch: str = "any", function: str = "mine::f"
) -> Step:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.cu").write_text(code)
    return Step(
        "s", "", "", None, "", "", "", arch, "works", "cuda", folder, folder / "kernel.cu",
        gpu_flags=flags, function=function,
    )  # fmt: skip


def test_what_it_is_built_for(tmp_path: Path) -> None:
    assert cuda_build.arch_for(step_of(tmp_path, "", arch="sm_80"), HOPPER) == "sm_80"
    assert cuda_build.arch_for(step_of(tmp_path, ""), HOPPER) == "sm_90a"
    with pytest.raises(EnvironmentProblem, match="s is built for the GPU at hand, and there is"):
        cuda_build.arch_for(step_of(tmp_path, ""), None)


@pytest.mark.parametrize(
    ("arch", "reason"),
    [
        ("sm_80", "s is built for sm_80; this is NVIDIA H200, sm_90a"),
        ("sm_999", "does not build for sm_999, but for "),
    ],
)
@needs_nvcc
def test_why_it_does_not_run(tmp_path: Path, arch: str, reason: str) -> None:
    works, why = cuda_step.cuda_step_runs_on(step_of(tmp_path, "", arch=arch), HOPPER, "")
    assert not works
    assert reason in why


@needs_nvcc
def test_flags(tmp_path: Path) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "n.cuh").write_text("constexpr int kN = N;\n")
    code = '#include "n.cuh"\nvoid f() {}\n'
    flags = ("-I ../include", "-DN=4", "-lcublas", "-std=c++17", "-Xptxas -O2")
    made = cuda_build.cuda_recipe(step_of(tmp_path / "s", code, *flags), "sm_80")
    assert [flag for flag in made.flags if flag.startswith("-std")] == ["-std=c++17"]
    assert {"-DN=4", "-Xptxas", "-O2", "arch=compute_80,code=sm_80"} <= set(made.flags)
    assert made.link_flags is not None
    assert made.link_flags[-1] == "-lcublas"
    assert tmp_path / "include" in made.include_dirs
    device = cuda_build.cuda_recipe(step_of(tmp_path / "s", code), "sm_80", what="cubin")
    assert device.link_flags is None
    assert "-std=c++20" in device.flags


def test_the_same_caller_for_the_same_text(tmp_path: Path) -> None:
    one, two = (step_of(tmp_path / name, "void f();") for name in "ab")
    entries = [tmp_path / name / "kernel.cu" for name in "ab"]
    first = cuda_build._caller(one, entries[0], [], False, False)
    assert first == cuda_build._caller(two, entries[1], [], False, False)
    assert "#define KERNELBENCH_FUNCTION mine::f\n" in first.read_text()


def test_an_extension_gets_a_module_if_it_has_none(tmp_path: Path) -> None:
    step = step_of(tmp_path, "#include <torch/extension.h>\n")
    assert cuda_build.is_extension(step)
    made = cuda_build._caller(step, tmp_path / "kernel.cu", ["void f();"], True, False).read_text()
    assert 'm.def("f", &mine::f)' in made
    own = ["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"]
    assert (
        "PYBIND"
        not in cuda_build._caller(step, tmp_path / "kernel.cu", own, True, False).read_text()
    )


def test_a_header_of_torch_in_a_comment_makes_no_extension(tmp_path: Path) -> None:
    assert not cuda_build.is_extension(step_of(tmp_path, "// #include <torch/extension.h>\n"))


@needs_nvcc
@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("namespace mine { __global__ void f(int* x) {} }", "mine::f is a __global__ kernel"),
        ("__global__ void g() {}  // f\n", "kernel.cu has no 'mine::f'"),
    ],
)
def test_a_function_that_is_not_there(tmp_path: Path, code: str, reason: str) -> None:
    with pytest.raises(CompileFailure, match=reason) as caught:
        cuda_build.cuda_recipe(step_of(tmp_path, code), "sm_80")
    assert str(tmp_path / "step.toml") in str(caught.value)


@needs_nvcc
@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_extension_is_built_loaded_and_called(tmp_path: Path) -> None:
    """On the CPU: torch's headers take nvcc a minute or more."""
    code = (
        "#include <torch/extension.h>\n"
        "namespace mine { torch::Tensor f(torch::Tensor x, double by) { return x * by; } }\n"
    )
    step = step_of(tmp_path, code)
    path = cuda_build.cuda_library(step, "sm_90a")
    kernel = cuda_step.open_extension(step, path)
    assert kernel((torch.ones(3), 2.5)).tolist() == [2.5, 2.5, 2.5]
    other = step_of(tmp_path / "other", code, function="g")
    with pytest.raises(LoadError, match=r"the extension defines no g, which step\.toml names"):
        cuda_step.open_extension(other, path)
