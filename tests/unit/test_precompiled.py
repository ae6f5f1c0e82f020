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


def test_that_of_the_emulator_has_the_standard_librarys_headers_alone() -> None:
    header = runtime_recipe(shipped_blocks(), "native").precompiled
    assert header is not None
    lines = header.read_text().partition("#pragma once\n")[2].split("\n")
    assert all(re.fullmatch(r"(#include <[a-z_]+>)?", line) for line in lines)
