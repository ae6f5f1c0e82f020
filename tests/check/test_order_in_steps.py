"""Faults of order planted in shipped steps: of scopes, of dependent launches, of the grid barrier;
what is never written or set back; and assumptions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import kernelbench
from kernelbench.machine.toolchain import emulator_compiler

pytestmark = [
    pytest.mark.skipif(emulator_compiler() is None, reason="no C++ compiler"),
    pytest.mark.usefixtures("ready_workers"),
]

MOE_SHAPE = "m=3:n=256:k=256:e=4:topk=2"
GEMM_SHAPE = "m=40,300:n=512:k=2048"
GRID_BARRIER = "  if (waits) grid_barrier(args.barrier, before);\n"
SECOND_BARRIER = "  ptx::bar_sync(kRouteBarrier, kRouteThreads);\n"
GPU_FENCE = "ptx::fence(ptx::sem_acq_rel, ptx::scope_gpu);"

#: The step, its file, the change; class and words of the finding.
FAULTS: dict[str, tuple[str, str, tuple[str, str], str, str]] = {
    "a fence at scope cta before an atomic of all CTAs": (
        "m07",
        "gemm.cuh",
        (GPU_FENCE, GPU_FENCE.replace("gpu", "cta")),
        "race",
        "has a scope that does not reach this one",
    ),
    "no wait for the grid before": (
        "m07",
        "gemm.cuh",
        ("  ptx::griddepcontrol_wait();\n", ""),
        "race",
        "that an earlier grid of the stream writes",
    ),
    "an acquire at scope cta of the other CTA's commits": (
        "v22",
        "kernel.cuh",
        ("cluster_wait_parity(&shared.empty", "mbarrier_wait_parity(&shared.empty"),
        "overwrite",
        "acquires at scope cta, and another CTA released it",
    ),
    "outputs set to zero while others add to them": (
        "m08",
        "fused.cuh",
        (
            "multiply_items(shared, args);",
            "clear_outputs(args);\n    multiply_items(shared, args);",
        ),
        "race",
        "writes output that another CTA",
    ),
    "a grid barrier before the threads of a CTA are through": (
        "m08",
        "fused.cuh",
        (SECOND_BARRIER + GRID_BARRIER, GRID_BARRIER),
        "race",
        "device_malloc that another CTA",
    ),
    "no grid barrier": ("m08", "fused.cuh", (GRID_BARRIER, ""), "race", "that another CTA"),
    "outputs that nobody sets to zero": (
        "m07",
        "route_quantize.cuh",
        ("output[i] = {};", ""),
        "unwritten",
        "adds to output that nothing has written in this call",
    ),
}


def checked(step: str, **options: Any) -> Any:
    shape = GEMM_SHAPE if step == "x22" else MOE_SHAPE
    report = kernelbench.check(
        step, (shape,), schedules=1, sms=(4,), seed=7, sequence=False, **options
    )
    return report.steps[0].rows[0]


def plant(root: Path, source: str, file: str, before: str, after: str) -> str:
    """A project with a copy of a shipped step in which a file is changed; the copy's name."""
    moe = source[0] == "m"
    name = "x" + source[1:]
    copy = root / "own" / name
    shutil.copytree(ROOT / ("moe" if moe else "kernels") / source, copy)
    (root / "pyproject.toml").write_text('[tool.kernelbench]\nlineages = ["own"]\n')
    problem = "fused_moe" if moe else "group_gemm"
    (root / "own" / "lineage.toml").write_text(
        f'name = "own"\ntitle = "x"\nproblem = "kernelbench.problems.{problem}:PROBLEM"\n'
        + ('building_blocks = "moe"\n' if moe else "")
    )
    toml = (copy / "step.toml").read_text().replace(f'name = "{source}"', f'name = "{name}"')
    (copy / "step.toml").write_text(toml)
    text = (copy / file).read_text()
    assert before in text
    (copy / file).write_text(text.replace(before, after))
    return name


#: Of these tests/emulator/test_emu_global.py has each in a small kernel.
IN_SMALL_KERNELS = {
    "outputs set to zero while others add to them",
    "a grid barrier before the threads of a CTA are through",
    "no grid barrier",
    "outputs that nobody sets to zero",
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=pytest.mark.long if fault in IN_SMALL_KERNELS else ())
        for fault in FAULTS
    ],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    source, file, (before, after), kind, says = FAULTS[fault]
    name = plant(tmp_path, source, file, before, after)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    row = checked(name)
    found = [seen.finding for seen in row.seen]
    assert any(each.kind == kind and says in each.text for each in found), (row.reason, found)


def test_a_counter_that_is_not_reset_is_the_first_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call routes beyond an expert's rows."""
    name = plant(tmp_path, "m07", "gemm.cuh", "  args.counts[expert] = 0;\n", "")
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    row = kernelbench.check(name, (MOE_SHAPE,), schedules=2, sms=(4,), seed=7, sequence=False)
    (first, *others) = (seen.finding for seen in row.steps[0].rows[0].seen)
    assert first.kind == "not-reset" and first.object.startswith("device_malloc of ")
    assert "route_quantize.cuh" in first.access.where
    assert first.other is not None and first.other.where == first.access.where
    assert "not-reset" not in {each.kind for each in others}


def test_what_a_verdict_rests_on_is_said_and_refused_if_asked() -> None:
    row = checked("m07")
    assert (row.status, row.assumptions) == ("clean", ("dependent-stores",))
    row = checked("m07", strict=True)
    assert row.status == "finding"
    assert row.reason == "rests on dependent-stores, and --strict refuses it"


def test_a_loop_that_polls_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where asynchronous work completes as late as it may: a loop can always run."""
    wait = "mbarrier_wait_parity(&shared.tmem_empty[accum.stage], accum.phase ^ 1);"
    loop = (
        "while (!ptx::mbarrier_try_wait_parity(ptx::sem_acquire, ptx::scope_cta, "
        "&shared.tmem_empty[accum.stage], accum.phase ^ 1)) {\n    }"
    )
    name = plant(tmp_path, "v16", "kernel.cuh", wait, loop)
    monkeypatch.setenv("KERNELBENCH_ROOT", str(tmp_path))
    report = kernelbench.check(name, ("m=40,128:n=256:k=256",), schedules=2, sms=(1,), seed=7)
    (row,) = report.steps[0].rows
    assert (row.status, row.schedules) == ("clean", 2), row
