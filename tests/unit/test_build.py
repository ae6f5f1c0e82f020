"""The compile cache, with a real compiler: keys, repairs, failures, two builds at once."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import cache_listing
from kernelbench.build import compiler as build
from kernelbench.build.dependencies import content_hash

pytestmark = pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")

SOURCE = '#include "value.h"\nextern "C" int answer() { return VALUE + EXTRA; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(build.CACHE_VARIABLE, str(folder))
    return folder


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "value.h").write_text("#define VALUE 40\n")
    path = folder / "answer.cpp"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def counting(tmp_path):
    """The real compiler behind a script that counts its builds and takes a moment."""
    real = build.host_compiler()
    calls = tmp_path / "calls"
    script = tmp_path / "counting-cxx"
    count = f'case "$*" in *-shared*) echo call >> "{calls}"; sleep 0.3;; esac'
    script.write_text(f'#!/bin/sh\n{count}\nexec {real.path} "$@"\n')
    script.chmod(0o755)
    return build.Compiler(real.kind, script, real.version), calls


def scripted(tmp_path, body):
    script = tmp_path / "scripted-cxx"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return build.Compiler("g++", script, "1.0")


def make(source, extra=2, compiler=None, **options):
    return build.compile_shared(
        "answer",
        [source],
        [f"-DEXTRA={extra}"],
        compiler=compiler or build.host_compiler(),
        **options,
    )


def answer(library):
    return ctypes.CDLL(str(library)).answer()


def calls_of(path):
    return len(path.read_text().splitlines())


def test_builds_once_and_the_library_works(cache, source, counting):
    compiler, calls = counting
    first = make(source, compiler=compiler)
    assert answer(first) == 42
    assert make(source, compiler=compiler) == first
    assert calls_of(calls) == 1
    assert build.artefact_sha(first) == content_hash(first)


def test_one_source_is_built_without_a_thread(cache, source, monkeypatch):
    """A build that begins in dlopen holds the loader's lock, for which a new thread waits."""

    def no_thread(*_):
        raise AssertionError("a thread was started")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert ctypes.CDLL(str(make(source))).answer() == 42


def test_everything_that_makes_the_code_is_in_the_key(cache, source, tmp_path):
    first = make(source)
    flags = make(source, extra=3)
    assert answer(flags) == 43
    (source.parent / "value.h").write_text("#define VALUE 41\n")
    header = make(source)
    assert answer(header) == 43
    source.write_text(SOURCE.replace("VALUE +", "VALUE + 1 +"))
    code = make(source)
    assert answer(code) == 44
    includes = tmp_path / "include" / "deep"
    includes.mkdir(parents=True)
    source.write_text(source.read_text() + '#include "deep/used.cuh"\n')
    (includes / "used.cuh").write_text("// one\n")
    with_include = make(source, include_dirs=[tmp_path / "include"])
    (includes / "used.cuh").write_text("// two\n")
    changed_include = make(source, include_dirs=[tmp_path / "include"])
    real = build.host_compiler()
    newer = build.Compiler(real.kind, real.path, real.version + ".1")
    compiler = make(source, compiler=newer, include_dirs=[tmp_path / "include"])
    found = [first, flags, header, code, with_include, changed_include, compiler]
    assert len(set(found)) == len(found)
    assert len(cache_listing.cache_entries()) == len(found)


def test_another_checkout_of_the_same_sources_shares_the_artefact(cache, source, tmp_path):
    other = tmp_path / "elsewhere"
    other.mkdir()
    for file in source.parent.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    assert make(source) == make(other / source.name)


def test_a_damaged_artefact_is_built_anew(cache, source):
    library = make(source)
    whole = build.artefact_sha(library)
    library.write_bytes(library.read_bytes()[:1000])
    again = make(source)
    # Hash before loading: a library cut short kills the process that maps it.
    assert content_hash(again) == whole
    assert answer(again) == 42


