"""What includes reach: as the compilers see it, by folder, and what cannot be read by text."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

from kernelbench.build import compiler, includes

COMMON = ROOT / "kernels" / "common"
EMULATOR = COMMON / "backend" / "emu"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source beside ``near.h``, and two folders for ``-I`` with a header each."""
    for name, text in {
        "src/main.cpp": '#include "near.h"\n#include <far.h>\n#include <vector>\n',
        "src/near.h": "",
        "src/deep/near.h": "",
        "one/unused.h": "",
        "two/far.h": '#include "beside.h"\n',
        "two/beside.h": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def labels(tree: Path) -> list[str]:
    found = includes.reached_files([tree / "src" / "main.cpp"], [tree / "one", tree / "two"])
    return [file.label for file in found]


REACHED = ["0:main.cpp", "0:near.h", "2:beside.h", "2:far.h"]


def test_only_what_is_included(tree: Path) -> None:
    assert labels(tree) == REACHED


def test_a_header_that_appears_earlier_in_the_search_path(tree: Path) -> None:
    (tree / "one" / "far.h").write_text("")
    assert labels(tree) == ["0:main.cpp", "0:near.h", "1:far.h"]
    # Brackets do not look beside the source, quotes do.
    (tree / "src" / "far.h").write_text("")
    assert labels(tree) == ["0:main.cpp", "0:near.h", "1:far.h"]
    (tree / "src" / "main.cpp").write_text('#include "far.h"\n')
    assert labels(tree) == ["0:far.h", "0:main.cpp"]


def test_files_above_and_circles(tree: Path) -> None:
    (tree / "src" / "near.h").write_text('#pragma once\n#include "../above.h"\n')
    (tree / "above.h").write_text('#include "src/near.h"\n')
    assert labels(tree) == ["-:../above.h", *REACHED]


@pytest.mark.parametrize(
    "line",
    [
        "#include NAME",
        "%:include <far.h>",
        "#include_next <far.h>",
        '/* why */ #include "far.h"',
        "# /* why */ include <far.h>",
        "#\\\ninclude <far.h>",
        "#if __has_include(<far.h>)",
    ],
)
def test_where_text_does_not_say_every_header_counts(line: str, tree: Path) -> None:
    (tree / "src" / "near.h").write_text(f"{line}\n")
    assert labels(tree) == ["0:main.cpp", "0:near.h", "1:unused.h", "2:beside.h", "2:far.h"]


@pytest.mark.parametrize(
    ("name", "own"), [("kernels/v22", ()), ("kernels/v07", ()), ("moe/m07", ("moe/common",))]
)
def test_it_is_what_the_compiler_reads(name: str, own: tuple[str, ...]) -> None:
    """Nothing less, which would be code that the lock does not know; and nothing more."""
    host = compiler.host_compiler()
    if host is None:
        pytest.skip("no C++ compiler")
    source = ROOT / name / "launch.cu"
    folders = [*(ROOT / folder for folder in own), COMMON, EMULATOR]
    where = [word for folder in folders for word in ("-I", str(folder))]
    command = [str(host.path), "-x", "c++", "-std=c++20", "-MM", *where, str(source)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    read = {Path(word).resolve() for word in made.replace("\\\n", " ").split()[1:]}
    assert {file.path.resolve() for file in includes.reached_files([source], folders)} == read


def test_the_runtime_does_not_reach_a_step() -> None:
    """So that a private header of the runtime rebuilds the runtime alone."""
    reached = includes.reached_files([ROOT / "kernels/v22/launch.cu"], [COMMON, EMULATOR])
    private = {path.name for path in (EMULATOR / "runtime").glob("*.hpp")}
    shared = {file.path.name for file in reached if file.path.parent.name == "runtime"}
    assert shared < private


def test_comments_and_white_space_do_not_count() -> None:
    text = b"""// head
#include "x"  // why
int a =
    1'000;  // it's
char c = '"'; /* b
*/ f("//x  y", R"(// " )");
#define A \\
  3
#if 1
"""
    assert includes.without_comments(text) == (
        '#include "x"\nint a = 1\'000; char c = \'"\'; f("//x  y", R"(// " )");\n#define A 3\n#if 1'
    )


def test_a_file_that_knows_its_lines_counts_whole() -> None:
    text = b"// why\nint line() { return __LINE__; }\n"
    assert includes.without_comments(text) == text.decode()
