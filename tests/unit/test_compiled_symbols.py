"""Source lines, roles and field names from a real library's debug information."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kernelbench.build import compiler
from kernelbench.emulator import dwarf
from kernelbench.emulator.runtime import COMMON_NAME, STEP_NAME
from kernelbench.emulator.symbols import Symbols, plain_name

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

HEADER = """#pragma once
extern "C" void mark(const void* where);
#define KB_DEVICE inline __attribute__((always_inline))
namespace kb {
KB_DEVICE void wait_for(const void* what) {
  mark(what);
}
}
"""
SOURCE = """#include <array>
#include <cstdint>
#include "block.cuh"
namespace kb {
struct Barrier { uint64_t state; };
struct f16 { uint16_t bits; };
namespace step {
struct Stage { uint8_t a[256]; uint8_t b[128]; };
struct SharedStorage {
  Stage stages[3];
  Barrier full[6];
  f16 c[8][64];
  std::array<uint64_t, 4> sums;
  uint64_t matrix[2][3];
  uint32_t tmem;
};
template <int kStage>
KB_DEVICE void load_warp(SharedStorage& shared) {
  wait_for(&shared.full[kStage]);
}
KB_DEVICE void help(SharedStorage& shared) {
  auto each = [&](int i) __attribute__((always_inline)) { mark(&shared.stages[i]); };
  each(1);
}
void apart(SharedStorage& shared) {
  auto each = [&](auto i) __attribute__((noinline)) { mark(&shared.sums[i]); };
  each(1);
}
void group_gemm(SharedStorage& shared) {
  load_warp<2>(shared);
  help(shared);
  mark(&shared);
  shared.tmem = 1;
}
}
namespace { struct Alone { uint64_t first, second; } hidden; }
}
extern "C" void run(kb::step::SharedStorage& shared) {
  kb::step::group_gemm(shared);
  mark(&kb::hidden);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Path]]:
    root = tmp_path_factory.mktemp("symbols")
    step, common = root / "v99", root / "common"
    for folder in (step, common):
        folder.mkdir()
    (step / "kernel.cpp").write_text(SOURCE)
    (common / "block.cuh").write_text(HEADER)
    (common / "mark.cpp").write_text('extern "C" void mark(const void*) {}\n')
    folders = {STEP_NAME: step, COMMON_NAME: common}
    path = compiler.compile_shared(
        "symbols", [step / "kernel.cpp", common / "mark.cpp"], ("-std=c++20", "-g", "-O1"),
        compiler=compiler.host_compiler(), link_flags=(), include_dirs=(common,),
        names={folder: name for name, folder in folders.items()},
    )  # fmt: skip
    return str(path), folders


def calls(path: str, function: str = r"_ZN2kb4step10group_gemm\w+") -> list[int]:
    """Offsets of the calls of ``mark`` in a function, in order."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", path], capture_output=True, text=True, check=True
    ).stdout
    body = re.search(rf"<{function}>:\n(.*?)\n\n", listing, re.S)
    assert body is not None
    return [
        int(match[1], 16)
        for match in re.finditer(r"^\s*([0-9a-f]+):\s+(?:call|bl)\S*\s.*<mark", body[1], re.M)
    ]


def line_of(part: str, text: str = SOURCE) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def test_lines_and_roles(library: tuple[str, dict[str, Path]]) -> None:
    path, folders = library
    found = [Symbols(folders).place({"module": path, "offset": at}) for at in calls(path)]
    assert [(str(p), p.function, p.role) for p in found if p] == [
        (f"v99/kernel.cpp:{line_of('wait_for(&shared')}", "load_warp", "load_warp"),
        (f"v99/kernel.cpp:{line_of('mark(&shared.stages')}", "help", "help"),
        (f"v99/kernel.cpp:{line_of('mark(&shared);')}", "group_gemm", "group_gemm"),
    ]


def test_a_function_of_another_function(library: tuple[str, dict[str, Path]]) -> None:
    path, folders = library
    (at,) = calls(path, r"_ZZN2kb4step5apart\w+")
    place = Symbols(folders).place({"module": path, "offset": at})
    assert str(place) == f"v99/kernel.cpp:{line_of('mark(&shared.sums')}"


def test_a_place_outside_the_step_is_that_of_the_block(
    library: tuple[str, dict[str, Path]],
) -> None:
    path, folders = library
    place = Symbols({COMMON_NAME: folders[COMMON_NAME]}).place(
        {"module": path, "offset": calls(path)[0]}
    )
    assert place is not None
    assert (place.shown, place.function, place.role) == ("common/block.cuh", "wait_for", "")
    assert place.line == line_of("mark(what)", HEADER)


@pytest.mark.parametrize(
    ("offset", "name"),
    [
        (0, "stages[0].a"),
        (255, "stages[0].a + 0xff"),
        (256, "stages[0].b"),
        (384 + 256 + 3, "stages[1].b + 0x3"),
        (1152, "full[0]"),
        (1152 + 40, "full[5]"),
        (1152 + 44, "full[5] + 0x4"),
        (1200, "c[0]"),
        (1200 + 130, "c[1] + 0x2"),
        (2224 + 8, "sums[1]"),
        (2256 + 32, "matrix[1][1]"),
        (2304, "tmem"),
        (100000, ""),
    ],
)
@pytest.mark.parametrize(
    "kind",
    [
        "kb::step::SharedStorage",
        "T& kb::shared_storage() [with T = step::SharedStorage]",
        "T& kb::shared_storage() [T = kb::step::SharedStorage]",
    ],
)
def test_fields(library: tuple[str, dict[str, Path]], offset: int, name: str, kind: str) -> None:
    path, folders = library
    at = {"module": path, "offset": 0}
    assert Symbols(folders).shared_name(at, kind, offset) == name


def test_a_struct_in_no_named_namespace(library: tuple[str, dict[str, Path]]) -> None:
    path, folders = library
    at = {"module": path, "offset": 0}
    for spelled in ("{anonymous}::Alone", "kb::(anonymous namespace)::Alone"):
        kind = f"T& kb::shared_storage() [with T = {spelled}]"
        assert Symbols(folders).shared_name(at, kind, 8) == "second"
    assert Symbols(folders).shared_name(at, "kb::step::Absent", 0) == ""


def test_no_debug_information_is_no_failure(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(b"not a library")
    symbols = Symbols({STEP_NAME: tmp_path})
    for module in (str(file), str(tmp_path / "absent.so")):
        assert symbols.place({"module": module, "offset": 4}) is None
        assert symbols.shared_name({"module": module, "offset": 4}, "SharedStorage", 0) == ""
    assert symbols.place(None) is None
    assert dwarf.frames_at(str(file), 0) == ()


def test_plain_names() -> None:
    assert plain_name("load_warp<2, (Mode)1>") == "load_warp"
    assert plain_name("operator()") == ""
