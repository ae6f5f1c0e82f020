"""Branches that were not taken, from a library that counts them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernelbench.build import compiler
from kernelbench.emulator import branches, runtime
from kernelbench.emulator.branches import NoCoverage
from kernelbench.emulator.runtime import COMMON_NAME, STEP_NAME

COMPILER = compiler.host_compiler()
pytestmark = pytest.mark.skipif(
    COMPILER is None or COMPILER.kind != "g++", reason="branches are counted with g++"
)

BLOCK = """#pragma once
inline __attribute__((always_inline)) int advance(int stage) {
  return ++stage == 3 ? 0 : stage;
}
"""
SOURCE = """#include <string>
#include "block.cuh"
#include "hidden.inl"
extern "C" __attribute__((visibility("default"))) int run(int n) {
  int stage = 0;
  std::string text;
  for (int i = 0; i < n; ++i) {
    stage = advance(stage);
    if (n == 1000) stage += 7;
    text += "a string that is long enough to be allocated";
  }
  if (n < 0) {
    for (int i = 0; i < 5; ++i) stage += hidden(i);
  }
  return stage + int(text.size());
}
"""
HIDDEN = "inline int hidden(int i) { return i > 3 ? 1 : 2; }\n"

CHILD = """
import ctypes, os, sys
from pathlib import Path
from kernelbench.emulator import branches
branches.collect_into(Path(sys.argv[1]))
library = ctypes.CDLL(sys.argv[2])
for n in sys.argv[3:]:
    library.run(int(n))
    branches.write_counters(library)
os._exit(0)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Path]]:
    root = tmp_path_factory.mktemp("coverage")
    step, common = root / "v99", root / "common"
    hidden = common / "backend" / "emu"
    for folder in (step, hidden):
        folder.mkdir(parents=True)
    (step / "launch.cu").write_text(SOURCE)
    (common / "block.cuh").write_text(BLOCK)
    (hidden / "hidden.inl").write_text(HIDDEN)
    path = runtime.step_library("v99", step / "launch.cu", common, check=False, count=True)
    return path, {STEP_NAME: step, COMMON_NAME: common}


def count(tmp_path: Path, library: Path, *calls: int) -> Path:
    """Run in a process of its own: the counters are written for this process's environment."""
    counters = tmp_path / "counters"
    counters.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-c", CHILD, str(counters), str(library), *map(str, calls)], check=True
    )
    return counters


def missed(found: branches.Coverage) -> dict[str, tuple[int, int]]:
    return {f"{line.file}:{line.line}": (line.taken, line.sides) for line in found.missed}


def test_sides_that_were_not_taken(library: tuple[Path, dict[str, Path]], tmp_path: Path) -> None:
    path, folders = library
    assert COMPILER is not None
    counters = count(tmp_path, path, 2)
    found = branches.read_counters(counters, path, folders, COMPILER)
    lines = SOURCE.splitlines()
    never = {
        f"v99/launch.cu:{i}": line for i, line in enumerate(lines, 1)
        if "n == 1000" in line or "n < 0" in line or "i < 5" in line
        # gcc gives the branch of an inlined function to the line that calls it, too.
        or "= advance(" in line
    }  # fmt: skip
    assert set(missed(found)) == {*never, "common/block.cuh:3"}
    assert missed(found)["common/block.cuh:3"] == (1, 2)
    by_line = {f"{line.file}:{line.line}": line for line in found.missed}
    assert all(by_line[where].text == text.strip() for where, text in never.items())
    assert found.sides - found.taken == sum(b - a for a, b in missed(found).values())


def test_counts_of_several_writes_and_processes_add_up(
    library: tuple[Path, dict[str, Path]], tmp_path: Path
) -> None:
    path, folders = library
    assert COMPILER is not None
    count(tmp_path, path, 2, 7)
    counters = count(tmp_path, path, -1, 1000)
    found = branches.read_counters(counters, path, folders, COMPILER)
    assert found.missed == ()
    assert found.taken == found.sides > 0


def test_what_is_unknown_is_said(
    library: tuple[Path, dict[str, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folders = library
    assert COMPILER is not None
    with pytest.raises(NoCoverage, match="nothing was counted"):
        branches.read_counters(tmp_path, path, folders, COMPILER)
    counters = count(tmp_path, path, 1)
    clang = compiler.Compiler("clang++", Path("clang++"), "17")
    with pytest.raises(NoCoverage, match=r"g\+\+ only"):
        branches.read_counters(counters, path, folders, clang)
    alone = compiler.Compiler("g++", tmp_path / "g++", "12")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoCoverage, match="no gcov"):
        branches.read_counters(counters, path, folders, alone)
    broken = tmp_path / "gcov"
    broken.write_text("#!/bin/sh\necho 'version mismatch' >&2\nexit 3\n")
    broken.chmod(0o755)
    with pytest.raises(NoCoverage, match="gcov failed: version mismatch"):
        branches.read_counters(counters, path, folders, alone)
