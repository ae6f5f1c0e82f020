"""What an exported step does on its own: building, caching, and what it says when it cannot."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.lineages import standalone
from kernelbench.lineages.standalone import StandaloneStep, build_standalone
from kernelbench.machine.toolchain import host_compiler

RUN = """#include <cstdio>
extern "C" int kb_run(const int* call, char* message, size_t size) {
  std::snprintf(message, size, "said\\nin two lines");
  return *call;
}
"""
COMPILER = host_compiler()
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture
def nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An nvcc that is the C++ compiler, and notes that it was called."""
    assert COMPILER is not None
    script = tmp_path / "bin" / "nvcc"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, subprocess, sys\n"
        "if sys.argv[1:] == ['--version']: sys.exit(print('release 13.0, V13.0.88'))\n"
        "given = ['-fPIC' if word == '-Xcompiler' else word for word in sys.argv[1:]]\n"
        "pathlib.Path(__file__).with_name('calls').open('a').write('called\\n')\n"
        f"sys.exit(subprocess.call([{str(COMPILER.path)!r}, '-x', 'c++', *given]))\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(script.parent), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return script


def calls(nvcc: Path) -> int:
    file = nvcc.with_name("calls")
    return len(file.read_text().splitlines()) if file.exists() else 0


def test_built_once_for_each_source_and_flags(nvcc: Path) -> None:
    first = build_standalone("s", {"launch.cu": RUN}, ["-O0"])
    assert build_standalone("other", {"launch.cu": RUN}, ["-O0"]) == first
    assert calls(nvcc) == 1
    assert build_standalone("s", {"launch.cu": RUN + "// more"}, ["-O0"]) != first
    assert build_standalone("s", {"launch.cu": RUN}, ["-O1"]) != first
    assert calls(nvcc) == 3
    assert {file.name for file in first.parent.iterdir()} == {"step.so", "lock"}


def test_statuses_of_a_call(nvcc: Path) -> None:
    import ctypes

    class Call(ctypes.Structure):
        _fields_ = (("status", ctypes.c_int),)

    step = StandaloneStep("s", "sm_90a", build_standalone("s", {"launch.cu": RUN}, ["-O0"]))
    step.call(Call(0))
    with pytest.raises(NotImplementedError, match=r"^said in two lines$"):
        step.call(Call(1))
    with pytest.raises(RuntimeError, match=r"^said in two lines$"):
        step.call(Call(2))
    assert step.address_of("kb_run")


def test_what_the_compiler_refuses_is_one_line_and_not_kept(nvcc: Path) -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^s cannot be built by .*error: ") as caught:
            build_standalone("s", {"launch.cu": "int x = y;\n"}, ["-O0"])
        assert "\n" not in str(caught.value)
        log = Path(str(caught.value).rpartition("the log is ")[2])
        assert "error" in log.read_text()
    assert calls(nvcc) == 2


def test_without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "find_nvcc", lambda: None)
    with pytest.raises(RuntimeError, match=r"^s cannot be built: no nvcc on PATH") as caught:
        build_standalone("s", {"launch.cu": RUN}, [])
    assert "\n" not in str(caught.value)


def test_nvcc_is_found_in_cuda_home(nvcc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(nvcc.parents[1]))
    assert standalone.find_nvcc() == str(nvcc)


def test_without_a_cache_folder_it_is_built_beside(
    nvcc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setattr(standalone.tempfile, "tempdir", str(tmp_path))
    found = build_standalone("s", {"launch.cu": RUN}, ["-O0"])
    assert found.is_file() and found.is_relative_to(tmp_path)


def test_a_missing_header_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone.sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setattr(standalone, "find_nvcc", lambda: "nvcc")
    with pytest.raises(RuntimeError, match=r"^s cannot be built: Python\.h is not in"):
        build_standalone("s", {"launch.cu": RUN}, [], extension=True)


@pytest.mark.parametrize(
    ("capability", "said"),
    [
        (None, r"^s needs a GPU \(sm_100a\), and torch finds none$"),
        ((9, 0), r"^s is built for sm_100a, which A GPU \(sm_90\) does not run$"),
        ((10, 3), r"does not run$"),
        ((10, 0), ""),
    ],
)
def test_the_gpu_must_fit(
    nvcc: Path, monkeypatch: pytest.MonkeyPatch, capability: Any, said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A GPU")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    step = StandaloneStep("s", "sm_100a", build_standalone("s", {"launch.cu": RUN}, ["-O0"]))
    if not said:
        assert step.device == "cuda:3"
        return
    with pytest.raises(RuntimeError, match=said):
        _ = step.device


def test_a_library_that_cannot_be_loaded_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "step.so").write_text("no library")
    with pytest.raises(RuntimeError, match=r"^s cannot be loaded: ") as caught:
        StandaloneStep("s", "sm_90a", tmp_path / "step.so")
    assert "\n" not in str(caught.value)


def test_the_handle_is_that_of_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    handle = "_cuda_getCurrentRawStream"
    monkeypatch.setattr(
        torch._C, handle, lambda index: asked.append(index) or 0x1230, raising=False
    )
    read = StandaloneStep.stream_on(object.__new__(StandaloneStep), torch.device("cuda:1"))
    assert not asked
    assert read() == 0x1230 and asked == [1]
