"""Steps of the Hopper lineage: dequantization is exact, packing covers every tile once, ragged
shapes are right on the emulator, and what a step cannot do is refused. That their device code
neither spills nor warns is in ``tests/lineage/test_code_lock.py``."""

from __future__ import annotations

import ctypes
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hopper_cases import HOPPER, ROOT, STEPS
from host_warnings import host_warnings

from kernelbench.build import compiler
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.kinds.callables import load_callable
from kernelbench.problems.group_gemm import nvfp4
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project import overlay
from kernelbench.project.model import Step
from kernelbench.project.problem import refill
from kernelbench.project.step_files import read_lineage, read_step

COMMON = ROOT / "kernels" / "common"
LEAVES_SUMS = 0xFFFF

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")
needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
#: Steps between others, whose code the code lock holds, are in `make test-long`.
_BETWEEN = ("h03", "h04", "h06")
every_step = pytest.mark.parametrize(
    "step", [pytest.param(s, marks=pytest.mark.long) if s in _BETWEEN else s for s in STEPS]
)

#: SMs and extents, by what is at the edge. Few SMs, so that CTAs do tiles of several widths.
SHAPES: dict[str, tuple[int, dict[str, Any]]] = {
    "half a block of K, one after other widths": (
        2,
        {"m": [130, 1, 300], "n": [264, 8, 136], "k": [64, 192, 448]},
    ),
    "few tiles, much of K": (5, {"m": [3, 70], "n": [40, 128], "k": [4160, 2048]}),
    "groups without tokens": (3, {"m": [0, 17, 0, 0, 40, 0], "n": 136, "k": [64, 192] * 3}),
    "no tokens": (3, {"m": [0, 0], "n": 136, "k": 64}),
}

Kernel = Callable[[Any], list[torch.Tensor]]


def step_of(name: str) -> Step:
    return read_step(HOPPER / name, read_lineage(HOPPER))


@pytest.fixture(scope="module")
def kernels() -> Callable[[str, int], Kernel]:
    """``kernels(step, sms)``: a step's callable; what its launch finds fails the call."""
    loaded: dict[tuple[str, int], Kernel] = {}

    def get(step: str, sms: int) -> Kernel:
        if (step, sms) not in loaded:
            target = Target(EMULATOR, "cpu", None, Emulation(sms=sms))
            loaded[step, sms] = EMULATOR.load(step_of(step), PROBLEM, target, 0.0)
        return loaded[step, sms]

    return get


@pytest.fixture(scope="module")
def v00() -> Kernel:
    return load_callable(ROOT / "kernels" / "v00" / "submission.py")


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """``hopper_host.cpp``."""
    found = compiler.host_compiler()
    if found is None:
        pytest.skip("no C++ compiler")
    library = tmp_path_factory.mktemp("hopper") / "host.so"
    folders = (HOPPER / "common", COMMON, COMMON / "backend" / "emu")
    command = [str(found.path), "-std=c++20", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas"]
    command += [f"-I{folder}" for folder in folders]
    command += ["-o", str(library), str(Path(__file__).parent / "hopper_host.cpp")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library))


def test_dequantization_is_exact_for_all_codes_and_scales(host: ctypes.CDLL) -> None:
    """Value times scale times 2**-14, for the 16 codes at each place and all 127 scales."""
    values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float64)
    values = np.concatenate([values, -values])
    scales = nvfp4.decode_e4m3(torch.arange(127, dtype=torch.uint8)).double().numpy()
    out = np.zeros(8, np.uint16)
    place = ctypes.c_void_p(out.ctypes.data)
    for scale in range(127):
        for first in range(16):
            codes = [(first + 3 * i) % 16 for i in range(8)]
            word = sum(code << 4 * i for i, code in enumerate(codes))
            host.dequantize(ctypes.c_uint32(word), ctypes.c_uint8(scale), place)
            got = out.view(np.float16).astype(np.float64)
            assert (got == values[codes] * scales[scale] * 2.0**-14).all(), (codes, scale)


def pack(host: ctypes.CDLL, groups: list[tuple[int, int, int]], ctas: int) -> list[tuple[int, ...]]:
    extents = np.array(groups, np.uint32)
    out = np.zeros((40000, 10), np.uint32)
    count = host.pack(
        ctypes.c_void_p(extents.ctypes.data), len(groups), ctas, len(out),
        ctypes.c_void_p(out.ctypes.data),
    )  # fmt: skip
    assert count >= 0
    return [tuple(map(int, row)) for row in out[:count]]


