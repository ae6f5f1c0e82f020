"""Steps are what their ``step.toml`` says, refuse what they cannot do, and are laid out alike; the
diff of two neighbours is the step. That their device code neither spills nor warns is in
``tests/lineage/test_code_lock.py``."""

from __future__ import annotations

import ctypes
import difflib
import re
import statistics
from pathlib import Path

import pytest
from host_warnings import host_warnings
from test_group_gemm_edges import BETWEEN

from kernelbench.build import compiler
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.project import overlay
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages, load_lineages
from kernelbench.project.source_files import own_sources, sources_of

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "kernels"
COMMON = KERNELS / "common"
LINEAGES = load_lineages(find_project(ROOT))
STEPS = [
    step.name for step in LINEAGES.steps_of("group_gemm") if step.compiled and not step.experiment
]
WRITTEN = [f"v{number:02}" for number in range(1, 24)]
FILES = ("kernel.cuh", "launch.cu")
# Lines removed plus added from parent to child: more than this is more than one step.
MAX_CHANGED = 130
# Steps that are several at once, because the article's are, and how many.
SEVERAL = {
    "v17": 3,  # multicast in a cluster, maps from the host, a scheduler warp
    "v19": 3,  # one CTA an SM again, a scheduler warp, N and K patched per group
}
# The same, of both files: what half of the steps keep to.
MEDIAN_CHANGED = 75
ORDER = ("SharedStorage {", "load_warp(", "mma_warp(", "epilogue_warps(", "KB_GLOBAL void")

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")
needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def lineages() -> Lineages:
    return LINEAGES


def source(step: str, name: str) -> Path:
    """A file of a step, its base's where its own folder has none."""
    return sources_of(LINEAGES.get(step))[name]


def test_the_steps_are_written() -> None:
    assert set(WRITTEN) <= set(STEPS)


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("step", STEPS)
def test_the_host_compiler_has_no_warning(step: str) -> None:
    assert host_warnings(overlay.entry_of(LINEAGES.get(step))) == ""


@needs_compiler
@pytest.mark.parametrize(
    "step", [pytest.param(s, marks=pytest.mark.long) if s in BETWEEN else s for s in STEPS]
)
def test_the_kernel_is_what_step_toml_says(lineages: Lineages, step: str) -> None:
    said = EMULATOR.open(lineages.get(step)).describe()
    config = lineages.get(step).config
    assert [said["tile_m"], said["tile_n"], said["tile_k"]] == config["tile"]
    assert said["stages"] == config["stages"]
    assert said["accumulators"] == config["accumulators"]
    assert said["threads"] == 32 * config["warps"]
    assert 0 < said["shared_bytes"] <= 232448
    # Accumulators, and scales for one tile of K of A and of B, in a power of two of columns.
    needed = said["accumulators"] * said["tile_n"] + 2 * said["tile_k"] // 64 * 4
    assert said["tmem_columns"] // 2 < needed <= said["tmem_columns"] <= 512
    assert bin(said["tmem_columns"]).count("1") == 1


@needs_nvcc
@needs_compiler
def test_the_library_for_the_gpu_describes_itself_alike(lineages: Lineages) -> None:
    step = lineages.get("v01")
    native = LoadedStep(ctypes.CDLL(str(compiled.gpu_artefact(step, soft=False))), Path())
    assert native.describe() == EMULATOR.open(step).describe()


class Call(ctypes.Structure):
    """``kb::GroupGemmCall``."""

    _fields_ = (
        ("group_count", ctypes.c_int32),
        *((name, ctypes.POINTER(ctypes.c_uint64)) for name in ("a", "b", "c", "sfa", "sfb")),
        *((name, ctypes.POINTER(ctypes.c_int32)) for name in ("m", "n", "k")),
        ("stream", ctypes.c_void_p),
    )


