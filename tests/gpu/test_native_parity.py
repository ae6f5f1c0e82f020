"""The ptx layer on the GPU and in the emulator: the same kernels, the same bits.

Each group of cases runs natively on an sm_90 GPU and in the emulator. Without a GPU the kernels are
still compiled, and run in the emulator alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from kernelbench.bringup.native_stages import ROUNDING, SUITES
from kernelbench.bringup.parity_inputs import load_case, tensors
from kernelbench.bringup.parity_runner import (
    ParityCase,
    Ran,
    Words,
    difference,
    emulated,
    emulator_library,
    gpu_library,
    on_gpu,
    run_parity,
)
from kernelbench.build import compiler
from kernelbench.machine import devices

#: Those of sm_90a.
GROUPS = {suite.name: suite for suite in SUITES if "sm90a" in suite.backends}

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")
needs_host = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
hopper = pytest.mark.skipif(
    not any(gpu.capability == (9, 0) for gpu in devices.gpus()), reason="no sm_90 GPU here"
)


def works_of(group: str, seed: int) -> tuple[str, dict[str, ParityCase]]:
    return GROUPS[group].stem, GROUPS[group].works(seed)


def misplaced_cases(rng: np.random.Generator) -> dict[str, ParityCase]:
    """Boxes that start between multiples of 16 bytes."""
    return {
        element: load_case(rng, tensors(rng)[f"2d-{element}"], shift=1)
        for element in ("u8", "f16", "f32")
    }


def assert_equal(
    seen: Mapping[str, Ran], wanted: Mapping[str, Words], *, any_nan: bool = False
) -> None:
    """Fail with every case that differs."""
    assert seen.keys() == wanted.keys()
    found = {key: difference(seen[key], wanted[key], any_nan=any_nan) for key in seen}
    wrong = [f"{key}: {what}" for key, what in found.items() if what]
    assert not wrong, f"{len(wrong)} of {len(found)} cases differ:\n" + "\n".join(wrong)


@pytest.mark.long
@needs_nvcc
def test_the_kernels_compile():
    jobs = [(stem, "sm90a") for stem in dict.fromkeys(suite.stem for suite in GROUPS.values())]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: gpu_library(*job), jobs))


@needs_host
@pytest.mark.parametrize("group", GROUPS)
def test_every_case_runs_in_the_emulator(group):
    emulated(*works_of(group, 0), ROUNDING)


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("group", GROUPS)
def test_the_gpu_and_the_emulator_agree(group, seed):
    stem, works = works_of(group, seed)
    assert_equal(on_gpu(stem, "sm90a", works), emulated(stem, works, ROUNDING))


@needs_host
def test_the_emulator_refuses_a_box_that_starts_between_16_bytes():
    works = misplaced_cases(np.random.default_rng(0))
    said = run_parity(emulator_library("parity_tma"), works, ROUNDING)
    assert all(ran.error.startswith("alignment: ") for ran in said.values()), said


@pytest.mark.gpu
@hopper
def test_the_gpu_refuses_a_box_that_starts_between_16_bytes():
    said = on_gpu("parity_tma", "sm90a", misplaced_cases(np.random.default_rng(0)))
    assert all(ran.out is None for ran in said.values()), said
