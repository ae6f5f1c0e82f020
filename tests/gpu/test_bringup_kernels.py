"""The kernels of ``kernelbench bringup``: they compile, and the emulator answers as stated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from test_native_parity import hopper, needs_host, needs_nvcc

from kernelbench.bringup import native_stages, parity_runner
from kernelbench.bringup.native_stages import ROUNDING, SUITES
from kernelbench.bringup.open_points import POINTS, Point
from kernelbench.bringup.parity_runner import (
    ParityCase,
    difference,
    emulator_library,
    gpu_library,
    on_gpu,
    run_parity,
    written,
)
from kernelbench.emulator.assumptions import ASSUMPTIONS

PROBES = [point for point in POINTS if point.trials is not None]
PLANTED = [point for point in PROBES if point.planted]
#: Without the checker the emulator runs grids one after another.
IN_TURN = {"triggers-hand-on"}
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


@needs_host
@pytest.mark.parametrize("point", PLANTED, ids=lambda point: point.name)
def test_a_probe_refutes_where_a_fault_is_planted(point: Point):
    trials = point.with_faults(point.trials(np.random.default_rng([0, *point.name.encode()])))
    works = {key: trial.work for key, trial in trials.items()}
    ran = run_parity(emulator_library(point.stem), works, ROUNDING)
    found = [difference(ran[key], trial.wanted) for key, trial in trials.items()]
    assert all(found) != (point.name in IN_TURN), found
    assert all(found.out is not None and written(found.out) for found in ran.values()), ran


def test_every_assumption_of_the_checker_has_a_probe_that_can_refute_it():
    assert {point.name for point in PLANTED} == set(ASSUMPTIONS)


@pytest.mark.gpu
@hopper
@needs_nvcc
@pytest.mark.parametrize("seed", range(3))
def test_the_gpu_confirms_what_the_checker_assumes_and_refutes_what_is_planted(seed, monkeypatch):
    monkeypatch.setattr(native_stages, "POINTS", tuple(PLANTED))
    found = {
        line.name: line for line in native_stages.points("sm90a", seed, 60, print, planted=True)
    }
    outcomes = {name: (line.outcome, line.detail) for name, line in found.items()}
    # What is planted there needs grids that overlap, which no H200 has shown.
    proves_nothing = outcomes.pop("triggers-hand-on")
    assert proves_nothing[0] in ("CONFIRMED", "NOT RUN"), proves_nothing
    assert {outcome for outcome, _ in outcomes.values()} == {"CONFIRMED"}, outcomes
    assert all("with a fault planted refuted" in said for _, said in outcomes.values())


HANGS = """
#include "parity.cuh"
#include "ptx/warp.cuh"
#include "wait.cuh"

KB_GLOBAL void waits(const uint32_t* word, uint32_t* out) {
  global_wait_at_least(word, 1);
  out[0] = 1;
}
PARITY_CASE(waits) {
  rt::launch(waits, {.grid = {1, 1, 1}, .threads = 32, .shared_bytes = 0}, test.in, test.out);
}
"""


@pytest.mark.gpu
@hopper
@needs_nvcc
def test_a_case_that_hangs_on_the_gpu_costs_its_time_and_no_other_case(tmp_path, monkeypatch):
    (tmp_path / "hangs.cu").write_text(HANGS)
    (tmp_path / "parity.cuh").write_bytes((parity_runner.SOURCES / "parity.cuh").read_bytes())
    monkeypatch.setattr(parity_runner, "SOURCES", tmp_path)
    never, at_once = (ParityCase("waits", bytes([word, 0, 0, 0]), 4) for word in (0, 1))
    found = on_gpu("hangs", "sm90a", {"never": never, "at once": at_once}, limit_s=10)
    assert found["never"].timed_out
    assert "did not end within 10 s" in found["never"].error
    assert found["at once"].out is not None
