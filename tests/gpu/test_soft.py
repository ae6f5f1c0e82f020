"""Tensor memory and Cluster Launch Control in software on an sm_90 GPU.

The same kernels run in the emulator; products are also compared with their definition. Where there
is no GPU the kernels are compiled, for sm_100a too, and run in the emulator alone.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_native_parity import assert_equal, hopper, needs_host, needs_nvcc

from kernelbench.bringup.parity_products import (
    Product,
    control_cases,
    memory_cases,
    pair_loads,
    products,
    rounded_product,
)
from kernelbench.bringup.parity_runner import ParityCase, Ran, emulated, gpu_library, on_gpu

BACKEND = "soft"
SOURCES = ("parity_tensor", "parity_control")
#: In the order of ``enum Fault`` of ``parity_control.cu``: what the report must say.
FAULTS = {
    "hang": r"hang: warp 1 \(lane 5\) of CTA [012] waited 20 s for phase parity 0 of the mbarrier "
    r"at offset 0x20 of SharedStorage",
    "counter": r"hang: warp 0 \(lane 0\) of CTA [012] waited 20 s for a counter in global memory "
    r"to reach 9; it is 4",
    "outside": r"fault: warp [01] .* uses 1 columns of tensor memory at (0x200080|0x80), not all",
    "lanes": r"fault: warp [01] .* uses tensor memory at (0x200000|0): lanes that are not",
    "not-freed": r"fault: CTA 0 ended without deallocating its tensor memory",
    "freed-twice": r"fault: warp 0 .* deallocates 128 columns of tensor memory at 0, which",
    "grows": r"fault: warp 1 .* allocates 256 columns of tensor memory after 128: sizes must",
    "all-lanes": r"fault: .* starts a tensor operation in several lanes \(mask 0xffffffff\)",
    "instruction": r"fault: .* multiplies with instruction descriptor 0x8081480, which",
    "descriptor": r"fault: .* shared memory descriptor 0x4000004000010000, which is not valid",
    "after-decline": r"fault: .* requests a cluster after a request that was declined",
}


def rng_for(what: str, seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, *what.encode()])


def works_of(made: dict[str, Product]) -> dict[str, ParityCase]:
    return {name: product.work() for name, product in made.items()}


def expected(made: dict[str, Product]) -> dict[str, np.ndarray]:
    return {name: product.expected() for name, product in made.items()}


@pytest.mark.long
@needs_nvcc
def test_the_kernels_compile():
    jobs = [(stem, backend) for stem in SOURCES for backend in (BACKEND, "sm100a")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: gpu_library(*job), jobs))


@needs_host
def test_the_emulator_multiplies_as_defined():
    made = products(rng_for("products", 0))
    found = emulated("parity_tensor", works_of(made))
    assert_equal({name: Ran(words, "") for name, words in found.items()}, expected(made))


@needs_host
@pytest.mark.parametrize(
    ("stem", "cases"), [("parity_tensor", memory_cases), ("parity_control", control_cases)]
)
def test_every_case_runs_in_the_emulator(stem, cases):
    emulated(stem, cases(rng_for(stem, 0)))


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize(
    ("stem", "cases"), [("parity_tensor", memory_cases), ("parity_control", control_cases)]
)
def test_the_gpu_and_the_emulator_agree(stem, cases):
    works = cases(rng_for(stem, 1))
    assert_equal(on_gpu(stem, BACKEND, works), emulated(stem, works))


@needs_host
def test_loads_towards_the_leader_run_in_the_emulator():
    works = pair_loads(rng_for("pair_loads", 0))
    (case,) = emulated("parity_control", works).values()
    rows = np.frombuffer(works["pair_loads"].given, np.uint32).reshape(2, 2, 1024)
    assert np.array_equal(np.sort(case.reshape(4, 1024)[:2].ravel()), np.sort(rows[0].ravel()))


@pytest.mark.gpu
@hopper
def test_loads_towards_the_leader_are_refused_in_words():
    (case,) = on_gpu("parity_control", BACKEND, pair_loads(rng_for("pair_loads", 1))).values()
    assert re.match(r"fault: .*: the soft executor cannot, a Hopper GPU signals", case.error)


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize("seed", [1, 2])
def test_exact_products_agree(seed):
    made = products(rng_for("products", seed))
    works = works_of(made)
    seen = on_gpu("parity_tensor", BACKEND, works)
    assert_equal(seen, expected(made))
    assert_equal(seen, emulated("parity_tensor", works))


@pytest.mark.gpu
@hopper
@pytest.mark.parametrize("nan", [False, True], ids=["finite", "nan"])
def test_rounded_products_are_as_defined(nan):
    rng = rng_for("rounded", 1)
    made = {f"n{n}": rounded_product(rng, n, nan) for n in (8, 64, 256)}
    assert_equal(on_gpu("parity_tensor", BACKEND, works_of(made)), expected(made), any_nan=True)


@pytest.mark.gpu
@pytest.mark.slow
@hopper
def test_faults_are_reported_in_one_line():
    # Behind the fault's number a counter that stays at 4.
    works = {
        name: ParityCase("faulty", np.array([number, 4], np.uint32).tobytes(), 4)
        for number, name in enumerate(FAULTS)
    }
    said = {name: ran.error for name, ran in on_gpu("parity_control", BACKEND, works).items()}
    wrong = [name for name, wanted in FAULTS.items() if not re.match(wanted, said[name])]
    assert not wrong, "\n".join(f"{name}: {said[name]!r}" for name in wrong)
