"""CuTe DSL on the emulator. Its scripts are written for a GPU; CI does not install the package."""

from __future__ import annotations

import ctypes
import importlib
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from corpus import HERE

from kernelbench.base.demangle import source_name
from kernelbench.checks.api import check
from kernelbench.machine import toolchain
from kernelbench.ptx.hosts.cuda_host import cuda_host
from kernelbench.ptx.hosts.cute_dsl import before_import, cute_dsl_is_installed
from kernelbench.ptx.hosts.fatbin import ptx_kept_of

SCRIPTS = HERE / "cute"
needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
needs_cute_dsl = pytest.mark.skipif(not cute_dsl_is_installed(), reason="no CuTe DSL")
#: What is changed in gemm_wgmma.py, and what must be found of it.
MISTAKES = {
    "a stage that is never given back": (
        "            loads.consumer_release(state)\n", "", {"hang"},
    ),
    "no wait for the copies": ("            loads.consumer_wait(state)\n", "", {"exit", "hang"}),
    "no wait for the products": (
        "            warpgroup.wait_group(0)\n            loads", "            loads",
        {"overwrite"},
    ),
    "bytes of half the elements": (
        "(TILE[0] + TILE[1]) * TILE[2] * 2", "(TILE[0] + TILE[1]) * TILE[2]",
        {"transaction-count"},
    ),
    "no wait for a free stage": (
        "            loads.producer_acquire(state)\n", "", {"overwrite", "hang"},
    ),
    "twice the consumers": ("pipeline.Agent.Thread, 4)", "pipeline.Agent.Thread, 8)", {"hang"}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("script", "kernel", "arch"),
    [
        ("gemm_wgmma", "gemm_kernel", 90), ("gemm_tcgen05", "gemm_kernel", 100),
        ("reverse", "reverse_kernel", 90), ("reverse", "reverse_kernel", 100),
        ("scale", "scale_kernel", 90),
    ],
)  # fmt: skip
@needs_cute_dsl
@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_right_and_clean(script: str, kernel: str, arch: int) -> None:
    report = check([str(SCRIPTS / f"{script}.py")], schedules=3, seed=1, arch=arch)
    rows = [row for step in report.steps for row in step.rows]
    assert [(row.shape, row.status) for row in rows] == [(kernel, "clean")]


@pytest.mark.parametrize("name", MISTAKES)
@needs_cute_dsl
@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_a_mistake_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    right, wrong, kinds = MISTAKES[name]
    text = (SCRIPTS / "gemm_wgmma.py").read_text()
    assert text.count(right) == 1
    file = tmp_path / "gemm.py"
    file.write_text(text.replace(right, wrong))
    report = check([str(file)], schedules=4, seed=1, arch=90)
    seen = report.steps[0].rows[0].seen
    assert kinds <= {each.finding.kind for each in seen}
    # A hang and what is left at the end have no line of their own.
    assert {each.finding.access.where.partition(":")[0] for each in seen} <= {"", "gemm.py"}


@needs_cute_dsl
@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_registers_that_are_not_loaded_yet(tmp_path: Path) -> None:
    """A fence that the script's author had forgotten."""
    text = (SCRIPTS / "gemm_tcgen05.py").read_text()
    fence = "        cute.arch.fence_view_async_tmem_load()\n"
    assert text.count(fence) == 1
    file = tmp_path / "gemm.py"
    file.write_text(text.replace(fence, ""))
    report = check([str(file)], schedules=3, seed=1, arch=100)
    kernel, script = report.steps[0].rows
    open_ones = [each.finding for each in kernel.seen if not each.allowed]
    assert [each.kind for each in open_ones] == ["overwrite"]
    assert "for want of tcgen05.wait::ld" in open_ones[0].text
    assert (script.shape, script.status) == ("script", "wrong")


def test_names_are_those_of_the_functions() -> None:
    assert (
        source_name("kernel_cutlass_add_tensorptrf32generico10001_tensorptrf32generico_0") == "add"
    )
    assert (
        source_name("kernel_cutlass_gemm_kernel_TiledMMA_ThrLayoutVMNK1281_CopyAt_0")
        == "gemm_kernel"
    )
    assert source_name("kernel_cutlass_scale_by____0") == "scale_by"
    assert source_name("kernel_cutlass") == "kernel_cutlass"


def test_what_comes_before_an_import_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_late.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    came: list[str] = []
    finders = list(sys.meta_path)
    with before_import("imported_late", lambda: came.append("now")):
        importlib.import_module("json")
        assert came == []
        for _ in range(2):
            importlib.import_module("imported_late")
            sys.modules.pop("imported_late")
    assert (came, sys.meta_path) == (["now"], finders)


def _image(code: bytes) -> np.ndarray:
    """A fatbin of one image of machine code."""
    entry = struct.pack("<HHIQ", 2, 257, 16, len(code)) + code
    header = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry))
    return np.frombuffer(header + entry, np.uint8).copy()