def test_two_processes_build_once(cache, source, counting, tmp_path):
    compiler, calls = counting
    code = (
        "import sys\nfrom pathlib import Path\nfrom kernelbench.build import compiler as build\n"
        f"compiler = build.Compiler({compiler.kind!r}, Path({str(compiler.path)!r}), "
        f"{compiler.version!r})\n"
        f"print(build.compile_shared('answer', [Path({str(source)!r})], ['-DEXTRA=2'], "
        "compiler=compiler))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    paths = {process.communicate(timeout=60)[0].strip() for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(paths) == 1
    assert calls_of(calls) == 1
    assert answer(paths.pop()) == 42


def test_compile_error_is_one_line_with_the_log(cache, source):
    source.write_text("int broken( { return 1; }\n")
    with pytest.raises(EnvironmentProblem) as caught:
        make(source)
    assert "\n" not in str(caught.value)
    assert "error" in caught.value.message
    assert "answer.cpp:1" in caught.value.message
    log = Path(caught.value.hint.removeprefix("the log is "))
    assert "answer.cpp" in log.read_text()
    assert_nothing_left(cache)


def assert_nothing_left(cache):
    assert list((cache / "builds").iterdir()) == []
    assert list(cache.glob("tmp-*")) == []


def test_a_compiler_that_dies_midway_leaves_nothing(cache, source, tmp_path):
    dying = scripted(tmp_path, 'while [ "$1" != -o ]; do shift; done; echo half > "$2"; kill -9 $$')
    with pytest.raises(EnvironmentProblem, match="status"):
        make(source, compiler=dying)
    assert_nothing_left(cache)


def test_a_compiler_that_writes_nothing_is_a_failure(cache, source, tmp_path):
    with pytest.raises(EnvironmentProblem):
        make(source, compiler=scripted(tmp_path, "exit 0"))
    assert_nothing_left(cache)


def test_disk_full_is_said(cache, source, tmp_path):
    full = scripted(tmp_path, "echo 'fatal error: cannot write: No space left on device'; exit 1")
    with pytest.raises(EnvironmentProblem, match="is full"):
        make(source, compiler=full)
    assert_nothing_left(cache)


def test_unwritable_cache_folder(source, tmp_path, monkeypatch):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    monkeypatch.setenv(build.CACHE_VARIABLE, str(in_the_way / "cache"))
    with pytest.raises(EnvironmentProblem, match="cannot write the cache folder") as caught:
        make(source)
    assert build.CACHE_VARIABLE in caught.value.hint


def test_no_compiler_and_no_source(cache, source, monkeypatch):
    monkeypatch.setattr(build, "nvcc", lambda: None)
    with pytest.raises(EnvironmentProblem, match="no nvcc"):
        build.compile_shared("x", [source])
    with pytest.raises(EnvironmentProblem, match="is missing"):
        make(source.parent / "absent.cpp")


def test_entries_and_clearing(cache, source):
    old, new = make(source, extra=1), make(source, extra=2)
    long_ago = time.time() - 40 * 86400
    os.utime(old.parent / "meta.json", (long_ago, long_ago))
    entries = cache_listing.cache_entries()
    assert [entry.path for entry in entries] == [new, old]
    assert all(entry.bytes > entry.path.stat().st_size for entry in entries)
    count, freed = cache_listing.clear_cache(older_than_days=30)
    assert (count, freed) == (1, entries[1].bytes)
    assert [entry.path for entry in cache_listing.cache_entries()] == [new]
    assert cache_listing.clear_cache()[0] == 1
    assert cache_listing.cache_entries() == []
    assert answer(make(source)) == 42


def test_use_keeps_an_artefact_young(cache, source):
    library = make(source)
    long_ago = time.time() - 40 * 86400
    os.utime(library.parent / "meta.json", (long_ago, long_ago))
    make(source)
    assert cache_listing.clear_cache(older_than_days=30) == (0, 0)


def test_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "named"))
    assert build.cache_dir() == tmp_path / "named"
    monkeypatch.delenv(build.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_dir() == tmp_path / "xdg" / "kernelbench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the XDG specification: ignored
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert build.cache_dir() == tmp_path / "home" / ".cache" / "kernelbench"


def test_arch_flags():
    assert build.cuda_arch_flags((9, 0)) == ["-gencode", "arch=compute_90a,code=sm_90a"]
    assert build.cuda_arch_flags((10, 0)) == ["-gencode", "arch=compute_100a,code=sm_100a"]
    assert build.cuda_arch_flags((8, 6)) == ["-gencode", "arch=compute_86,code=sm_86"]
