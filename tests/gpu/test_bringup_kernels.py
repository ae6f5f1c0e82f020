"""The kernels of ``kernelbench bringup``: they compile, and the emulator answers as stated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_native_parity import needs_host, needs_nvcc

from kernelbench.bringup.open_points import POINTS, Point
from kernelbench.bringup.parity_runner import (
    difference,
    emulator_library,
    gpu_library,
    run_parity,
    written,
)
from kernelbench.bringup.parity_suites import ROUNDING, SUITES

PROBES = [point for point in POINTS if point.trials is not None]
#: What the emulator does otherwise; the statement says so.
OTHERWISE = {"scale-copies"}


@needs_nvcc
@pytest.mark.long  # each function of the ptx layer alone: tests/ptx/test_compile.py
def test_the_kernels_compile_for_every_gpu_that_runs_them():
    jobs = {(suite.stem, backend) for suite in SUITES for backend in suite.backends}
    jobs |= {(point.stem, backend) for point in PROBES for backend in point.backends}
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: gpu_library(*job), sorted(jobs)))


def test_every_point_has_a_probe_or_a_reason():
    names = [point.name for point in POINTS]
    assert len(set(names)) == len(names)
    assert all((point.trials is None) == bool(point.why_not) for point in POINTS)


@needs_host
@pytest.mark.parametrize("point", PROBES, ids=lambda point: point.name)
def test_the_emulator_answers_a_probe_as_stated(point: Point):
    trials = point.trials(np.random.default_rng([0, *point.name.encode()]))
    works = {key: trial.work for key, trial in trials.items()}
    ran = run_parity(emulator_library(point.stem), works, ROUNDING)
    assert all(found.out is not None and written(found.out) for found in ran.values()), ran
    known = {key: trial.wanted for key, trial in trials.items() if trial.wanted is not None}
    wanted = {key: to(ran[key].out) if callable(to) else to for key, to in known.items()}
    found = {
        key: difference(ran[key], words, any_nan=point.any_nan) for key, words in wanted.items()
    }
    assert any(found.values()) == (point.name in OTHERWISE), found
