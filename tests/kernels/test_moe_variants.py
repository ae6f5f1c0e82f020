"""Every variant of a MoE step computes the problem on the emulator, call after call, and differs
from its base in what it says it does."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.build import compiler
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.project.problem import Inputs
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages, Step, load_lineages
from kernelbench.project.source_files import own_sources, sources_of

ROOT = Path(__file__).resolve().parents[2]
VARIANTS = sorted(file.parent.name for file in (ROOT / "moe" / "variants").glob("*/step.toml"))
# Two tiles of rows for some experts, the second one not full, none for others; an odd number of
# blocks of K, so that phases and stages of the two tiles differ; two tiles of columns.
SHAPE = MoeShape("small", 150, 256, 384, 9, 3, routing="skewed", softcap=5.0)

needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
# Few SMs, so that a persistent CTA takes several tiles, one of a cooperative grid several tokens.
TARGET = Target(EMULATOR, "cpu", None, Emulation(sms=2))
every_variant = pytest.mark.parametrize("name", VARIANTS)
#: Of each kind of change one: epilogue, loads, grid, arithmetic. That the others are the code that
#: was shown to be right is the code lock's to say; `make test-long` runs them all.
RUN_IN_EVERY_TEST = {"m03-row-scales", "m05-no-tma", "m05-rescale"}
every_build = pytest.mark.parametrize(
    "name",
    [pytest.param(v, marks=() if v in RUN_IN_EVERY_TEST else pytest.mark.long) for v in VARIANTS],
)

Kernel = Callable[[MoeData], torch.Tensor]


@pytest.fixture(scope="module")
def lineages() -> Lineages:
    return load_lineages(find_project(ROOT))


@pytest.fixture(scope="module")
def kernels(lineages: Lineages) -> Callable[[str], Kernel]:
    """Each variant's callable on the emulator, built when first asked for; a finding fails it."""
    return functools.cache(lambda name: EMULATOR.load(lineages.get(name), PROBLEM, TARGET, 0.0))


@pytest.fixture(scope="module")
def operands() -> tuple[Inputs, Any]:
    """The operands of SHAPE and their reference."""
    inputs = PROBLEM.make_inputs(SHAPE, "random", 7, "cpu")
    return inputs, PROBLEM.reference(inputs, SHAPE, "random")


def test_an_expert_has_two_tiles_and_another_one_none(operands: tuple[Inputs, Any]) -> None:
    ids = operands[0].data.gating.topk(SHAPE.topk).indices.flatten()
    rows = torch.bincount(ids, minlength=SHAPE.e)
    assert 64 < int(rows.max()) < 128
    assert int(rows.min()) == 0


@needs_compiler
@every_build
def test_right_call_after_call(
    kernels: Callable[[str], Kernel], operands: tuple[Inputs, Any], name: str
) -> None:
    kernel = kernels(name)
    inputs, reference = operands
    for _ in range(2):
        inputs.data.output.fill_(float("nan"))
        result = PROBLEM.compare([kernel(inputs.data)], reference, SHAPE, "random")
        assert result.ok, result.reason


def changes(step: Step) -> list[str]:
    """What a variant says itself: files of its own, and fields that reach the build."""
    return [*own_sources(step), *step.gpu_flags]


@every_variant
def test_a_variant_is_its_base_but_for_one_idea(lineages: Lineages, name: str) -> None:
    step = lineages.get(name)
    assert step.base is not None and step.base.name == step.parent
    assert name.startswith(f"{step.parent}-")
    assert changes(step), "it differs in nothing"
    base = sources_of(lineages.get(step.base.name))
    for file, path in own_sources(step).items():
        assert file not in base or base[file].read_text() != path.read_text(), file


@needs_compiler
@every_build
def test_the_kernel_is_what_step_toml_says(
    lineages: Lineages, kernels: Callable[[str], Kernel], name: str
) -> None:
    kernels(name)  # built once
    step = lineages.get(name)
    said = EMULATOR.open(step).describe()
    assert [said["tile_m"], said["tile_n"], said["tile_k"]] == step.config["tile"]
    assert said["stages"] == step.config.get("stages", 1)
    assert said["shared_bytes"] >= (said["tile_m"] + said["tile_n"]) * said["tile_k"]


@every_variant
def test_a_variant_is_ordinary_code(lineages: Lineages, name: str) -> None:
    step = lineages.get(name)
    for file in own_sources(step).values():
        text = file.read_text()
        assert len(text.splitlines()) <= 400, file.name
        assert not re.search(r"\basm\b|<<<|__\w+__\b|#if|cuda", text.replace("__builtin", "")), file
        assert not re.search(r"\bm0\d\b", text), f"{file.name}: the folder is the version"
    assert (step.path / "README.md").read_text().startswith(f"# {name} · {step.title}\n")


@needs_compiler
def test_one_accumulator_for_all_of_k_breaks_the_bound(
    kernels: Callable[[str], Kernel],
) -> None:
    """Why that variant counts as failed; a block after another stays within it."""
    shape = MoeShape("long", 16, 128, 2048, 8, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 7, "cpu")
    reference = PROBLEM.reference(inputs, shape, "random")
    errors = []
    for name in ("m05-rescale", "m05-halves"):
        result = PROBLEM.compare([kernels(name)(inputs.data)], reference, shape, "random")
        assert result.rel_rms_err is not None
        errors.append(result.rel_rms_err)
        assert result.ok == (name == "m05-halves")
    assert errors[0] > 1e-3 > errors[1]
