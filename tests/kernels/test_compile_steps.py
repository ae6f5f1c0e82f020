"""Steps compile for their GPU and for the soft executor, without a warning or a spill; the diff of
two neighbours is the step."""

from __future__ import annotations

import ctypes
import difflib
import re
import statistics
import subprocess
import tomllib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernelbench import build

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
COMMON = KERNELS / "common"
STEPS = sorted(file.parent.name for file in KERNELS.glob("v*/launch.cu"))
WRITTEN = [f"v{number:02}" for number in range(1, 24)]
TARGETS = {"sm100a": "100a", "soft": "90a"}  # backend and arch
FILES = ("kernel.cuh", "launch.cu")
# Lines removed plus added from parent to child: more than this is more than one step.
MAX_CHANGED = 150
# Steps that are several at once, because the article's are, and how many.
SEVERAL = {
    "v17": 3,  # multicast in a cluster, maps from the host, a scheduler warp
    "v19": 3,  # a scheduler warp, N and K patched per group, a product either way round
}
# The same, of both files: what half of the steps keep to.
MEDIAN_CHANGED = 80
ORDER = ("SharedStorage {", "load_warp(", "mma_warp(", "epilogue_warps(", "KB_GLOBAL void")

needs_nvcc = pytest.mark.skipif(build.nvcc() is None, reason="no nvcc: nothing can be compiled")


@dataclass(frozen=True)
class Compiled:
    code: int
    log: str
    library: Path


class Description(ctypes.Structure):
    """``kb::Description``."""

    _fields_ = tuple(
        (name, ctypes.c_int32)
        for name in [
            "tile_m",
            "tile_n",
            "tile_k",
            "stages",
            "accumulators",
            "threads",
            "cluster",
            "shared_bytes",
            "tmem_columns",
        ]
    )


