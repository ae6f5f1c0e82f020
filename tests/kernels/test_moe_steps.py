"""MoE steps compute the problem on the emulator for the shapes and routings at its edges. That
their device code neither spills nor warns is in ``tests/lineage/test_code_lock.py``."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from host_warnings import host_warnings
from moe_cases import EMULATED

from kernelbench.build import compiler
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.inspection import code_lock
from kernelbench.inspection.cubin import SHARED_DATA
from kernelbench.problems.fused_moe import abi
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.project import overlay
from kernelbench.project.problem import Inputs
from kernelbench.project.project_file import find_project
from kernelbench.project.registry import Lineages, load_lineages
from kernelbench.project.source_files import sources_of

ROOT = Path(__file__).resolve().parents[2]
MOE = ROOT / "moe"
COMMON = ROOT / "kernels" / "common"
STEPS = sorted(file.parent.name for file in MOE.glob("m[0-9][0-9]/step.toml"))
# Steps that make lists where tokens are many.
LISTED = tuple(f"m{i}" for i in range(11, 25))
# Kernels of a step, each in a file of its name: a fusion shows as a file that is gone.
KERNELS = {
    "m00": {"route", "count", "layout", "quantize", "sort_gather", "gemm", "scatter"},
    "m01": {"route", "count", "layout", "quantize", "sort_gather", "gemm"},
    "m02": {"route", "count", "layout", "quantize_sort_gather", "gemm"},
    **{
        step: {"route", "count_layout", "quantize_sort_gather", "gemm"}
        for step in ("m03", "m04", "m05", "m06")
    },
    "m07": {"route_quantize", "gemm"},
    **{step: {"fused"} for step in ("m08", "m09", "m10")},
    **{step: {"fused", "sorted"} for step in LISTED},
}
# Kernels whose parts are in files of their own, by the kernel; and how many there are, with their
# variants by the tokens of an item.
FUSED_PARTS = {"layout", "items", "load", "multiply", "cut"}
SORTED_PARTS = {
    f"sorted_{part}"
    for part in ("layout", "route", "prepare", "items", "load", "gather", "multiply", "cut")
}
PARTS = {
    **dict.fromkeys(("m08", "m09", "m10"), FUSED_PARTS | {"route"}),
    **dict.fromkeys(LISTED, FUSED_PARTS | SORTED_PARTS | {"choice", "pace"}),
}
PARTS |= dict.fromkeys(("m21", "m22", "m23", "m24"), PARTS["m20"] | {"sorted_quantize"})
INSTANCES = {
    "m08": 3,
    "m09": 3,
    "m10": 3,
    "m11": 3,
    "m12": 4,
    **dict.fromkeys(LISTED[2:], 5),
}

needs_compiler = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
every_step = pytest.mark.parametrize("step", STEPS)
every_emulated_step = pytest.mark.parametrize("step", EMULATED)

Kernel = Callable[[MoeData], torch.Tensor]
MAKE_CALL = abi.make_call


def emulated_on(step: str) -> Target:
    """The emulator; few SMs for a grid whose CTAs are all resident, so that each has much to do."""
    emulation = Emulation(sms=6) if step in PARTS else DEFAULT_EMULATION
    return Target(EMULATOR, "cpu", None, emulation)


@pytest.fixture(scope="module")
def lineages() -> Lineages:
    return load_lineages(find_project(ROOT))


@pytest.fixture(scope="module")
def kernels(lineages: Lineages) -> Callable[[str], Kernel]:
    """A step's callable on the emulator; a finding fails the call."""
    loaded: dict[str, Kernel] = {}

    def get(step: str) -> Kernel:
        if step not in loaded:
            loaded[step] = EMULATOR.load(lineages.get(step), PROBLEM, emulated_on(step), 0.0)
        return loaded[step]

    return get


def test_the_first_steps_are_written() -> None:
    assert "m00" in STEPS and set(STEPS) <= set(KERNELS)


@pytest.mark.long
@needs_compiler
@every_step
def test_the_host_compiler_has_no_warning(lineages: Lineages, step: str) -> None:
    assert host_warnings(overlay.entry_of(lineages.get(step)), MOE / "common") == ""


@every_step
def test_its_device_code_is_its_kernels(lineages: Lineages, step: str) -> None:
    """By the code lock, which is compared with the code in ``tests/lineage``."""
    lock = code_lock.read_lock(ROOT / "results" / code_lock.NAME)
    entries = [entry for key, entry in lock.items() if key.step == step]
    assert {len(entry.kernels.keys() - {SHARED_DATA}) for entry in entries} == {
        INSTANCES.get(step, len(KERNELS[step]))
    }


