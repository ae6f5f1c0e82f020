"""Which CUDA runtime a program and an extension are bound to: the emulator's, whatever else the
process has loaded before, and whatever the program loads itself.

A false libcudart stands for torch's: it has every function of the emulator's runtime, and each ends
the process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT, environment_of
from elftools.elf.elffile import ELFFile

from kernelbench.machine import toolchain
from kernelbench.ptx.hosts.cuda_build import cuda_runtime_library

pytestmark = [
    pytest.mark.usefixtures("emulator_runtime"),
    pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc"),
]

REACHED = "a real CUDA runtime was reached"
#: Two kernels of a program, and its ``main``.
CHECK = """
import ctypes, json, sys
if sys.argv[1]:
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)
from kernelbench.checks.files import FileAsked, answer_to
answer = answer_to(FileAsked(sys.argv[2], 2, 1, 4, 60.0))
print(answer.end, answer.reason, [each.report.findings for each in answer.launches])
assert answer.end == "done" and answer.launches, answer
assert "torch" not in sys.modules
"""
LOADS_ITS_OWN = """
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
__global__ void one(int* out) { *out = 1; }
int main() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* const runtime = dlopen("/usr/local/cuda/lib64/libcudart.so.13", RTLD_LAZY);
  if (driver == nullptr || runtime == nullptr) return 1;
  const auto init = reinterpret_cast<CUresult (*)(unsigned)>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<cudaError_t (*)(int*)>(
      dlsym(RTLD_DEFAULT, "cudaGetDeviceCount"));
  const auto allocate = reinterpret_cast<cudaError_t (*)(void**, size_t)>(
      dlsym(runtime, "cudaMalloc"));
  int devices = 0;
  if (init(0) != CUDA_SUCCESS || count(&devices) != cudaSuccess || devices != 1) return 2;
  int* out;
  if (allocate(reinterpret_cast<void**>(&out), sizeof *out) != cudaSuccess) return 3;
  one<<<1, 1>>>(out);
  return cudaDeviceSynchronize();
}
"""
NOT_THERE = """
#include <cuda_runtime.h>
#include <dlfcn.h>
int main() {
  return dlsym(dlopen("libcuda.so", RTLD_NOW), "cuMemExportToShareableHandle") == nullptr ? 0 : 1;
}
"""


@pytest.fixture(scope="module", params=["libcudart.so.13", ""], ids=["versioned", "unversioned"])
def false_runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A libcudart.so.13, its symbols with versions as NVIDIA's are, or without as a driver's."""
    with cuda_runtime_library().open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym").iter_symbols()
        names = {each.name for each in symbols if each["st_shndx"] != "SHN_UNDEF"}
    cuda = sorted(each for each in names if each.startswith(("cu", "__cuda")))
    assert "cudaMalloc" in cuda and "cuLaunchKernel" in cuda
    folder = tmp_path_factory.mktemp("false")
    functions = [
        f'void {name}(void) {{ fputs("{REACHED}: {name}\\n", stderr); _exit(77); }}'
        for name in cuda
    ]
    source, script = folder / "false.c", folder / "versions"
    source.write_text("\n".join(["#include <stdio.h>", "#include <unistd.h>", *functions]))
    script.write_text(f"{request.param} {{ global: *; }};\n")
    library = folder / "libcudart.so.13"
    versions = [f"-Wl,--version-script={script}"] if request.param else []
    command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", *versions]
    subprocess.run([*command, "-o", library, source], check=True)
    return library


def answered(code: str, *arguments: object, **env: str) -> subprocess.CompletedProcess[str]:
    """A process that has what the arguments say."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True,
        env=environment_of(ROOT) | env, timeout=250, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["sums.cu", "graphs.cu", "tensor_map.cu"])
def test_a_program_in_a_process_with_another_runtime(false_runtime: Path, name: str) -> None:
    program = ROOT / "tests" / "ptx_users" / "programs" / name
    done = answered(CHECK, false_runtime, program)
    assert REACHED not in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_program_loads_itself_is_the_emulators(tmp_path: Path) -> None:
    (tmp_path / "p.cu").write_text(LOADS_ITS_OWN)
    done = answered(CHECK, "", tmp_path / "p.cu")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_function_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.cu").write_text(NOT_THERE)
    done = answered(CHECK, "", tmp_path / "p.cu")
    named = "asks for cuMemExportToShareableHandle, which the CUDA runtime here does not have"
    assert named in done.stderr


@pytest.mark.long
def test_an_extension_in_a_process_with_another_runtime(
    false_runtime: Path, tmp_path: Path
) -> None:
    for each in (ROOT / "tests" / "ptx_users" / "submissions").glob("*"):
        shutil.copy(each, tmp_path)
    code = textwrap.dedent(CHECK).replace('assert "torch" not in sys.modules', "")
    done = answered(code, false_runtime, tmp_path / "relu.py")
    assert REACHED not in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_process_of_a_file_sees_no_gpu(tmp_path: Path) -> None:
    file = tmp_path / "p.cu"
    file.write_text(
        "#include <cstdlib>\n__global__ void k() {}\n"
        'int main() { k<<<1, 1>>>(); return *getenv("CUDA_VISIBLE_DEVICES"); }\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "kernelbench", "check", file, "--schedules", "1"],
        capture_output=True, text=True, check=False, timeout=250,
        env=environment_of(ROOT, gpu=True) | {"CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
