"""``kernelbench check`` of what a repository builds: several sources with nvcc's flags, its own
build, and programs that are built already."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from conftest import Outcome

from kernelbench.base.errors import UsageError
from kernelbench.build.compile_commands import sources_of_target
from kernelbench.build.nvcc_wrapper import for_emulator
from kernelbench.checks import builds, files
from kernelbench.checks.api import check
from kernelbench.checks.rows import CheckRequest, FileOptions, StepCheck
from kernelbench.machine import toolchain
from kernelbench.ptx.hosts.built_program import has_kernels, is_executable, loadable_copy
from kernelbench.ptx.hosts.fatbin import PtxText, best_for
from kernelbench.ptx.hosts.linking import linked_ptx

Bench = Callable[..., Outcome]

REPOSITORY = Path(__file__).parent / "repository"
FLAGS = ("-I", "include", "-D", "THREADS=128")
BARRIER = "sums[thread + half];\n    __syncthreads();"

needs_nvcc = pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A copy, with a file that has a word."""
    folder = tmp_path / "repository"
    shutil.copytree(REPOSITORY, folder)
    (folder / "word.txt").write_text("seven\n")
    return folder


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, bench: Bench, emulator_runtime: object
) -> Iterator[tuple[Path, Outcome]]:
    """A repository that --build has built, and what check said of the program."""
    folder = tmp_path_factory.mktemp("built") / "repository"
    shutil.copytree(REPOSITORY, folder)
    (folder / "word.txt").write_text("seven\n")
    yield folder, bench("check", "--build", "make", "--", "-n", "7", "word.txt", cwd=folder)


@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_sources_with_flags_and_arguments(bench: Bench, repository: Path) -> None:
    main = repository / "src" / "main.cu"
    main.write_text(main.read_text().replace(BARRIER, BARRIER.partition("\n")[0]))
    sources = ("src/words.cpp", "src/main.cu")
    outcome = bench("check", *sources, *FLAGS, "--", "-n", "7", "word.txt", cwd=repository)
    assert outcome.code == 3, outcome.err
    assert "src/main of 4 arguments, 1 calls\nseven " in outcome.err
    assert "error[race]" in outcome.out and re.search(r"--> src/main.cu:1[67]:", outcome.out)
    again = "check src/main.cu src/words.cpp --nvcc '-Iinclude -DTHREADS=128' --seed"
    assert again in " ".join(outcome.out.split())
    outcome = bench("check", "src/main.cu", *FLAGS, cwd=repository)
    assert outcome.code == 2 and outcome.error == (
        "kernelbench: src/main.cu: calls show, which none of its sources has; "
        "name the source that has it, the library with -l, or its target too (--target "
        "NAME,LIBRARY), or have your own build link: kernelbench check --build COMMAND"
    )


@needs_nvcc
def test_its_own_build(built: tuple[Path, Outcome]) -> None:
    """Built by make, nvcc and g++ as ever; static runtime, getopt, streams, exit in main."""
    folder, outcome = built
    assert outcome.code == 0, outcome.out + outcome.err
    assert "./sums of 4 arguments, 1 calls\nseven 7\n" in outcome.err
    assert "sums  sum " in outcome.out and "1 clean of 1" in outcome.out
    assert "arch=compute_80,code=sm_80" in outcome.err  # what make printed
    assert has_kernels(folder / "sums") and not has_kernels(folder / "main.o")


@needs_nvcc
def test_a_program_by_its_name(bench: Bench, built: tuple[Path, Outcome]) -> None:
    folder, _ = built
    outcome = bench("check", "--build", "make", "./sums", "--", "word.txt", cwd=folder)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "./sums of 2 arguments, 1 calls\nseven 1\n" in outcome.err
    nothing = bench("check", "--build", "make", cwd=folder)
    assert nothing.code == 2
    assert nothing.error.startswith("kernelbench: `make` has linked no program with kernels")
    failed = bench("check", "--build", "make nothing", cwd=folder)
    assert failed.code == 2
    assert failed.error == "kernelbench: `make nothing` ended with 2; it says why above"
    other = bench("check", "./sums", "--arch", "80", cwd=folder)
    assert other.code == 2
    assert "its PTX is for sm_90, and the emulated GPU is sm_80; --arch 90" in other.error