@every_step
def test_one_file_for_each_kernel(lineages: Lineages, step: str) -> None:
    launch = overlay.entry_of(lineages.get(step)).read_text()
    shared = {file.stem: file.read_text() for file in (MOE / "common").glob("*.cuh")}
    files = {
        name: text
        for name, text in shared.items()
        if f'#include "{name}.cuh"' in launch and "KB_GLOBAL" in text
    }
    sources = sources_of(lineages.get(step)).values()
    files |= {file.stem: file.read_text() for file in sources if file.suffix == ".cuh"}
    parts = PARTS.get(step, set())
    assert set(files) == KERNELS[step] | parts
    for name, text in files.items():
        assert text.count("KB_GLOBAL") == (name not in parts), name
        inner = "::sorted" if name.startswith("sorted_") else "" if name in parts else f"::{name}"
        assert f"namespace kb::step{inner} {{" in text
    for name in KERNELS[step]:
        assert f'#include "{name}.cuh"' in launch
        call = r"launch_resident<.*?>\(" if parts else r"rt::launch\("
        assert len(re.findall(rf"{call}\s*{name}::", launch)) == 1, name


@every_step
def test_a_step_is_ordinary_code(step: str) -> None:
    for file in [*(MOE / step).glob("*.cu*"), *(MOE / "common").glob("*.cuh")]:
        text = file.read_text()
        assert len(text.splitlines()) <= 400, file.name
        assert not re.search(r"\basm\b|<<<|__\w+__\b|#if|cuda", text.replace("__builtin", "")), file
        assert not re.search(r"\bm\d\d\b", text), f"{file.name}: the folder is the version"
        assert not re.search(r'#include "\.\./', text), f"{file.name} includes another step's file"


@needs_compiler
@every_emulated_step
def test_the_kernel_is_what_step_toml_says(lineages: Lineages, step: str) -> None:
    said = EMULATOR.open(lineages.get(step)).describe()
    config: dict[str, Any] = tomllib.loads((MOE / step / "step.toml").read_text())["config"]
    assert [said["tile_m"], said["tile_n"], said["tile_k"]] == config["tile"]
    assert said["stages"] == config.get("stages", 1)
    # One warpgroup and, with stages, a warp that loads; or what it says.
    assert said["threads"] == config.get("threads", 128 + 32 * (said["stages"] > 1))
    stage = 128 * (said["tile_m"] + said["tile_n"])
    assert said["stages"] * stage <= said["shared_bytes"] <= 232448
    launch = overlay.entry_of(lineages.get(step)).read_text()
    _, _, call = launch.rpartition("void enqueue(")  # not what is done once, before the first call
    assert call.count("rt::memset_async(") == config["memsets"]


def expect_right(kernel: Kernel, inputs: Inputs, shape: MoeShape, input_class: str) -> None:
    inputs.data.output.fill_(float("nan"))
    output = kernel(inputs.data)
    reference = PROBLEM.reference(inputs, shape, input_class)
    result = PROBLEM.compare([output], reference, shape, input_class)
    assert result.ok, result.reason


@needs_compiler
@every_emulated_step
@pytest.mark.parametrize(
    "shape",
    [
        MoeShape("smallest", 1, 128, 128, 1, 1),
        MoeShape("one token", 1, 256, 384, 20, 8),
        MoeShape("every expert", 5, 128, 256, 8, 8),
        MoeShape("not normalized, capped", 19, 256, 256, 33, 3, renormalize=False, softcap=2.5),
        MoeShape("three tiles of an expert", 130, 128, 256, 9, 2, routing="one"),
        MoeShape("a full tile of an expert", 64, 128, 128, 3, 1, routing="one"),
        MoeShape("two items of an expert", 150, 384, 640, 3, 2),
        MoeShape("most experts", 7, 128, 128, 512, 8, softcap=30.0),
        MoeShape("wide", 3, 1152, 128, 2, 2),
        MoeShape("long", 3, 128, 4352, 2, 2),
    ],
    ids=lambda shape: shape.name.replace(" ", "-"),
)
@pytest.mark.parametrize("input_class", PROBLEM.input_classes)
def test_right_at_the_edges(
    kernels: Callable[[str], Kernel], step: str, shape: MoeShape, input_class: str
) -> None:
    inputs = PROBLEM.make_inputs(shape, input_class, 11, "cpu")
    expect_right(kernels(step), inputs, shape, input_class)


@needs_compiler
def test_crowded_experts(kernels: Callable[[str], Kernel]) -> None:
    """Of three pieces each, the last ones cut into halves; then of one with many tokens, beside
    another with few."""
    shape = MoeShape("crowded", 40, 256, 256, 64, 8, routing="one")
    inputs = PROBLEM.make_inputs(shape, "random", 3, "cpu")
    expect_right(kernels("m24"), inputs, shape, "random")

    shape = MoeShape("crowded beside few", 100, 128, 128, 8, 1)
    inputs = PROBLEM.make_inputs(shape, "random", 3, "cpu")
    inputs.data.gating.zero_()
    inputs.data.gating[:95, 7] = 9.0
    inputs.data.gating[95:, 0] = 9.0
    expect_right(kernels("m24"), inputs, shape, "random")


