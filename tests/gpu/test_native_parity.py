"""The ptx layer on the GPU and in the emulator: the same kernels, the same bits.

Each group of cases runs natively on an sm_90 GPU and in the emulator. Without a GPU the kernels are
still compiled, and run in the emulator alone.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from parity_inputs import (
    change_cases,
    cluster_cases,
    copy_cases,
    misplaced_cases,
    thread_cases,
)
from parity_products import wgmma_cases
from parity_runner import (
    Work,
    assert_equal,
    emulated,
    emulator_library,
    gpu_library,
    on_gpu,
    outputs,
    run,
)

from kernelbench import build, target

Cases = Callable[[np.random.Generator], dict[str, Work]]

#: Group -> source, and what makes its cases.
GROUPS: dict[str, tuple[str, Cases]] = {
    "threads": ("parity_threads", thread_cases),
    "copies": ("parity_tma", copy_cases),
    "maps": ("parity_tma", change_cases),
    "clusters": ("parity_clusters", cluster_cases),
    "e4m3": ("parity_wgmma", lambda rng: wgmma_cases(rng, "e4m3")),
    "f16": ("parity_wgmma", lambda rng: wgmma_cases(rng, "f16")),
}
#: What the tensor cores do to sums, as far as it is modelled.
ROUNDING = "hardware"

needs_nvcc = pytest.mark.skipif(build.nvcc() is None, reason="no nvcc: nothing can be compiled")
needs_host = pytest.mark.skipif(build.host_compiler() is None, reason="no C++ compiler")
hopper = pytest.mark.skipif(
    not any(gpu.capability == (9, 0) for gpu in target.gpus()), reason="no sm_90 GPU here"
)


def works_of(group: str, seed: int) -> tuple[str, dict[str, Work]]:
    stem, cases = GROUPS[group]
    return stem, cases(np.random.default_rng([seed, *group.encode()]))


@needs_nvcc
def test_the_kernels_compile():
    jobs = [(stem, "sm90a") for stem in dict.fromkeys(stem for stem, _ in GROUPS.values())]
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
    assert_equal(on_gpu(stem, "sm90a", works), outputs(emulated(stem, works, ROUNDING)))


@needs_host
def test_the_emulator_refuses_a_box_that_starts_between_16_bytes():
    works = misplaced_cases(np.random.default_rng(0))
    said = run(emulator_library("parity_tma"), works, ROUNDING)
    assert all(ran.error.startswith("alignment: ") for ran in said.values()), said


@pytest.mark.gpu
@hopper
def test_the_gpu_refuses_a_box_that_starts_between_16_bytes():
    said = on_gpu("parity_tma", "sm90a", misplaced_cases(np.random.default_rng(0)))
    assert all(ran.out is None for ran in said.values()), said
