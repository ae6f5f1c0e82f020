"""``kernelbench check submission.py``: torch extensions that a script builds, on the emulator."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT, Outcome

from kernelbench.base.errors import UsageError
from kernelbench.machine import toolchain
from kernelbench.ptx.hosts import cuda_build
from kernelbench.ptx.hosts.inline_extension import file_extension, inline_extension

SUBMISSIONS = ROOT / "tests" / "ptx_users" / "submissions"
VECTORADD = ROOT / "tests" / "gpumode" / "tasks" / "vectoradd"

Bench = Callable[..., Outcome]

emulated = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
    pytest.mark.long,
    pytest.mark.timeout(1800),
]
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no Triton")


def test_flags_are_those_of_torch_without_a_gpus() -> None:
    made = inline_extension(
        None, "e", "", extra_cflags=["-O3", "-Wall", "-DN=4", "-std=c++17"],
        extra_cuda_cflags=[
            "-O3", "--use_fast_math", "-gencode=arch=compute_90a,code=sm_90a", "-gencode",
            "arch=compute_80,code=sm_80", "-arch=sm_90a", "-Xptxas -v",
        ],
        extra_ldflags=["-lcuda", "-L/opt/cuda/lib64", "-lm"],
    )  # fmt: skip
    assert made.flags == (
        "-std=c++20", "-O0", "--use_fast_math", "-Xptxas", "-v", "-Xcompiler", "-Wall", "-DN=4",
    )  # fmt: skip
    assert made.link == ("-lm",)


def test_sources_are_put_together_as_torch_does(tmp_path: Path) -> None:
    script = tmp_path / "s.py"
    script.write_text('import torch\n\nCUDA = r"""\n__global__ void k() {}\n"""\n')
    made = inline_extension(
        script, "e", ["void f();", "void g();"], "\n__global__ void k() {}\n", ["f", "g"]
    )
    cpp, cuda = made.sources["e.cpp"], made.sources["e.cu"]
    assert cpp.startswith("#include <torch/extension.h>\nvoid f();\nvoid g();\nPYBIND11_MODULE(")
    assert 'm.def("g", torch::wrap_pybind_function(g));' in cpp
    assert f'#include <cuda_runtime.h>\n#line 3 "{script}"\n\n__global__ void k() {{}}' in cuda
    plain = inline_extension(script, "e", "int x;", "int y;", no_implicit_headers=True)
    assert plain.sources == {"e.cpp": "int x;\n", "e.cu": "int y;\n"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"extra_ldflags": ["-lcublas"]}, "extension e: links with -lcublas, a library that the"),
        ({"is_python_module": False}, "extension e: is_python_module=False is not there"),
        ({"sycl_sources": "x"}, "extension e: sycl_sources are not there"),
    ],
)
def test_what_is_not_there_is_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        inline_extension(None, "e", "", **options)


def test_a_file_has_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="extension e: there is no file nothing"):
        file_extension(None, "e", ["nothing"])


def test_the_headers_that_stand_in_are_documented() -> None:
    text = (ROOT / "docs" / "load-inline.md").read_text()
    headers = Path(cuda_build.__file__).parent / "torch_cuda" / "include"
    for file in [*headers.glob("c10/cuda/*.h"), *headers.glob("ATen/cuda/*.h")]:
        assert f"`{file.relative_to(headers)}`" in text
        own = re.findall(
            r"^#define (\w+_CHECK\w*|C10\w+)|^(?:class|struct) (\w+)", file.read_text(), re.M
        )
        for name in filter(None, (name for pair in own for name in pair)):
            assert f"`{name}`" in text, f"{name} of {file.name}"


@pytest.fixture
def checked(bench: Bench, tmp_path: Path) -> Callable[..., Outcome]:
    """Checks a submission, with some text of a file replaced."""

    def check(
        name: str, *arguments: object, file: str = "", old: str = "", new: str = ""
    ) -> Outcome:
        shutil.copytree(SUBMISSIONS, tmp_path, dirs_exist_ok=True)
        path = tmp_path / (file or name)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1) if old else text)
        return bench(
            "check", tmp_path / name, *arguments, "--seed", 1, "--schedules", 3, root=tmp_path
        )

    return check


class TestSubmissions:
    """Each takes nvcc and g++ a minute or more: torch's headers."""

    pytestmark = emulated

    def test_functions_by_name(self, checked: Callable[..., Outcome]) -> None:
        outcome = checked("relu.py")
        assert outcome.code == 0, outcome.out
        assert "relu_kernel<double>" in outcome.out and "3 clean of 3" in outcome.out

    def test_headers_of_torch_in_the_cuda_source(self, tmp_path: Path) -> None:
        """Methods that they call cuda take arguments; a header of the user includes them."""
        (tmp_path / "own.h").write_text("#pragma once\n#include <torch/extension.h>\n")
        text = """
        #include "own.h"
        torch::Tensor twice(torch::Tensor x) { return x.is_cuda() ? x.cuda() * 2 : x; }
        """
        made = inline_extension(
            None, "twice", "torch::Tensor twice(torch::Tensor x);", text, ["twice"],
            extra_include_paths=[str(tmp_path)],
        )  # fmt: skip
        assert made.library(90).is_file()

    def test_a_race_among_functions_by_name(self, checked: Callable[..., Outcome]) -> None:
        barrier = "parts[threadIdx.x] = sum;\n  __syncthreads();\n"
        outcome = checked("relu.py", old=barrier, new=barrier.partition("\n")[0] + "\n")
        assert outcome.code == 3 and "race" in outcome.out, outcome.out
        # A line of the script, and not of what was written for nvcc.
        assert re.search(r"relu\.py:2\d", outcome.out), outcome.out

    def test_a_module_of_its_own_called_by_a_task(self, checked: Callable[..., Outcome]) -> None:
        outcome = checked("vectoradd.py", "--task", VECTORADD)
        assert outcome.code == 0, outcome.out
        assert "add_kernel" in outcome.out and "1 clean of 1" in outcome.out

    @pytest.mark.parametrize(
        ("old", "new", "code", "found"),
        [
            ("  __syncthreads();\n", "", 3, "race"),
            ("__hadd(a[i],", "__hsub(a[i],", 3, "test0: "),
            ("if (i < n) out", "if (i <= n) out", 3, "past the end of memory (argument 0)"),
            ("return output", "raise ValueError('no')", 3, "ValueError: no"),
            (
                "  TORCH_CHECK(a.device()",
                "  at::cuda::getCurrentCUDABlasHandle();\n  TORCH_CHECK(a.device()", 2,
                "error: 'getCurrentCUDABlasHandle' is not a member of 'at::cuda'",
            ),
            ("__hadd(a[i]", "__hadd(c[i]", 2, 'vectoradd.py(36): error: identifier "c" is undef'),
            (
                "  add_kernel<<<", "  cudaDeviceFlushGPUDirectRDMAWrites({}, {});\n  add_kernel<<<",
                2, "calls cudaDeviceFlushGPUDirectRDMAWrites, which the CUDA runtime here does not",
            ),
        ],
    )  # fmt: skip
    def test_what_is_wrong_with_it(
        self, checked: Callable[..., Outcome], old: str, new: str, code: int, found: str
    ) -> None:
        outcome = checked("vectoradd.py", "--task", VECTORADD, old=old, new=new)
        assert outcome.code == code, outcome.out + outcome.err
        assert found in (outcome.out if code == 3 else outcome.error)

    @needs_triton
    def test_an_extension_beside_triton(self, checked: Callable[..., Outcome]) -> None:
        outcome = checked("both.py")
        assert outcome.code == 0, outcome.out
        assert "add_kernel" in outcome.out and "square_sum_kernel" in outcome.out

    @needs_triton
    def test_a_race_beside_triton(self, checked: Callable[..., Outcome]) -> None:
        outcome = checked("both.py", file="square.cu", old="  __syncthreads();\n", new="")
        assert outcome.code == 3 and "square.cu:" in outcome.out, outcome.out