def refuse(library: ctypes.CDLL, groups: int = 2, **changes: list[int]) -> str:
    """What a step says to a call that it must not launch: its addresses lead nowhere."""
    values = {name: [0x1000] * groups for name in ("a", "b", "c", "sfa", "sfb")}
    values |= {"m": [5] * groups, "n": [128] * groups, "k": [512] * groups}
    values |= changes
    types = {"m": ctypes.c_int32, "n": ctypes.c_int32, "k": ctypes.c_int32}
    arrays = {
        name: (types.get(name, ctypes.c_uint64) * groups)(*value) for name, value in values.items()
    }
    message = ctypes.create_string_buffer(256)
    call = Call(groups, *arrays.values(), None)
    status = library.kb_run(ctypes.byref(call), message, ctypes.c_size_t(256))
    assert status == 1, f"status {status}, {message.value!r}"
    return message.value.decode()


def expect_refusals(library: ctypes.CDLL, step: str) -> None:
    limits = LINEAGES.get(step).limits
    said = {
        "k = 320, not a multiple of 256": refuse(library, k=[512, 320]),
        "n = 130, not a multiple of 8": refuse(library, n=[128, 130]),
        "m = 0, not positive": refuse(library, m=[5, 0]),
        "b is null or not aligned to 16 bytes": refuse(library, b=[0x1000, 0x1008]),
        "1 to 8": refuse(library, groups=9),
    }
    if limits["nk"] == "fixed":
        said["one N and K for all groups"] = refuse(library, n=[128, 256])
    for wanted, message in said.items():
        assert wanted in message and "\n" not in message
    assert limits["k_multiple"] == 256 and limits["max_groups"] == 8
    assert all(
        message.startswith("group 1: ") for message in said.values() if "1 to" not in message
    )


@needs_compiler
@pytest.mark.parametrize("step", STEPS)
def test_a_call_that_breaks_a_limit_is_refused_in_one_line(lineages: Lineages, step: str) -> None:
    expect_refusals(EMULATOR.open(lineages.get(step)).library, step)


@needs_nvcc
def test_the_library_for_the_gpu_refuses_alike(lineages: Lineages) -> None:
    path = compiled.gpu_artefact(lineages.get("v01"), soft=False)
    expect_refusals(ctypes.CDLL(str(path)), "v01")


def changed_lines(old: Path, new: Path) -> int:
    diff = difflib.unified_diff(old.read_text().splitlines(), new.read_text().splitlines(), n=0)
    return sum(1 for line in [*diff][2:] if line[0] in "+-")


@pytest.mark.parametrize("step", [step for step in STEPS if step != "v01"])
def test_the_diff_to_the_parent_is_small(step: str) -> None:
    parent = LINEAGES.get(step).parent
    assert parent in STEPS
    for name in FILES:
        count = changed_lines(source(parent, name), source(step, name))
        limit = MAX_CHANGED * SEVERAL.get(step, 1)
        assert count <= limit, f"{name}: {count} lines differ between {parent} and {step}"


def test_half_of_the_diffs_are_short() -> None:
    counts = [
        sum(
            changed_lines(source(LINEAGES.get(step).parent or "", name), source(step, name))
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
    assert {name for name in FILES if source(one, name) == source(other, name)} == set(names)
    assert set(own_sources(LINEAGES.get(other))) == set(FILES) - set(names)


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_laid_out_like_the_others(step: str) -> None:
    kernel, launch = (source(step, name).read_text() for name in FILES)
    places = [kernel.index(mark) for mark in ORDER]
    assert places == sorted(places), "roles are not in the fixed order"
    assert "namespace kb::step" in kernel and "namespace kb::step" in launch
    assert len(kernel.splitlines()) <= 400 and len(launch.splitlines()) <= 120
    for text in (kernel, launch):
        assert not re.search(r"\bv\d\d\b", text), "the folder is the version"
        assert not re.search(r'#include "\.\./', text), "includes another step's file"