def compile_step(step: str, backend: str, folder: Path) -> Compiled:
    compiler = build.nvcc()
    assert compiler is not None
    arch = TARGETS[backend]
    library = folder / f"{step}-{backend}.so"
    command = [str(compiler.path), "-std=c++20", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
    command += ["-Werror", "all-warnings", "-Xptxas", "-v", "-Xptxas", "-warn-spills"]
    command += ["-Xcompiler", "-fPIC,-Wall,-Wextra", "-I", str(COMMON)]
    command += ["-I", str(COMMON / "backend" / backend), "-shared", "-o", str(library)]
    run = subprocess.run(
        [*command, str(KERNELS / step / "launch.cu")], capture_output=True, text=True
    )
    return Compiled(run.returncode, run.stdout + run.stderr, library)


@pytest.fixture(scope="module")
def compiled(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[tuple[str, str], Future[Compiled]]]:
    """Every step for every target, two at a time; a test waits for its own."""
    folder = tmp_path_factory.mktemp("steps")
    with ThreadPoolExecutor(2) as pool:
        jobs = {
            (step, backend): pool.submit(compile_step, step, backend, folder)
            for backend in TARGETS
            for step in STEPS
        }
        yield jobs
        for job in jobs.values():
            job.cancel()


def settings(step: str) -> dict[str, object]:
    with (KERNELS / step / "step.toml").open("rb") as stream:
        return tomllib.load(stream)


def test_the_steps_are_written() -> None:
    assert set(WRITTEN) <= set(STEPS)


@needs_nvcc
@pytest.mark.parametrize("backend", TARGETS)
@pytest.mark.parametrize("step", STEPS)
def test_compiles_without_warning_or_spill(compiled, step: str, backend: str) -> None:
    result = compiled[step, backend].result()
    assert result.code == 0, result.log
    assert "warning" not in result.log.lower(), result.log
    arch = TARGETS[backend]
    assert re.search(rf"Compiling entry function '\w*group_gemm\w*' for 'sm_{arch}'", result.log)
    spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", result.log)
    assert spills and set(spills) == {("0", "0")}, result.log


@needs_nvcc
@pytest.mark.parametrize("step", STEPS)
def test_the_kernel_is_what_step_toml_says(compiled, step: str) -> None:
    result = compiled[step, "sm100a"].result()
    assert result.code == 0, result.log
    said = Description()
    ctypes.CDLL(str(result.library)).kb_describe(ctypes.byref(said))
    config = settings(step)["config"]
    assert isinstance(config, dict)
    assert [said.tile_m, said.tile_n, said.tile_k] == config["tile"]
    assert said.stages == config["stages"]
    assert said.accumulators == config["accumulators"]
    assert said.threads == 32 * config["warps"]
    assert 0 < said.shared_bytes <= 232448
    # Accumulators, and scales for one tile of K of A and of B, in a power of two of columns.
    needed = said.accumulators * said.tile_n + 2 * said.tile_k // 64 * 4
    assert said.tmem_columns // 2 < needed <= said.tmem_columns <= 512
    assert bin(said.tmem_columns).count("1") == 1


class Call(ctypes.Structure):
    """``kb::GroupGemmCall``."""

    _fields_ = (
        ("group_count", ctypes.c_int32),
        *((name, ctypes.POINTER(ctypes.c_uint64)) for name in ("a", "b", "c", "sfa", "sfb")),
        *((name, ctypes.POINTER(ctypes.c_int32)) for name in ("m", "n", "k")),
        ("stream", ctypes.c_void_p),
    )


def refuse(library: Path, groups: int = 2, **changes: list[int]) -> str:
    """What a step says to a call that it must not launch; without a GPU, none could be."""
    values = {name: [0x1000] * groups for name in ("a", "b", "c", "sfa", "sfb")}
    values |= {"m": [5] * groups, "n": [128] * groups, "k": [512] * groups}
    values |= changes
    types = {"m": ctypes.c_int32, "n": ctypes.c_int32, "k": ctypes.c_int32}
    arrays = {
        name: (types.get(name, ctypes.c_uint64) * groups)(*value) for name, value in values.items()
    }
    message = ctypes.create_string_buffer(256)
    call = Call(groups, *arrays.values(), None)
    status = ctypes.CDLL(str(library)).kb_run(ctypes.byref(call), message, ctypes.c_size_t(256))
    assert status == 1, f"status {status}, {message.value!r}"
    return message.value.decode()


@needs_nvcc
@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_breaks_a_limit_is_refused_in_one_line(compiled, step: str) -> None:
    result = compiled[step, "sm100a"].result()
    assert result.code == 0, result.log
    limits = settings(step)["limits"]
    assert isinstance(limits, dict)
    said = {
        "k = 320, not a multiple of 256": refuse(result.library, k=[512, 320]),
        "n = 130, not a multiple of 8": refuse(result.library, n=[128, 130]),
        "m = 0, not positive": refuse(result.library, m=[5, 0]),
        "b is null or not aligned to 16 bytes": refuse(result.library, b=[0x1000, 0x1008]),
        "1 to 8": refuse(result.library, groups=9),
    }
    if limits["nk"] == "fixed":
        said["one N and K for all groups"] = refuse(result.library, n=[128, 256])
    for wanted, message in said.items():
        assert wanted in message and "\n" not in message
    assert limits["k_multiple"] == 256 and limits["max_groups"] == 8
    assert all(
        message.startswith("group 1: ") for message in said.values() if "1 to" not in message
    )


def changed_lines(old: Path, new: Path) -> int:
    diff = difflib.unified_diff(old.read_text().splitlines(), new.read_text().splitlines(), n=0)
    return sum(1 for line in [*diff][2:] if line[0] in "+-")


@pytest.mark.parametrize("step", [step for step in STEPS if step != "v01"])
def test_the_diff_to_the_parent_is_small(step: str) -> None:
    parent = settings(step)["parent"]
    assert parent in STEPS
    for name in FILES:
        count = changed_lines(KERNELS / str(parent) / name, KERNELS / step / name)
        limit = MAX_CHANGED * SEVERAL.get(step, 1)
        assert count <= limit, f"{name}: {count} lines differ between {parent} and {step}"


def test_half_of_the_diffs_are_short() -> None:
    counts = [
        sum(
            changed_lines(KERNELS / str(settings(step)["parent"]) / name, KERNELS / step / name)
            for name in FILES
        )
        for step in STEPS
        if step != "v01"
    ]
    assert statistics.median(counts) <= MEDIAN_CHANGED


@pytest.mark.parametrize(
    ("one", "other", "names"),
    [("v02", "v03", ("kernel.cuh",)), ("v04", "v05", FILES), ("v22", "v23", FILES)],
)
def test_steps_of_the_host_keep_the_kernel(one: str, other: str, names: tuple[str, ...]) -> None:
    for name in names:
        assert (KERNELS / one / name).read_bytes() == (KERNELS / other / name).read_bytes()


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_laid_out_like_the_others(step: str) -> None:
    kernel, launch = ((KERNELS / step / name).read_text() for name in FILES)
    places = [kernel.index(mark) for mark in ORDER]
    assert places == sorted(places), "roles are not in the fixed order"
    assert "namespace kb::step" in kernel and "namespace kb::step" in launch
    assert len(kernel.splitlines()) <= 400 and len(launch.splitlines()) <= 120
    for text in (kernel, launch):
        assert not re.search(r"\bv\d\d\b", text), "the folder is the version"
        assert not re.search(r'#include "\.\./', text), "includes another step's file"
