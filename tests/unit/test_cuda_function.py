"""The calling rule of CUDA steps: host code, a stand-in for the CUDA runtime, no nvcc, no GPU."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler as build
from kernelbench.kinds import cuda_build
from kernelbench.kinds.callables import LoadError
from kernelbench.kinds.cuda_function import CudaFunction, open_function
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.project.model import Step

COMPILER = build.host_compiler()
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

#: As much of the runtime as the caller needs; ``left_error`` is what the last call left.
RUNTIME = """\
#pragma once
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorInvalidConfiguration = 9 };
typedef struct CUstream_st* cudaStream_t;
inline cudaError_t left_error = cudaSuccess;
inline cudaError_t cudaGetLastError() {
  const cudaError_t error = left_error;
  left_error = cudaSuccess;
  return error;
}
inline const char* cudaGetErrorName(cudaError_t) { return "cudaErrorInvalidConfiguration"; }
inline const char* cudaGetErrorString(cudaError_t) { return "invalid argument"; }
"""
SUM = """\
#include <cuda_runtime.h>
#include <stdint.h>
struct __half { unsigned short bits; };
namespace mine {
using Scalar = float;
cudaError_t sum(const Scalar* x, Scalar* out, int k, double scale, bool negate, cudaStream_t) {
  if (k == 0) return cudaErrorInvalidValue;
  if (k == 1) left_error = cudaErrorInvalidConfiguration;
  out[0] = 0;
  for (int i = 0; i < k; ++i) out[0] += x[i] * scale * (negate ? -1 : 1);
  return cudaSuccess;
}
}
"""

Make = Callable[..., CudaFunction]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A function of some host code as a callable, ``sum`` of :data:`SUM` by default."""

    def made(code: str = "", function: str = "mine::sum", arguments: Any = None) -> CudaFunction:
        (tmp_path / "cuda_runtime.h").write_text(RUNTIME)
        (tmp_path / "sum.cu").write_text(code or SUM)
        step = Step(
            "s", "", "", None, "", "", "", "any", "works", "cuda", tmp_path, tmp_path / "sum.cu",
            function=function, arguments=arguments,
        )  # fmt: skip
        caller = cuda_build._caller(step, tmp_path / "sum.cu", [], False, False)
        assert COMPILER is not None
        library = tmp_path / "lib.so"
        command = [str(COMPILER.path), "-std=c++20", "-shared", "-fPIC", "-x", "c++"]
        folders = ["-I", str(tmp_path), "-I", str(cuda_build._HERE)]
        subprocess.run([*command, str(caller), *folders, "-o", str(library)], check=True)
        return open_function(step, library, "cpu")

    return made


@pytest.fixture
def x() -> torch.Tensor:
    return torch.arange(4.0)


def test_arguments_are_those_of_the_data_and_what_is_written_is_returned(
    make: Make, x: torch.Tensor
) -> None:
    out = torch.zeros(1)
    assert make()((x, [out, 4], {"scale": 0.5, "negate": True})) is out
    assert out.item() == -3.0


@dataclass
class Data:
    """A problem's data of its own class."""

    x: torch.Tensor
    out: torch.Tensor
    k: int = 3
    scale: int = 2
    negate: bool = False


def test_a_dataclass_and_an_integer_for_a_double(make: Make, x: torch.Tensor) -> None:
    assert make()(Data(x, torch.zeros(1))).item() == 6.0


def test_arguments_of_the_step(make: Make, x: torch.Tensor) -> None:
    given = ("data", "data.new_empty(1)", "data.shape[0]", "1 / 2", "False")
    assert make(arguments=given)(x).item() == 3.0
    with pytest.raises(KernelFault, match=r"^arguments: data.shape\[1\]: IndexError"):
        make(arguments=("data.shape[1]",))(x)


def test_outputs_in_order(make: Make) -> None:
    code = '#include <cuda_runtime.h>\nextern "C" void f(void* a, const int* b, short* c, '
    f = make(code + "cudaStream_t) {}", "f")
    a, b = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    c = torch.zeros(2, dtype=torch.int16)
    first, second = f((a, b, c))
    assert (first is a, second is c) == (True, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, r"^mine::sum returned 1 invalid argument$"),
        ({"k": 1}, r"^mine::sum left a CUDA error: cudaErrorInvalidConfiguration: "),
        ({"k": 2**31}, r"argument 3: 2147483648 is out of its range$"),
        ({"k": 4.0}, r"argument 3: expected int, found float 4.0$"),
        ({"negate": "no"}, r"argument 5: expected bool, found str no$"),
        ({"negate": 2}, r"argument 5: 2 is out of its range$"),
        ({"x": 3}, r"argument 1: expected const float\*, found int 3$"),
        ({"x": torch.zeros(4, 2).double()}, r"argument 1: .* found float64\[4, 2\]$"),
        ({"x": torch.zeros(4, 2).t()}, r"argument 1: float32\[2, 4\] is not contiguous, "),
        ({"x": torch.zeros(4, device="meta")}, r"argument 1: float32\[4\] is on meta$"),
        ({"out": (torch.zeros(1), 1)}, r"takes 5 arguments and a stream, the data gives 6 \(float"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    make: Make, x: torch.Tensor, change: dict[str, Any], message: str
) -> None:
    data = {"x": x, "out": torch.zeros(1), "k": 4, "scale": 1.0, "negate": False} | change
    with pytest.raises(KernelFault, match=message) as caught:
        make()(data)
    assert "\n" not in str(caught.value)


def test_an_error_of_an_earlier_call_is_not_the_step_s(make: Make, x: torch.Tensor) -> None:
    f = make()
    for k in (1, 1):
        with pytest.raises(KernelFault, match="left a CUDA error"):
            f((x, torch.zeros(1), k, 1.0, False))
    assert f((x, torch.zeros(1), 2, 1.0, False)).item() == 1.0


@pytest.mark.parametrize(
    ("element", "dtype", "fits"),
    [
        ("const __half*", "float16", True),
        ("const __half*", "bfloat16", False),
        ("const uint16_t*", "bfloat16", True),
        ("const uint16_t*", "float32", False),
        ("const uint8_t*", "float8_e4m3fn", True),
        ("const char*", "float32", True),
        ("const long long*", "int64", True),
        ("const int*", "int64", False),
        ("const void*", "float64", True),
    ],
)
def test_elements(make: Make, element: str, dtype: str, fits: bool) -> None:
    code = SUM + f'extern "C" int f({element}, void*, cudaStream_t) {{ return 0; }}\n'
    f = make(code, "f")
    data = (torch.zeros(2, dtype=getattr(torch, dtype)), torch.zeros(2))
    if fits:
        f(data)
        return
    with pytest.raises(KernelFault, match=rf"argument 1: expected .*, found {dtype}\[2\]"):
        f(data)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("float* out", r"f\(float\*\): its last parameter is not a cudaStream_t"),
        ("cudaStream_t, float* out", "its last parameter is not a cudaStream_t"),
        ("const float* x, cudaStream_t", "writes nothing: no parameter points at non-const"),
    ],
)
def test_a_function_that_cannot_be_called(make: Make, parameters: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        make(f"#include <cuda_runtime.h>\nvoid f({parameters}) {{}}\n", "f")


def test_a_library_of_something_else(tmp_path: Path) -> None:
    step = Step("s", "", "", None, "", "", "", "any", "works", "cuda", tmp_path, None, function="f")
    assert ctypes.CDLL("libc.so.6")
    with pytest.raises(EnvironmentProblem, match=r"^s: its library cannot be loaded: "):
        open_function(step, Path("libc.so.6"), "cpu")
