"""Steps that can multiply either way round: they are built for C^T = B A^T, and C = A B^T is one
constant away."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelbench.build import compiler
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.step_files import read_lineage, read_step

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
CONSTANT = "inline constexpr bool kTranspose = true;"
STEPS = [
    file.parent.name
    for file in sorted(KERNELS.glob("v*/kernel.cuh"))
    if CONSTANT in file.read_text()
]

pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


def test_there_are_such_steps() -> None:
    assert {"v19", "v20", "v21", "v22", "v23"} <= set(STEPS)


@pytest.mark.parametrize("step", ["v19", "v22"])
def test_the_other_way_round_is_right_too(step: str, tmp_path: Path) -> None:
    lineage_folder = tmp_path / "kernels"
    folder = shutil.copytree(KERNELS / step, lineage_folder / step)
    (lineage_folder / "common").symlink_to(KERNELS / "common")
    shutil.copy(KERNELS / "lineage.toml", lineage_folder)
    kernel = folder / "kernel.cuh"
    text = kernel.read_text()
    assert text.count(CONSTANT) == 1
    kernel.write_text(text.replace(CONSTANT, CONSTANT.replace("true", "false")))

    target = Target(EMULATOR, "cpu", None, Emulation(sms=4))
    found = EMULATOR.load(read_step(folder, read_lineage(lineage_folder)), PROBLEM, target, 0.0)
    shape = PROBLEM.parse_shape("edge", {"m": [130, 7], "n": [264, 128], "k": [256, 768]})
    for seed, name in enumerate(("structured", "full")):
        inputs = PROBLEM.make_inputs(shape, name, seed, "cpu")
        poison = inputs.arena.draw_poison(seed)
        inputs.arena.fill(poison)
        outputs = PROBLEM.outputs_of(found(inputs.data), inputs)
        assert inputs.arena.guards_intact(poison), "written outside the outputs"
        comparison = PROBLEM.compare(outputs, PROBLEM.reference(inputs, shape, name), shape, name)
        assert comparison.ok, comparison.reason