@pytest.mark.parametrize(
    ("groups", "ctas", "splits"),
    [
        ([(m, 4096, 7168) for m in (80, 176, 128, 72, 64, 248, 96, 160)], 132, False),
        ([(192, 3072, 4096), (320, 3072, 4096)], 132, False),
        ([(16, 4096, 7168)], 132, True),
        ([(1, 8, 64), (700, 136, 192)], 3, False),
        ([(5, 128, 16384), (40, 256, 8192)], 7, True),
        ([(3000, 8192, 1024)], 132, False),
        ([(257, 1000, 64)], 1, False),
    ],
)
def test_packing_covers_all_of_k_of_each_tile_once(
    host: ctypes.CDLL, groups: list[tuple[int, int, int]], ctas: int, splits: bool
) -> None:
    parts = pack(host, groups, ctas)
    tiles = defaultdict(list)
    for part in parts:
        cta, launch, group, block, token, columns, first, pairs, slot, added = part
        tiles[group, block, token].append((first, pairs, columns, cta, launch, slot, added))
    for group, (m, n, k) in enumerate(groups):
        for block in range(-(-n // 128)):
            token = 0
            while token < m:
                run = sorted(tiles.pop((group, block, token)))
                assert [piece[0] for piece in run] == [
                    sum(piece[1] for piece in run[:i]) for i in range(len(run))
                ]
                assert sum(piece[1] for piece in run) == -(-k // 128)
                assert len({piece[2] for piece in run}) == 1
                *others, last = run
                assert last[6] == len(others)
                assert [piece[5] for piece in others] == [last[5] + i for i in range(len(others))]
                for piece in others:
                    assert piece[6] == LEAVES_SUMS and piece[3] < last[3] and piece[4] <= last[4]
                token += run[0][2]
    assert not tiles
    assert any(part[9] for part in parts) == splits


def test_what_others_wait_for_is_what_a_cta_does_first(host: ctypes.CDLL) -> None:
    seen: set[int] = set()
    for part in pack(host, [(5, 128, 16384), (40, 256, 8192), (9, 384, 4096)], 7):
        if part[9] == LEAVES_SUMS:
            assert part[0] not in seen and part[8] == part[0]
        seen.add(part[0])


@needs_compiler
@pytest.mark.parametrize("edge", SHAPES)
@every_step
def test_ragged_shapes(kernels: Callable[[str, int], Kernel], step: str, edge: str) -> None:
    sms, fields = SHAPES[edge]
    shape = PROBLEM.parse_shape("edge", fields)
    kernel = kernels(step, sms)
    for seed, name in enumerate(("structured", "full")):
        inputs = PROBLEM.make_inputs(shape, name, seed, "cpu")
        poison = inputs.arena.draw_poison(seed)
        inputs.arena.fill(poison)
        outputs = PROBLEM.outputs_of(kernel(inputs.data), inputs)
        assert inputs.arena.guards_intact(poison), "written outside the outputs"
        comparison = PROBLEM.compare(outputs, PROBLEM.reference(inputs, shape, name), shape, name)
        assert comparison.ok, comparison.reason


@needs_compiler
def test_64_groups_and_a_call_that_comes_again(kernels: Callable[[str, int], Kernel]) -> None:
    """The second call is recorded, the third one replayed; the fourth needs more memory."""
    rng = random.Random(1)
    small = {"m": [rng.choice((0, 1, 9)) for _ in range(64)], "n": [8, 136] * 32, "k": 64}
    kernel = kernels("h07", 3)
    for fields, calls in ((small, 3), (small | {"m": 40, "k": 128}, 1), (small, 2)):
        shape = PROBLEM.parse_shape("many", fields)
        inputs = PROBLEM.make_inputs(shape, "gpu-mode", calls, "cpu")
        for call in range(calls):
            other = PROBLEM.make_inputs(shape, "gpu-mode", call, "cpu")
            refill(inputs, other)
            inputs.arena.fill(inputs.arena.draw_poison(call))
            outputs = PROBLEM.outputs_of(kernel(inputs.data), inputs)
            reference = PROBLEM.reference(inputs, shape, "gpu-mode")
            comparison = PROBLEM.compare(outputs, reference, shape, "gpu-mode")
            assert comparison.ok, comparison.reason


@needs_compiler
@every_step
def test_infinities_are_where_v00_has_them(
    kernels: Callable[[str, int], Kernel], v00: Kernel, step: str
) -> None:
    """Sums that are exact in float32, of which some leave float16 and some only nearly."""
    shape = PROBLEM.parse_shape("inf", {"m": [70, 3], "n": [136, 40], "k": [256, 4096]})
    inputs = PROBLEM.make_inputs(shape, "gpu-mode", 1, "cpu")
    for scales in (*inputs.data[1], *inputs.data[2]):
        for tensor in scales:
            codes = tensor.view(torch.uint8)  # 1 and 2 become 32 and 64
            codes.add_(40)
    outputs = [output.clone() for output in kernels(step, 3)(inputs.data)]
    wanted = [output.clone() for output in v00(inputs.data)]
    for output, expected in zip(outputs, wanted, strict=True):
        assert output.isinf().any() and not output.isinf().all()
        assert torch.equal(output, expected)
    reference = PROBLEM.reference(inputs, shape, "gpu-mode")
    comparison = PROBLEM.compare(outputs, reference, shape, "gpu-mode")
    assert comparison.ok and comparison.exact, comparison.reason


@needs_compiler
@pytest.mark.long
def test_parts_that_wait_for_each_other_do_not_hang_in_any_order() -> None:
    command = [sys.executable, "-m", "kernelbench", "check", "h06", "--seed", "1"]
    command += [
        "--shape",
        "m=5:n=128:k=4096",
        "--sms",
        "3",
        "--schedules",
        "10",
        "--jobs",
        "1",
        "--no-save",
    ]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@needs_compiler
@every_step
def test_the_kernel_is_what_step_toml_says(step: str) -> None:
    found = step_of(step)
    said = EMULATOR.open(found).describe()
    config = found.config
    assert [said["tile_m"], said["tile_n"], said["tile_k"]] == config["tile"]
    assert said["stages"] == config["stages"]
    assert said["threads"] == 32 * config["warps"]
    assert 0 < said["shared_bytes"] <= 232448
    max_groups = 64 if step >= "h07" else 8
    assert found.limits == {"nk": "var", "max_groups": max_groups, "k_multiple": 64}


@needs_compiler
@every_step
def test_a_call_that_breaks_a_limit_is_refused_in_one_line(step: str) -> None:
    library = EMULATOR.open(step_of(step)).library
    for wanted, changes in {
        "group 1: k = 96, not a multiple of 64": {"k": [512, 96]},
        "group 1: n = 12, not a multiple of 8": {"n": [128, 12]},
        "group 1: m = -1, negative": {"m": [5, -1]},
        "group 0: b is null or not aligned to 16 bytes": {"b": [8, 4096]},
    }.items():
        values = {name: [4096] * 2 for name in ("a", "b", "c", "sfa", "sfb")}
        values |= {"m": [5] * 2, "n": [128] * 2, "k": [512] * 2} | changes
        arrays = [
            ((ctypes.c_int32 if name in "mnk" else ctypes.c_uint64) * 2)(*value)
            for name, value in values.items()
        ]
        call = (ctypes.c_uint64 * 10)(2, *(ctypes.addressof(array) for array in arrays), 0)
        message = ctypes.create_string_buffer(256)
        assert library.kb_run(call, message, ctypes.c_size_t(256)) == 1
        assert message.value.decode() == wanted


@pytest.mark.long
@needs_compiler
@every_step
def test_the_host_compiler_has_no_warning(step: str) -> None:
    assert host_warnings(overlay.entry_of(step_of(step)), HOPPER / "common") == ""


@needs_nvcc
@pytest.mark.long
@every_step
def test_products_are_not_serialized(tmp_path: Path, step: str) -> None:
    """ptxas notes it (C7510 to C7520), as no warning: many widths in one kernel provoke it."""
    found = compiler.nvcc()
    assert found is not None
    command = [str(found.path), "-std=c++20", "-O3", "-gencode=arch=compute_90a,code=sm_90a"]
    for folder in (HOPPER / "common", COMMON, COMMON / "backend" / "sm90a"):
        command += ["-I", str(folder)]
    command += ["-cubin", "-o", str(tmp_path / "step.cubin"), str(overlay.entry_of(step_of(step)))]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not re.search(r"C75\d\d|serialized", run.stdout + run.stderr)


@every_step
def test_a_step_is_ordinary_code(step: str) -> None:
    for file in [*(HOPPER / step).glob("*.cu*"), *(HOPPER / "common").glob("*.cuh")]:
        text = file.read_text()
        assert len(text.splitlines()) <= 400, file.name
        assert not re.search(r"\basm\b|<<<|__\w+__\b|#if|cuda", text.replace("__builtin", "")), file
        assert not re.search(r"\bh0\d\b", text), f"{file.name}: the folder is the version"
        assert not re.search(r'#include "\.\./', text), f"{file.name} includes another step's file"