def test_a_submission_alone_has_to_be_called(bench: Bench, tmp_path: Path) -> None:
    """Without a task or a main, nothing is launched."""
    file = tmp_path / "submission.py"
    file.write_text(
        "import torch.utils.cpp_extension\n\ndef custom_kernel(data):\n    return data\n"
    )
    outcome = bench("check", file, root=tmp_path)
    assert outcome.code == 2 and "it launched no kernel" in outcome.error
    assert f"`kernelbench run {file} --shape NAME` calls a submission" in outcome.error


def test_a_task_goes_with_submissions(bench: Bench) -> None:
    outcome = bench("check", "v07", "--task", VECTORADD, root=ROOT)
    assert outcome.code == 2 and "--task goes with submissions" in outcome.error


_SETUP = """
import torch
from setuptools import setup
from torch.utils.cpp_extension import CUDA_HOME, BuildExtension, CUDAExtension

assert torch.cuda.is_available() and CUDA_HOME is not None
sources = ["module.cpp", "a/kernel.cu", "b/kernel.cu"]
macros = [("THREADS", "64"), ("WITH_KERNELS", None)]
nvcc = ["-O3", "-gencode=arch=compute_80,code=sm_80"]
flags = {"cxx": ["-O3"], "nvcc": nvcc}
extension = CUDAExtension("pack._C", sources, define_macros=macros, extra_compile_args=flags)
setup(
    name="pack", packages=["pack"], ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)
"""
_MODULE = """
#include <Python.h>
void a(), b();
static PyObject* run(PyObject*, PyObject*) { a(); b(); Py_RETURN_NONE; }
static PyMethodDef methods[] = {{"run", run, METH_NOARGS, ""}, {}};
static PyModuleDef module{PyModuleDef_HEAD_INIT, "_C", "", -1, methods};
extern "C" PyObject* PyInit__C() { return PyModule_Create(&module); }
"""
_KERNEL = """
#if WITH_KERNELS
__global__ void NAME_kernel(int* out) {
  __shared__ int part[THREADS];
  part[threadIdx.x] = threadIdx.x;
  SYNC
  out[threadIdx.x] = part[threadIdx.x ^ 32];
}
#endif
void NAME() {
  int* out;
  cudaMalloc(&out, THREADS * sizeof(int));
  NAME_kernel<<<1, THREADS>>>(out);
  cudaFree(out);
}
"""


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
@pytest.mark.usefixtures("emulator_runtime")
def test_extensions_of_a_setup(bench: Bench, tmp_path: Path) -> None:
    """Nothing is built where a build for a GPU would leave it."""
    files = {"setup.py": _SETUP, "module.cpp": _MODULE, "pack/__init__.py": "from ._C import run\n"}
    for name, sync in (("a", ""), ("b", "__syncthreads();")):
        files[f"{name}/kernel.cu"] = _KERNEL.replace("NAME", name).replace("SYNC", sync)
    files["use.py"] = "import pack\n\npack.run()\n"
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    build = f"{sys.executable} setup.py -q build_ext --inplace"
    outcome = bench("check", "use.py", "--build", build, "--seed", "1", cwd=tmp_path)
    assert outcome.code == 3, outcome.out + outcome.err
    assert "a_kernel  finding" in outcome.out and "b_kernel  clean" in outcome.out
    assert "--> a/kernel.cu:5:3" in outcome.out
    assert f"check use.py --build '{build}' --seed 1" in " ".join(outcome.out.split())
    assert not [*tmp_path.rglob("*.so")]
    outcome = bench("check", "use.py", cwd=tmp_path)
    assert "built here by --build 'python setup.py build_ext --inplace'" in outcome.out
    outcome = bench("check", "--build", build, cwd=tmp_path)
    assert outcome.code == 2 and outcome.error == (
        f"kernelbench: `{build}` builds an extension of torch; "
        f"name the script that imports it: kernelbench check test.py --build '{build}'"
    )


