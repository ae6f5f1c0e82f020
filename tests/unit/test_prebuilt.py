"""What a wheel brings built: found by what it is made of, and made for older systems."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.build import compiler, prebuilt
from kernelbench.build.compiler import Recipe
from kernelbench.emulator import runtime
from kernelbench.machine import toolchain
from kernelbench.project.shipped import shipped_blocks

if str(ROOT / "tools") not in sys.path:
    sys.path.insert(0, str(ROOT / "tools"))

from elftools.elf.elffile import ELFFile
from prebuild import portable, too_new

from kernelbench.ptx.hosts.cuda_build import cuda_runtime_library

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

SOURCE = """#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>
#include "part.h"
extern "C" int sum(int n) {
  std::vector<std::shared_ptr<int>> all(n, std::make_shared<int>(PART));
  std::mutex mutex;
  std::condition_variable ready;
  std::thread([&] { all.push_back(all[0]); ready.notify_all(); }).join();
  std::unique_lock lock(mutex);
  ready.wait_for(lock, std::chrono::milliseconds(1));
  std::once_flag once;
  std::call_once(once, [&] { all.push_back(all[0]); });
  int sum = 0;
  for (const auto& each : all) sum += *each;
  return sum;
}
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "part.h").write_text("#define PART 7\n")
    (folder / "one.cpp").write_text(SOURCE)
    return Recipe(
        "a part", toolchain.emulator_compiler(), [folder / "one.cpp"], ("-std=c++20",),
        (folder,), ("-pthread",), ["CUDA 13.0"], {folder: "/kb/part"},
    )  # fmt: skip


def test_the_name_is_that_of_the_content(recipe: Recipe, tmp_path: Path) -> None:
    name = prebuilt.entry_name(recipe)
    other = replace(recipe.compiler, version="99.1", path=Path("/other/g++"))
    assert prebuilt.entry_name(replace(recipe, compiler=other)) == name
    shutil.copytree(tmp_path / "src", tmp_path / "else")
    moved = [tmp_path / "else" / "one.cpp"]
    there = replace(recipe, sources=moved, include_dirs=(tmp_path / "else",),
                    names={tmp_path / "else": "/kb/part"})  # fmt: skip
    assert prebuilt.entry_name(there) == name
    for changed in (
        replace(recipe, flags=("-std=c++20", "-O2")),
        replace(recipe, link_flags=()),
        replace(recipe, facts=["CUDA 13.1"]),
        replace(recipe, names={}),
    ):
        assert prebuilt.entry_name(changed) != name
    (tmp_path / "src" / "part.h").write_text("#define PART 8\n")
    assert prebuilt.entry_name(recipe) != name


def test_it_asks_for_no_newer_system(recipe: Recipe) -> None:
    """The plain build shows that the check can fail, where libraries are newer."""
    made = compiler.build(portable(recipe))
    assert too_new(made) == []
    assert ctypes.CDLL(str(made)).sum(3) == 35
    if [int(part) for part in platform.libc_ver()[1].split(".")] >= [2, 34]:
        assert too_new(compiler.build(recipe)) != []


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (toolchain.CPU_LEVELS["x86-64-v4"] | {"fpu"}, "x86-64-v4"),
        (toolchain.CPU_LEVELS["x86-64-v4"] - {"avx512bw"}, "x86-64-v3"),
        (toolchain.CPU_LEVELS["x86-64-v4"] - {"fma"}, "native"),
        ({"asimd", "fp"}, "native"),
    ],
)
def test_the_level_is_one_that_the_cpu_has(
    flags: set[str], level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "cpu_facts", lambda: [*flags])
    assert toolchain.cpu_level() == level


def test_the_runtime_that_was_brought_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prebuilt, "__file__", str(tmp_path / "kernelbench" / "build" / "x.py"))
    monkeypatch.setattr(compiler, "build", lambda recipe: Path("built"))
    common = shipped_blocks()
    assert runtime.runtime_library(common) == Path("built")
    name = prebuilt.entry_name(runtime.runtime_recipe(common, toolchain.cpu_level()))
    entry = tmp_path / "kernelbench" / prebuilt.FOLDER / name
    entry.mkdir(parents=True)
    assert runtime.runtime_library(common) == Path("built")
    (entry / compiler.LIBRARY_FILE).write_bytes(b"")
    assert runtime.runtime_library(common) == entry / compiler.LIBRARY_FILE
    monkeypatch.setattr(runtime, "cpu_level", lambda: "native")
    assert runtime.runtime_library(common) == Path("built")


def newer_symbols(library: Path) -> set[str]:
    """Undefined symbols of versions that :data:`prebuild.NEWEST` does not allow."""
    with library.open("rb") as stream:
        file = ELFFile(stream)
        needed = file.get_section_by_name(".gnu.version_r")
        newer = {
            version["vna_other"]
            for _, versions in needed.iter_versions()
            for version in versions
            if version.name in too_new(library)
        }
        numbers = file.get_section_by_name(".gnu.version")
        symbols = file.get_section_by_name(".dynsym").iter_symbols()
        return {
            symbol.name
            for at, symbol in enumerate(symbols)
            if numbers.get_symbol(at)["ndx"] in newer
        }


@pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")
def test_the_wheel_can_have_the_runtimes_of_an_older_glibc() -> None:
    """Whatever it calls that is newer has an older version, by what wheels are compiled with."""
    known = "".join(file.read_text() for file in (ROOT / "tools" / "prebuilt").iterdir())
    needed = newer_symbols(cuda_runtime_library())
    needed |= newer_symbols(runtime.runtime_library(shipped_blocks()))
    assert needed - set(re.findall(r"\w+", known)) == set()