@needs_nvcc
def test_a_shared_runtime(bench: Bench, built: tuple[Path, Outcome]) -> None:
    folder, _ = built
    link = ["nvcc", "-arch=sm_90", "-cudart", "shared", "main.o", "words.o", "-o", "shared"]
    subprocess.run(link, cwd=folder, check=True)
    outcome = bench("check", "./shared", "--", "-n", "3", "word.txt", cwd=folder)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "./shared of 4 arguments, 1 calls\nseven 3\n" in outcome.err


@needs_nvcc
def test_machine_code_only(bench: Bench, built: tuple[Path, Outcome], tmp_path: Path) -> None:
    folder, _ = built
    shutil.copytree(folder, tmp_path / "own")
    (tmp_path / "own" / "main.o").unlink()
    subprocess.run(["make", "sums"], cwd=tmp_path / "own", check=True, capture_output=True)
    outcome = bench("check", "./sums", "--", "word.txt", cwd=tmp_path / "own")
    assert outcome.code == 2, outcome.out
    assert "of kernel sum there is machine code only, and what is checked is PTX" in outcome.error


@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_relocatable_device_code(bench: Bench, tmp_path: Path) -> None:
    """A kernel whose functions and variables stand in another file; a template stands in both."""
    shared = (
        "template <class T> __device__ __noinline__ T twice(T x) { return 2 * x; }\n"
        "extern __shared__ int kept[];\n"
    )
    (tmp_path / "kernel.cu").write_text(
        shared + "__device__ int more(int);\nextern __device__ int five;\n"
        "__global__ void k(int* x) {\n"
        "  kept[threadIdx.x] = twice(five);\n"
        "  x[threadIdx.x] = more(kept[threadIdx.x]);\n}\n"
        "int main() {\n"
        "  int *there, here = 0;\n  cudaMalloc(&there, 8);\n  k<<<1, 2, 8>>>(there);\n"
        "  cudaMemcpy(&here, there, 4, cudaMemcpyDeviceToHost);\n  return here != 23;\n}\n"
    )
    (tmp_path / "more.cu").write_text(
        shared + "#include <cstdio>\n__constant__ int three = 3;\n__device__ int five = 5;\n"
        "__device__ int more(int x) {\n"
        '  if (x == 1000) printf("%d;{\\n", five);\n  return twice(x) + three;\n}\n'
    )
    outcome = bench("check", "more.cu", "kernel.cu", "--nvcc", "-rdc=true", cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "kernel.cu  k " in outcome.out and "1 clean of 1" in outcome.out
    build = "nvcc -arch=sm_90 -rdc=true kernel.cu more.cu -o program"
    outcome = bench("check", "--build", build, cwd=tmp_path)
    assert outcome.code == 0, outcome.out + outcome.err
    assert "program  k " in outcome.out


@needs_compiler
@pytest.mark.parametrize(
    ("source", "flags", "reason"),
    [
        ("int main() {}", ["-s"], "it is stripped"),
        ("int main() {}", ["-no-pie"], "no position-independent executable"),
        ("thread_local int mine; int main() { return mine; }", [], "mine is thread-local"),
    ],
)
def test_what_cannot_be_loaded(tmp_path: Path, source: str, flags: list[str], reason: str) -> None:
    (tmp_path / "p.cpp").write_text(source)
    subprocess.run(["g++", *flags, "p.cpp", "-o", "p"], cwd=tmp_path, check=True)
    assert is_executable(tmp_path / "p") and not has_kernels(tmp_path / "p")
    with pytest.raises(UsageError, match=reason):
        loadable_copy(tmp_path / "p", tmp_path / "nowhere")


@needs_compiler
def test_thread_local_variables_of_libraries(tmp_path: Path) -> None:
    (tmp_path / "p.cpp").write_text(
        "#include <mutex>\nint main() { std::once_flag o; std::call_once(o, [] {}); }\n"
    )
    subprocess.run(["g++", "p.cpp", "-o", "p"], cwd=tmp_path, check=True)
    (tmp_path / "copy").mkdir()
    loadable_copy(tmp_path / "p", tmp_path / "copy")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["a.cu", "b.cu"], "a.cu has no main, and b.cu and c.cu have"),
        ([], "flags and arguments belong to programs"),
    ],
)
def test_what_is_nobodys(bench: Bench, tmp_path: Path, given: list[str], wanted: str) -> None:
    (tmp_path / "a.cu").write_text("int nothing;  // int main() {}\n")
    for name in ("b.cu", "c.cu"):
        (tmp_path / name).write_text("int main() { return 0; }\n")
    outcome = bench("check", *((given and [*given, "c.cu"]) or ["v07"]), "--", "x", cwd=tmp_path)
    assert outcome.code == 2 and wanted in outcome.error