_TESTS = """
import pytest
import torch
from torch.utils.cpp_extension import load


def test_right(files):
    assert torch.cuda.is_available()
    load("_C", files).run()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_wrong(files):
    assert len(files) == 4
"""


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
@pytest.mark.usefixtures("emulator_runtime")
def test_suites_of_pytest(bench: Bench, tmp_path: Path) -> None:
    """A folder, or a file: with its conftest, and what pytest is told. No cache is left."""
    sources = {"module.cpp": _MODULE}
    for name in ("a", "b"):
        text = _KERNEL.replace("NAME", name).replace("SYNC", "__syncthreads();")
        sources[f"{name}.cu"] = f"#define WITH_KERNELS 1\n#define THREADS 64\n{text}"
    fixture = f"import pytest\n\n\n@pytest.fixture\ndef files():\n    return {[*sources]}\n"
    files = {"tests/conftest.py": fixture, "tests/test_own.py": _TESTS, **sources}
    (tmp_path / "tests").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    outcome = bench("check", "tests", cwd=tmp_path)
    assert outcome.code == 3, outcome.out + outcome.err
    assert re.search(r"^tests +a_kernel +clean", outcome.out, re.M)
    assert "tests script: wrong: tests/test_own.py::test_wrong: AssertionError: " in outcome.out
    outcome = bench("check", "tests/test_own.py", "--", "-k", "right", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "test_own.py  b_kernel  clean" in outcome.out and "1 passed" in outcome.err
    outcome = bench("check", "tests/test_own.py", "--", "-k", "nothing", cwd=tmp_path)
    assert outcome.error == "kernelbench: tests/test_own.py: pytest finds no test"
    assert not [*tmp_path.rglob("*cache*")]


_ON_STREAMS = '''
import sys

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>

__global__ void add_kernel(float* x) { x[threadIdx.x] += 1; }

void add(torch::Tensor x, bool current) {
  cudaStream_t stream = current ? c10::cuda::getCurrentCUDAStream().stream() : 0;
  add_kernel<<<1, 32, 0, stream>>>(x.data_ptr<float>());
}
"""
module = load_inline("adds", ["void add(torch::Tensor, bool);"], [CUDA], ["add"])
side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x = torch.zeros(32, device="cuda")
    module.add(x, sys.argv[1] == "current")
    y = x * 2
torch.cuda.synchronize()
assert y.cpu()[0] == 2
'''


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
@pytest.mark.long
@pytest.mark.usefixtures("emulator_runtime")
@pytest.mark.parametrize(("stream", "code"), [("current", 0), ("default", 3)])
def test_extensions_launch_on_torchs_stream_if_they_ask_for_it(
    bench: Bench, tmp_path: Path, stream: str, code: int
) -> None:
    (tmp_path / "use.py").write_text(_ON_STREAMS)
    outcome = bench("check", "use.py", "--seed", "1", "--", stream, cwd=tmp_path)
    assert outcome.code == code, outcome.out + outcome.err
    assert ("race" in outcome.out) == (code == 3)