def test_kept_ptx_is_found_by_its_kernels(tmp_path: Path) -> None:
    for name in ("one", "two", "one_more"):
        (tmp_path / f"{name}.ptx").write_text(f".visible .entry {name}(\n)\n{{ ret; }}\n")
    image = _image(b"\x7fELF\0.text.one_more\0.text.zero\0")
    text = ptx_kept_of(tmp_path, image.ctypes.data)
    assert text is not None and ".entry one_more(" in text
    assert ptx_kept_of(tmp_path, _image(b"\x7fELF\0.text.three\0").ctypes.data) is None


#: What CuTe DSL 4.8.1 has written, words 1 to 7; the map by its type, extents, strides in bytes,
#: box and swizzle, the first dimension first.
WRITTEN = [
    ((0x2000046312, 0, 0, 0x7F000000FF, 0, 0x3F00000000000000, 0x3F),
     (6, (256, 128), (512,), (64, 64), 3)),
    ((0x2000042312, 0, 0, 0x7F000000FF, 0, 0xF00000000000000, 0x3F),
     (6, (256, 128), (512,), (16, 64), 1)),
    ((0x2000040512, 0, 0, 0x7F000000FF, 0, 0xF00000000000000, 0x3F),
     (9, (256, 128), (512,), (16, 64), 0)),
    ((0x4000246392, 0, 0, 0x7F000000FF, 0, 0x1F00000000000000, 0x3F),
     (7, (256, 128), (1024,), (32, 64), 3)),
    ((0x1000046012, 0, 0, 0x7F000000FF, 0, 0x7F00000000000000, 0x3F),
     (0, (256, 128), (256,), (128, 64), 3)),
    ((0x40302, 0, 0, 0xFFF, 0, 0xFF00000000000000, 0), (6, (4096,), (), (256,), 0)),
    ((0x2000240342, 0x400000001000, 0xC000, 0x7F000000FF, 0x200000003, 0x3F00000000000001,
      0x1010107),
     (6, (256, 128, 4, 3, 2), (512, 65536, 262144, 786432), (64, 8, 2, 2, 2), 0)),
]  # fmt: skip


@pytest.mark.usefixtures("emulator_runtime")
@needs_nvcc
@pytest.mark.parametrize(("words", "meant"), WRITTEN)
def test_a_map_that_host_code_has_written(
    words: tuple[int, ...], meant: tuple[object, ...]
) -> None:
    library = cuda_host().library
    tensor = np.zeros(4, np.uint64)
    address = ctypes.c_void_p(tensor.ctypes.data & ~15)
    element, dims, strides, box, swizzle = meant
    expected, found = ((ctypes.c_uint64 * 16)() for _ in range(2))
    assert library.cuTensorMapEncodeTiled(
        expected, element, len(dims), address, (ctypes.c_uint64 * 5)(*dims),
        (ctypes.c_uint64 * 4)(*strides), (ctypes.c_uint32 * 5)(*box),
        (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1), 0, swizzle, 0, 0,
    ) == 0  # fmt: skip
    given = (ctypes.c_uint64 * 8)(address.value or 0, *words)
    assert library["_ZN2kb4cuda14is_written_mapERA8_Km"](given) & 0xFF == 1
    assert library["_ZN2kb4cuda18encode_written_mapEP14CUtensorMap_stRA8_Km"](found, given) == 0
    assert list(found) == list(expected)
    given[1] ^= 1
    assert library["_ZN2kb4cuda14is_written_mapERA8_Km"](given) & 0xFF == 0