@pytest.mark.parametrize(
    ("text", "flags", "refused"),
    [
        ("// main\n__global__ void nothing() {}\n", (), True),
        ("__global__ void nothing() {}\n", ("-DN=2",), True),
        ("__global__ void nothing() {}\n", ("-lhas_main",), False),
        ('#include "b.cu"\n__global__ void nothing() {}\n', (), False),
        ("#define CATCH_CONFIG_MAIN\n#include <catch.hpp>\n", (), False),
    ],
)
def test_a_source_without_main_is_refused_before_it_is_built(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    flags: tuple[str, ...],
    refused: bool,
) -> None:
    (tmp_path / "a.cu").write_text(text)
    (tmp_path / "b.cu").write_text("int main() { return 0; }\n")
    monkeypatch.setattr(files, "host_compilers", lambda: ())
    built: list[str] = []

    def checked(file: Path, *_: object) -> StepCheck:
        built.append(file.name)
        return StepCheck(file.name, "", None, ())

    monkeypatch.setattr(files, "_checked", checked)
    request = CheckRequest(sms=(1,), schedules=1, seed=1, call_limit_s=1.0, max_findings=1)
    ask = partial(files.check_files, [str(tmp_path / "a.cu")], request, FileOptions(flags=flags))
    with pytest.raises(UsageError, match="has no main") if refused else nullcontext():
        ask("check", None)
    assert built == ([] if refused else ["a.cu"])


def test_the_arches_that_a_build_names_are_others() -> None:
    ours = ["-lineinfo", "-gencode", "arch=compute_90a,code=compute_90a"]
    given = ["-O3", "-arch", "sm_80", "--gpu-architecture=sm_70", "-gencode=arch=a", "-c", "k.cu"]
    assert for_emulator(given, ours) == ["-O3", "-c", "k.cu", *ours]
    assert for_emulator(["-G", "k.cu"], ours) == ["-G", "k.cu", *ours[1:]]
    assert for_emulator(["-cubin", "-arch=sm_80"], ours) == ["-cubin", "-arch=sm_80"]


def test_the_ptx_that_a_driver_would_take() -> None:
    old, plain, only, later = (
        PtxText(f"{arch}{own}", arch, own) for arch, own in ((80, 0), (90, 0), (90, 1), (100, 1))
    )
    assert best_for(90, [old, only, plain, later]) == only
    assert best_for(89, [old, only, plain]) == old
    assert best_for(100, [plain, only]) == plain
    assert best_for(103, [later]) is None and best_for(90, []) is None


@needs_nvcc
def test_each_program_that_a_build_has_linked_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "_programs_since", lambda _: [Path("two"), Path("bin/one")])
    assert builds.built_by("true", [], 90).programs == ("./bin/one", "./two")
    assert builds.built_by("true", ["./two"], 90).programs == ("./two",)


def test_texts_are_linked() -> None:
    head = ".version 9.0\n.target sm_90\n.address_size 64\n"
    one = head + (
        ".extern .func (.param .b32 r) f\n(\n.param .b32 p\n)\n;\n"
        ".extern .global .align 4 .u32 g;\n.extern .shared .align 16 .b8 s[];\n"
        ".weak .func w(\n)\n{\nret;\n}\n"
        ".visible .entry k()\n{\n.loc 1 4 0, function_name $L__info_string0, inlined_at 1 2 3\n"
        "ret;\n}\n.file 1 \"/a;{.cu\"\n.section .debug_str\n{\n$L__info_string0:\n.b8 1\n}\n"
    )  # fmt: skip
    two = head + (
        ".extern .shared .align 16 .b8 s[];\n.visible .global .align 4 .u32 g = 5;\n"
        ".global .align 4 .b8 t[2] = {1, 2};\n.weak .func w(\n)\n{\nret;\n}\n"
        ".visible .func (.param .b32 r) f(\n.param .b32 p\n)\n{\n.loc 1 7 0\nret;\n}\n"
        '.file 1 "/b.cu"\n'
    )
    text = linked_ptx([one, two])
    assert linked_ptx([one]) == one
    for once in (".version", ".shared", ".weak .func w", ".global .align 4 .u32 g", "f(", "t[2]"):
        assert text.count(once) == 1, once
    assert ".extern .func" not in text and ".u32 g = 5" in text
    assert ".loc 1001 7 0" in text and '.file 1001 "/b.cu"' in text
    assert "inlined_at 1 2" in text and '.file 1 "/a;{.cu"' in text


