"""A header that is parsed once for all sources of a library: it saves time and decides nothing."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kernelbench.build import compiler
from kernelbench.build.recipe import Recipe, recipe_key
from kernelbench.emulator.runtime import runtime_recipe
from kernelbench.machine.toolchain import host_compiler
from kernelbench.project.shipped import shipped_blocks
from kernelbench.ptx.hosts import cuda_build

HOST = host_compiler()
pytestmark = pytest.mark.skipif(HOST is None or HOST.kind != "g++", reason="no g++")

#: Whether the header was there tells what it has declared.
SOURCE = """
#ifdef _GLIBCXX_VECTOR
extern "C" int has_vector() { return 1; }
#else
extern "C" int has_vector() { return 0; }
#endif
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(tmp_path / "cache"))
    (tmp_path / "a.cpp").write_text(SOURCE)
    (tmp_path / "b.cpp").write_text('extern "C" int other() { return 7; }\n')
    (tmp_path / "first.hpp").write_text("#include <vector>\n")
    assert HOST is not None
    sources = [tmp_path / "a.cpp", tmp_path / "b.cpp"]
    flags = ["-std=c++20", "-O1"]
    return Recipe("two", HOST, sources, flags, link_flags=(), precompiled=tmp_path / "first.hpp")


def test_every_source_begins_with_it_and_nothing_of_it_stays(recipe: Recipe) -> None:
    library = compiler.build(recipe)
    assert ctypes.CDLL(str(library)).has_vector() == 1
    assert not list(library.parent.glob("first.hpp*"))
    assert "bits/stl_vector.h" in (library.parent / "dependencies.json").read_text()


@pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc")
def test_nvcc_has_its_host_compiler_take_it(recipe: Recipe) -> None:
    nvcc = compiler.nvcc()
    assert nvcc is not None
    given = replace(recipe, compiler=nvcc, flags=["-std=c++20"], link_flags=["--cudart", "none"])
    assert ctypes.CDLL(str(compiler.build(given))).has_vector() == 1


def test_one_that_is_kept_is_parsed_for_the_second_build_and_when_a_header_of_it_changes(
    recipe: Recipe,
) -> None:
    a, b = recipe.sources
    ours = a.with_name("ours.hpp")
    ours.write_text("#pragma once\nconstexpr int kNumber = 7;\n")
    b.write_text('#include "ours.hpp"\nextern "C" int other() { return kNumber; }\n')
    assert recipe.precompiled is not None
    recipe.precompiled.write_text('#include <vector>\n#include "ours.hpp"\n')
    kept = replace(recipe, include_dirs=[ours.parent], keeps_parsed=True)

    def built() -> tuple[int, int, int]:
        library = ctypes.CDLL(str(compiler.build(kept)))
        metas = (compiler.cache_dir() / "builds").glob("*/meta.json")
        parsed = [each for each in metas if ", parsed for" in each.read_text()]
        return library.has_vector(), library.other(), len(parsed)

    assert built() == (0, 7, 0)
    a.write_text(f"// other\n{SOURCE}")
    assert built() == (1, 7, 1)
    a.write_text(f"// another\n{SOURCE}")
    assert built() == (1, 7, 1)
    ours.write_text("#pragma once\nconstexpr int kNumber = 8;\n")
    assert built() == (1, 8, 2)


def test_it_is_not_part_of_the_key(recipe: Recipe) -> None:
    assert recipe_key(recipe) == recipe_key(replace(recipe, precompiled=None))


@pytest.mark.parametrize("text", [None, "#error no\n", "class Vector;\nint other();\n"])
def test_without_it_a_library_is_built_as_ever(recipe: Recipe, text: str | None) -> None:
    """It is not there, cannot be parsed, or does not go with a source."""
    assert recipe.precompiled is not None
    if text is None:
        recipe.precompiled.unlink()
    else:
        recipe.precompiled.write_text(text)
    library = ctypes.CDLL(str(compiler.build(recipe)))
    assert (library.has_vector(), library.other()) == (0, 7)


def test_what_is_wrong_with_a_source_is_said(recipe: Recipe) -> None:
    recipe.sources[1].write_text("int other() { return nothing; }\n")
    with pytest.raises(compiler.CompileFailure, match="'nothing' was not declared"):
        compiler.build(recipe)


def test_those_that_ship_have_headers_of_others_alone() -> None:
    for header in (runtime_recipe(shipped_blocks(), "native").precompiled, cuda_build.PRECOMPILED):
        assert header is not None
        lines = header.read_text().partition("#pragma once\n")[2].split("\n")
        assert all(re.fullmatch(r"(#include <[a-z_]+(\.h)?>)?", line) for line in lines)
