"""Libraries that take two commands: objects compiled side by side, then linked; with a compiler."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import pytest

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import cache_listing, compiler
from kernelbench.build.compiler import CompileFailure
from kernelbench.machine import toolchain

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

ONE = '#include "part.h"\nint two();\nextern "C" int sum() { return PART + two(); }\n'
TWO = '#include "part.h"\nint two() { return 2; }\n'


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(compiler.CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "part.h").write_text("#define PART 40\n")
    for name, text in (("one.cpp", ONE), ("two.cpp", TWO)):
        (folder / name).write_text(text)
    return [folder / "one.cpp", folder / "two.cpp"]


def make(sources: list[Path], **options: Any) -> Path:
    options = {"link_flags": (), "compiler": compiler.host_compiler()} | options
    return compiler.compile_shared("sum", sources, options.pop("flags", ("-O1",)), **options)


def test_objects_are_linked_and_gone(cache: Path, sources: list[Path]) -> None:
    library = make(sources)
    assert ctypes.CDLL(str(library)).sum() == 42
    assert list(library.parent.glob("*.o")) == []
    assert make(sources) == library
    assert len(cache_listing.cache_entries()) == 1


def test_notes_of_the_counters_stay(cache: Path, sources: list[Path]) -> None:
    library = make(sources, flags=("--coverage",), link_flags=("--coverage",))
    assert sorted(path.name for path in library.parent.glob("*.gcno")) == [
        "0-one.gcno",
        "1-two.gcno",
    ]


def test_one_source_that_does_not_compile_fails_the_whole(cache: Path, sources: list[Path]) -> None:
    sources[1].write_text("int two() { return PART2; }\n")
    with pytest.raises(CompileFailure, match=r"two\.cpp:1.*PART2") as caught:
        make(sources)
    assert "\n" not in str(caught.value)
    assert list((cache / "builds").iterdir()) == []
    assert list(cache.glob("tmp-*")) == []


def test_what_does_not_link_fails(cache: Path, sources: list[Path]) -> None:
    with pytest.raises(CompileFailure, match="undefined reference"):
        make(sources[:1], link_flags=("-Wl,-z,defs",))


def test_facts_link_flags_and_names_are_part_of_the_key(cache: Path, sources: list[Path]) -> None:
    found = {
        make(sources),
        make(sources, facts=("avx512f",)),
        make(sources, link_flags=("-Wl,-Bsymbolic",)),
        make(sources, names={sources[0].parent: "/kb/step"}),
    }
    assert len(found) == 4


def test_headers_that_are_not_included_do_not_matter(
    cache: Path, sources: list[Path], tmp_path: Path
) -> None:
    common = tmp_path / "common"
    for name in ("emu", "soft"):
        (common / "backend" / name).mkdir(parents=True)
        (common / "backend" / name / "x.inl").write_text("// one\n")
    sources[0].write_text('#include "x.inl"\n' + sources[0].read_text())
    options = {"include_dirs": (common, common / "backend" / "emu")}
    first = make(sources, **options)
    (common / "backend" / "soft" / "x.inl").write_text("// two\n")
    assert make(sources, **options) == first
    (common / "backend" / "emu" / "x.inl").write_text("// two\n")
    assert make(sources, **options) != first


def test_an_artefact_does_not_know_its_checkout(
    cache: Path, sources: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    for file in sources[0].parent.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    first = make(sources, flags=("-g",), names={sources[0].parent: "/kb/step"})
    assert str(sources[0].parent).encode() not in first.read_bytes()
    again = make([other / path.name for path in sources], flags=("-g",), names={other: "/kb/step"})
    assert again == first


def test_sources_that_change_meanwhile_are_not_cached(
    cache: Path, sources: list[Path], tmp_path: Path
) -> None:
    real = compiler.host_compiler()
    assert real is not None
    script = tmp_path / "slow-cxx"
    script.write_text(f'#!/bin/sh\n"{real.path}" "$@"; code=$?\nsleep 0.5\nexit $code\n')
    script.chmod(0o755)
    slow = compiler.Compiler(real.kind, script, real.version)
    timer = threading.Timer(0.25, lambda: sources[1].write_text(TWO.replace("2;", "3;")))
    timer.start()
    with pytest.raises(EnvironmentProblem, match="changed while they were compiled"):
        make(sources, compiler=slow)
    timer.join()
    assert ctypes.CDLL(str(make(sources))).sum() == 43


def test_a_compiler_without_cxx20_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [compiler.Compiler("g++", Path("g++"), "9.4.0")]
    monkeypatch.setattr(toolchain, "host_compilers", lambda: found)
    with pytest.raises(EnvironmentProblem, match=r"needs C\+\+20.*finds g\+\+ 9\.4\.0"):
        toolchain.emulator_compiler()
    found.append(compiler.Compiler("clang++", Path("clang++"), "17.0.6"))
    assert toolchain.emulator_compiler().kind == "clang++"
    found.clear()
    with pytest.raises(EnvironmentProblem, match=r"no g\+\+ or clang\+\+"):
        toolchain.emulator_compiler()


def test_facts_of_the_cpu_are_stable() -> None:
    assert toolchain.cpu_facts() == toolchain.cpu_facts()
    assert toolchain.cpu_facts()[1:] == sorted(toolchain.cpu_facts()[1:])