def compilations(folder: Path, *more: str) -> Path:
    """A database of the repository's two sources, as CMake would write it into ``build``."""
    (folder / "build").mkdir(exist_ok=True)
    (folder / "build" / "includes.rsp").write_text("-I../include\n")
    common = "-DTHREADS=128 -isystem /usr/include/none"
    entries = [
        {
            "directory": str(folder / "build"),
            "command": f"/usr/bin/{tool} {common} {flags} -c ../src/{source} "
            f"-o CMakeFiles/sums.dir/src/{source}.o",
            "file": f"../src/{source}",
            "output": f"CMakeFiles/sums.dir/src/{source}.o",
        }
        for tool, source, flags in (
            ("nvcc", "main.cu", "--options-file includes.rsp -arch sm_80 -O3 -x cu -std=c++17"),
            ("c++", "words.cpp", " ".join(("-O3 -std=gnu++17 -MD -MF words.d -Wall", *more))),
        )
    ]
    entries.append({"directory": str(folder), "file": "x.cpp", "arguments": ["c++", "x.cpp"]})
    database = folder / "build" / "compile_commands.json"
    database.write_text(json.dumps(entries))
    return database


@needs_nvcc
@pytest.mark.usefixtures("emulator_runtime")
def test_the_sources_of_a_target(bench: Bench, repository: Path) -> None:
    database = compilations(repository)
    outcome = bench(
        "check", "--compile-commands", database, "--target", "sums", "--", "-n", "7", "word.txt",
        cwd=repository,
    )  # fmt: skip
    assert outcome.code == 0, outcome.out + outcome.err
    assert "src/main of 4 arguments, 1 calls\nseven 7" in outcome.err


def test_what_is_kept_of_a_compilation(repository: Path) -> None:
    sources, flags = sources_of_target(compilations(repository), "sums")
    assert [Path(each).name for each in sources] == ["main.cu", "words.cpp"]
    include = repository / "include"
    database = compilations(repository)
    entries = json.loads(database.read_text())
    entries[1]["output"] = entries[1]["output"].replace("sums.dir", "words.dir")
    database.write_text(json.dumps(entries))
    assert sources_of_target(database, "sums,words") == (sources, flags)
    assert sources_of_target(database, "sums")[0] == sources[:1]
    folders = ("-I/usr/include/none", f"-I{include}")
    assert flags == ("-std=c++17", "-DTHREADS=128", *folders, "-Xcompiler=-Wall")
    newer = compilations(repository, "-std=gnu++2a", "-include", "first.h", "-march=native")
    more = (f"-include={repository / 'build' / 'first.h'}", "-Xcompiler=-march=native")
    assert sources_of_target(newer, "sums")[1] == ("-std=c++20", *flags[1:], *more)


def test_which_target_is_asked_for(bench: Bench, repository: Path) -> None:
    database = compilations(repository)
    assert sources_of_target(database, "") == sources_of_target(database, "sums")
    with pytest.raises(UsageError, match="has targets: sums"):
        sources_of_target(database, "other")
    with pytest.raises(UsageError, match="have -DTHREADS=128 and -DTHREADS=64"):
        sources_of_target(compilations(repository, "-DTHREADS=64"), "sums")
    database.write_text("[")
    with pytest.raises(UsageError, match="it is no JSON"):
        sources_of_target(database, "sums")
    outcome = bench("check", "--target", "sums", cwd=repository)
    assert outcome.code == 2 and "--target names no file to look in" in outcome.error


def test_what_is_no_file_to_read(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder.cu").mkdir()
    outcome = bench("check", "folder.cu", cwd=tmp_path)
    assert (outcome.code, outcome.error) == (2, "kernelbench: folder.cu: there is no such file")
    (tmp_path / "theirs.cu").touch()
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    with pytest.raises(UsageError, match="cannot be read: permission denied"):
        check(str(tmp_path / "theirs.cu"))