@needs_compiler
def test_crowded_pieces_in_three(lineages: Lineages) -> None:
    """Six pieces: four items of each are more than the 20 idle CTAs, three are not."""
    target = Target(EMULATOR, "cpu", None, Emulation(sms=20))
    shape = MoeShape("six pieces", 40, 512, 1152, 32, 3)
    inputs = PROBLEM.make_inputs(shape, "random", 3, "cpu")
    inputs.data.gating[:, 20:23] = 9.0
    kernel = EMULATOR.load(lineages.get("m24"), PROBLEM, target, 0.0)
    expect_right(kernel, inputs, shape, "random")


@needs_compiler
@every_emulated_step
def test_calls_of_different_shapes_follow_each_other(
    kernels: Callable[[str], Kernel], step: str
) -> None:
    for m, n, e in ((33, 256, 12), (2, 128, 3), (40, 128, 30), (33, 256, 12)):
        shape = MoeShape("x", m, n, 256, e, 2)
        inputs = PROBLEM.make_inputs(shape, "structured", m, "cpu")
        expect_right(kernels(step), inputs, shape, "structured")


@needs_compiler
@every_emulated_step
def test_calls_on_two_streams_take_turns(
    kernels: Callable[[str], Kernel], step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator runs each call at once; what a step keeps for a stream is the stream's."""
    kernel = kernels(step)
    shapes = (MoeShape("many", 60, 128, 256, 3, 2), MoeShape("few", 5, 256, 128, 12, 2))
    operands = [PROBLEM.make_inputs(shape, "structured", 4, "cpu") for shape in shapes]
    monkeypatch.setattr(abi.KnownCalls, "find", lambda *_: None)
    for turn in range(8):
        stream = 16 * (1 + turn // 2 % 2)
        on_stream = functools.partial(MAKE_CALL, stream=stream)
        monkeypatch.setattr(
            abi, "make_call", lambda data, device, _, call=on_stream: call(data, device)
        )
        expect_right(kernel, operands[turn % 2], shapes[turn % 2], "structured")


@needs_compiler
@every_emulated_step
def test_ties_go_to_the_lower_expert(kernels: Callable[[str], Kernel], step: str) -> None:
    shape = MoeShape("ties", 6, 128, 128, 70, 4)
    inputs = PROBLEM.make_inputs(shape, "random", 3, "cpu")
    gating = inputs.data.gating
    gating[0] = 0.0
    gating[1] = -0.0
    gating[1, 1::2] = 0.0  # both zeros are one value
    gating[2] = -1e30
    gating[3, 32:] = gating[3, :38].clone()
    gating[4] = -200.0  # the probabilities of all but one are zero in float32
    gating[4, 69] = 0.0
    gating[5] = torch.arange(70.0).flip(0) // 2
    expect_right(kernels(step), inputs, shape, "random")


@needs_compiler
@every_emulated_step
@pytest.mark.parametrize("bits", [0x7FC00000, -1, 0x7F800000], ids=["nan", "-nan", "inf"])
@pytest.mark.parametrize("columns", [slice(3, 4), slice(None)], ids=["one", "all"])
def test_logits_that_are_not_finite_spoil_only_their_token(
    kernels: Callable[[str], Kernel], step: str, bits: int, columns: slice
) -> None:
    shape = MoeShape("x", 4, 128, 128, 6, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 5, "cpu")
    kernel = kernels(step)
    right = kernel(inputs.data).clone()
    inputs.data.gating.view(torch.int32)[1, columns] = bits
    output = kernel(inputs.data)
    assert bool(torch.isnan(output[1]).all())
    others = [0, 2, 3]
    assert torch.allclose(output[others], right[others], rtol=1e-5, atol=1e-6)


@needs_compiler
@every_emulated_step
def test_minus_infinity_leaves_an_expert_out(kernels: Callable[[str], Kernel], step: str) -> None:
    shape = MoeShape("x", 4, 128, 128, 6, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 5, "cpu")
    inputs.data.gating[:, ::2] = -1e30
    right = kernels(step)(inputs.data).clone()
    inputs.data.gating[:, ::2] = -float("inf")
    output = kernels(step)(inputs.data)
    assert torch.allclose(output, right, rtol=1e-5, atol=1e-6)


@needs_compiler
@every_emulated_step
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_inputs_that_are_not_finite_make_their_token_nan(
    kernels: Callable[[str], Kernel], step: str, value: float
) -> None:
    shape = MoeShape("x", 4, 128, 256, 6, 2)
    inputs = PROBLEM.make_inputs(shape, "random", 5, "cpu")
    kernel = kernels(step)
    right = kernel(inputs.data).clone()
    inputs.data.hidden[2, 200] = value
    output = kernel(inputs.data)
    assert bool(torch.isnan(output[2]).all())
    others = [0, 1, 3]
    assert torch.allclose(output[others], right[others], rtol=1e-5, atol=1e-6)
