"""No stale build: every file that a compiler reads, and where it looked in vain, decides."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelbench.build import compiler as build
from kernelbench.build import dependencies
from kernelbench.machine import toolchain

needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
pytestmark = pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")

SOURCE = '#include <value.h>\nextern "C" int answer() { return VALUE; }\n'
#: Only the device's pass reads the header, which nvcc's own -MD does not list.
DEVICE = """#ifdef __CUDA_ARCH__
#include <value.h>
#else
#define VALUE 0
#endif
extern "C" __global__ void answer(int* out) { *out = VALUE; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with ``near``, ``far`` and ``src``; the cache is empty."""
    monkeypatch.setenv(build.CACHE_VARIABLE, str(tmp_path / "cache"))
    for name in ("near", "far", "src"):
        (tmp_path / name).mkdir()
    put(tmp_path / "far", 1)
    return tmp_path


def host_path() -> Path:
    host = build.host_compiler()
    assert host is not None
    return host.path


def put(folder: Path, value: int) -> None:
    (folder / "value.h").write_text(f"#define VALUE {value}\n")


def answer(
    folder: Path, *flags: str, text: str = SOURCE, include_dirs: tuple[Path, ...] = ()
) -> int:
    """What a library answers that is built now, or comes from the cache."""
    source = folder / "src" / "answer.cpp"
    source.write_text(text)
    library = build.compile_shared(
        "answer", [source], flags, compiler=build.host_compiler(), include_dirs=include_dirs
    )
    return int(ctypes.CDLL(str(library)).answer())


Flags = Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]


def by_environment(variable: str) -> Flags:
    def flags(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
        patch.setenv(variable, f"{folder / 'near'}:{folder / 'far'}")
        return ()

    return flags


def by_options_file(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (folder / "options").write_text(f"-I {folder / 'near'} -I {folder / 'far'}\n")
    return (f"@{folder / 'options'}",)


@pytest.mark.parametrize(
    "flags",
    [
        lambda folder, _: ("-I", str(folder / "near"), "-I", str(folder / "far")),
        lambda folder, _: ("-isystem", str(folder / "near"), "-isystem", str(folder / "far")),
        lambda folder, _: ("-idirafter", str(folder / "near"), "-idirafter", str(folder / "far")),
        by_environment("CPATH"),
        by_environment("CPLUS_INCLUDE_PATH"),
        by_options_file,
    ],
    ids=["-I", "-isystem", "-idirafter", "CPATH", "CPLUS_INCLUDE_PATH", "@file"],
)
def test_a_header_changes_wherever_it_lies(
    folder: Path, flags: Flags, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = flags(folder, monkeypatch)
    assert answer(folder, *given) == 1
    put(folder / "far", 2)
    assert answer(folder, *given) == 2
    # One that appears in front of the other, and goes again.
    put(folder / "near", 3)
    assert answer(folder, *given) == 3
    (folder / "near" / "value.h").unlink()
    assert answer(folder, *given) == 2


@pytest.mark.parametrize(
    "text",
    [
        '#include "value.h"\n',
        "#define NAME <value.h>\n#include NAME\n",
        "/* why */ #\\\n include <value.h>\n",
        "%:include <value.h>\n",
        '#include "../far/value.h"\n',
        '#include "deep/far.h"\n',
    ],
)
def test_a_header_appears_in_a_folder_that_was_not_there(folder: Path, text: str) -> None:
    (folder / "far" / "deep").mkdir()
    (folder / "far" / "deep" / "far.h").write_text('#include "../value.h"\n')
    (folder / "far" / "far").mkdir()
    put(folder / "far" / "far", 1)
    text = f'{text}extern "C" int answer() {{ return VALUE; }}\n'
    flags = ("-I", str(folder / "later" / "sub"), "-I", str(folder / "far"))
    assert answer(folder, *flags, text=text) == 1
    for each in ("later/sub", "later/far", "later/sub/deep"):
        (folder / each).mkdir(parents=True)
        put(folder / each, 4)
    (folder / "later" / "sub" / "deep" / "far.h").write_text("#define VALUE 4\n")
    command = [str(host_path()), "-E", *flags, str(folder / "src" / "answer.cpp")]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = 4 if "return 4" in first.stdout else 1
    assert answer(folder, *flags, text=text) == expected


def test_a_header_appears_beside_the_one_that_includes_it(folder: Path) -> None:
    (folder / "near" / "outer.h").write_text('#include "value.h"\n')
    text = SOURCE.replace("<value.h>", "<outer.h>")
    flags = ("-I", str(folder / "near"), "-I", str(folder / "far"))
    assert answer(folder, *flags, text=text) == 1
    put(folder / "near", 5)
    assert answer(folder, *flags, text=text) == 5


def test_what_has_include_did_not_find_appears(folder: Path) -> None:
    text = (
        "#if __has_include(<value.h>)\n#include <value.h>\n#else\n#define VALUE 0\n#endif\n"
        'extern "C" int answer() { return VALUE; }\n'
    )
    flags = ("-I", str(folder / "near"))
    assert answer(folder, *flags, text=text) == 0
    put(folder / "near", 6)
    assert answer(folder, *flags, text=text) == 6


def test_an_object_that_is_linked_changes(folder: Path) -> None:
    """A file that a flag names is read, whether or not a compiler says so."""
    host = build.host_compiler()
    assert host is not None
    made = folder / "part.o"
    for value in (1, 2):
        (folder / "part.cpp").write_text(f"int part() {{ return {value}; }}\n")
        subprocess.run(
            [str(host.path), "-fPIC", "-c", str(folder / "part.cpp"), "-o", str(made)], check=True
        )
        text = 'int part();\nextern "C" int answer() { return part(); }\n'
        assert answer(folder, str(made), text=text) == value


def test_a_compiler_of_the_same_version_changes(folder: Path) -> None:
    host = build.host_compiler()
    assert host is not None
    script = folder / "c++"
    source = folder / "src" / "answer.cpp"
    source.write_text('extern "C" int answer() { return VALUE; }\n')
    for value in (1, 22):
        script.write_text(f'#!/bin/sh\nexec {host.path} -DVALUE={value} "$@"\n')
        script.chmod(0o755)
        wrapped = build.Compiler(host.kind, script, host.version)
        library = build.compile_shared("answer", [source], compiler=wrapped)
        assert ctypes.CDLL(str(library)).answer() == value


def test_nothing_is_found_again_whose_dependencies_are_not_known(folder: Path) -> None:
    """A compiler that does not say what it read."""
    host = build.host_compiler()
    assert host is not None
    script = folder / "c++"
    script.write_text(f'#!/bin/sh\nunset SUNPRO_DEPENDENCIES\nexec {host.path} "$@"\n')
    script.chmod(0o755)
    silent = build.Compiler(host.kind, script, host.version)
    source = folder / "src" / "answer.cpp"
    source.write_text(SOURCE)
    for value in (1, 2):
        put(folder / "far", value)
        library = build.compile_shared(
            "answer", [source], ("-I", str(folder / "far")), compiler=silent
        )
        assert ctypes.CDLL(str(library)).answer() == value


def test_the_same_files_elsewhere_share_what_was_built(folder: Path) -> None:
    found = set()
    for name in ("one", "two"):
        (folder / name / "include").mkdir(parents=True)
        put(folder / name / "include", 7)
        source = folder / name / "answer.cpp"
        source.write_text(SOURCE)
        found.add(
            build.compile_shared(
                "answer", [source], compiler=build.host_compiler(),
                include_dirs=[folder / name / "include"],
            )
        )  # fmt: skip
    assert len(found) == 1


def test_what_was_built_before_is_found_when_a_header_is_as_it_was(folder: Path) -> None:
    source = folder / "src" / "answer.cpp"
    source.write_text(SOURCE)
    found = []
    for value in (1, 2, 1):
        put(folder / "far", value)
        found.append(
            build.compile_shared(
                "answer", [source], ("-I", str(folder / "far")), compiler=build.host_compiler()
            )
        )
    assert found[0] == found[2] != found[1]


@pytest.mark.parametrize("how", ["-I", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "options file"])
@needs_nvcc
def test_nvcc_and_a_header_of_the_device_pass(
    folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder / "src" / "answer.cu"
    source.write_text(DEVICE)
    where = f"-I {folder / 'near'} -I {folder / 'far'}"
    flags = ["-arch=compute_90a", "-ptx"]
    if how == "-I":
        flags += where.split()
    elif how == "options file":
        (folder / "options").write_text(where)
        monkeypatch.setenv("NVCC_APPEND_FLAGS", f"--options-file {folder / 'options'}")
    else:
        monkeypatch.setenv(how, where)

    def ptx() -> str:
        return build.compile_shared("answer", [source], flags).read_text()

    first = ptx()
    assert ptx() == first
    put(folder / "far", 41)
    assert ", 41;" in ptx()
    put(folder / "near", 42)
    assert ", 42;" in ptx()


def test_rules_of_a_dependency_file() -> None:
    text = "a.o: one.h two\\ words.h \\\n $$three.h\nb.o: \\\n /x:y/four.h \\#five\n"
    assert dependencies.prerequisites(text) == [
        "one.h", "two words.h", "$three.h", "/x:y/four.h", "#five",
    ]  # fmt: skip
