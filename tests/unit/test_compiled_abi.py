"""Calls of compiled group GEMM steps: what a step's C side receives, and what its answers mean."""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.base.errors import EnvironmentProblem, UsageError
from kernelbench.build import compiler
from kernelbench.kinds.loaded_step import Description, KernelFault, LoadedStep
from kernelbench.problems.group_gemm import abi, tuples
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.problem import Inputs
from kernelbench.project.step_files import read_submission

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "kernels" / "common"
pytestmark = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")

# Writes what it was told into the first bytes of C[0], or fails as C[0] says.
SOURCE = """#include "group_gemm.cuh"
KB_EXPORT int kb_run(const kb::GroupGemmCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] {
    auto* out = reinterpret_cast<uint64_t*>(call->c[0]);
    if (out[0] == 1) throw kb::InvalidCall("takes\\nno such call");
    if (out[0] == 2) throw kb::rt::Error("the launch failed");
    *out++ = uint64_t(call->group_count);
    *out++ = reinterpret_cast<uint64_t>(call->stream);
    for (int g = 0; g < call->group_count; ++g) {
      for (const uint64_t* each : {call->a, call->b, call->c, call->sfa, call->sfb}) {
        *out++ = each[g];
      }
      for (const int32_t* each : {call->m, call->n, call->k}) *out++ = uint64_t(each[g]);
    }
  });
}
KB_EXPORT void kb_describe(kb::Description* out) { *out = {.tile_m = 128, .tmem_columns = 256}; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("abi")
    (folder / "launch.cpp").write_text(SOURCE)
    backend = COMMON / "backend" / "emu"
    return compiler.compile_shared(
        "abi", [folder / "launch.cpp"], ("-std=c++20", "-O1"), include_dirs=(COMMON, backend),
        compiler=compiler.host_compiler(),
    )  # fmt: skip


@pytest.fixture
def entry(library: Path) -> LoadedStep:
    return LoadedStep(ctypes.CDLL(str(library)), library)


@pytest.fixture
def inputs() -> Inputs:
    shape = PROBLEM.parse_shape("x", {"m": [40, 130], "n": [128, 64], "k": [256, 64]})
    drawn = PROBLEM.make_inputs(shape, "gpu-mode", 1, "cpu")
    drawn.arena.flat.zero_()
    return drawn


def step(marshal: str | None = None) -> Any:
    found = read_submission(ROOT / "kernels" / "v00" / "submission.py")
    config = {"marshal": marshal} if marshal else {}
    return replace(found, config=config, limits={"max_groups": 8})


def told(inputs: Inputs) -> list[int]:
    return inputs.outputs[0].view(-1).view(torch.int64)[: 2 + 2 * 8].tolist()


def expected(inputs: Inputs) -> list[int]:
    abc, _, blocked, sizes = inputs.data
    values = [2, 0]
    for tensors, scales, (m, n, k, _) in zip(abc, blocked, sizes, strict=True):
        values += [tensor.data_ptr() for tensor in (*tensors, *scales)] + [m, n, k]
    return values


@pytest.mark.parametrize("marshal", [None, "direct", "tensors", "tuples", "items"])
def test_the_c_side_receives_the_call(
    entry: LoadedStep, inputs: Inputs, marshal: str | None
) -> None:
    kernel = abi.bind_group_gemm(entry, step(marshal), "cpu")
    result = kernel(inputs.data)
    assert told(inputs) == expected(inputs)
    assert [c.data_ptr() for c in result] == [c.data_ptr() for c in inputs.outputs]


@pytest.mark.skipif(
    not (Path(sysconfig.get_path("include")) / "Python.h").is_file(), reason="no Python.h"
)
@pytest.mark.parametrize("marshal", tuples.EXTENDED)
def test_tuples_go_through_the_extension_where_calls_are_timed(
    entry: LoadedStep, inputs: Inputs, monkeypatch: pytest.MonkeyPatch, marshal: str
) -> None:
    monkeypatch.setattr(abi, "_direct", None)
    kernel = abi.bind_group_gemm(replace(entry, timed=True), step(marshal), "cpu")
    result = kernel(inputs.data)
    assert told(inputs) == expected(inputs)
    assert [c.data_ptr() for c in result] == [c.data_ptr() for c in inputs.outputs]
    inputs.outputs[0].view(-1).view(torch.int64)[0] = 1
    with pytest.raises(NotImplementedError, match="takes no such call"):
        kernel(inputs.data)


@pytest.mark.skipif(
    not (Path(sysconfig.get_path("include")) / "Python.h").is_file(), reason="no Python.h"
)
def test_the_extension_refuses_what_is_no_call(inputs: Inputs) -> None:
    extension = tuples.load_tuples()
    abc, _, blocked, sizes = inputs.data
    key = extension.key_of(abc, blocked, sizes)
    assert key == extension.key_of(tuple(abc), blocked, [list(size) for size in sizes])
    assert key != extension.key_of(abc[::-1], blocked, sizes)
    assert key != extension.key_of(abc, blocked, [(1, *size[1:]) for size in sizes])
    for wrong, error in (
        ((abc, blocked[:1], sizes), ValueError),
        ((abc, [pair[:1] for pair in blocked], sizes), ValueError),
        ((abc[0][0], blocked, sizes), TypeError),
        (([(1, 2, 3)] * 2, blocked, sizes), AttributeError),
        ((abc, blocked, [("m", 8, 64, 1)] * 2), TypeError),
        ((abc * 40, blocked * 40, sizes * 40), ValueError),
    ):
        with pytest.raises(error):
            extension.call_items(0, *wrong, 0)


def test_statuses(entry: LoadedStep, inputs: Inputs) -> None:
    kernel = abi.bind_group_gemm(entry, step(), "cpu")
    first = inputs.outputs[0].view(-1).view(torch.int64)
    first[0] = 1
    with pytest.raises(NotImplementedError, match=r"^takes no such call$"):
        kernel(inputs.data)
    first[0] = 2
    with pytest.raises(KernelFault, match=r"^the launch failed$"):
        kernel(inputs.data)


def test_description(entry: LoadedStep) -> None:
    found = entry.describe()
    assert found["tile_m"] == 128
    assert found["tmem_columns"] == 256
    assert found["stages"] == 0
    assert ctypes.sizeof(Description) == 4 * len(found)


def changed(group: int, index: int, change: Callable[[Any], Any], part: int = 0) -> Any:
    def apply(data: Any) -> Any:
        lists = [list(entry) for entry in data]
        tensors = list(lists[part][group])
        tensors[index] = change(tensors[index])
        lists[part][group] = tuple(tensors)
        return tuple(lists)

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed(0, 0, lambda t: t.view(torch.uint8)), r"A of group 0: expected a dense float4"),
        (changed(1, 1, lambda t: t[:-8]), r"B of group 1: .*\[64, 32, 1\] on cpu, found"),
        (changed(0, 2, lambda t: t.to(torch.float32)), r"C of group 0: .*float16\[40, 128, 1\]"),
        (
            changed(1, 2, lambda t: torch.empty(64, 130, 1, dtype=torch.float16).transpose(0, 1)),
            r"C of group 1: .*with strides \(1, 130, 1\)",
        ),
        (changed(0, 0, lambda t: t.contiguous(), 2), r"SFA of group 0: .*with strides"),
        (changed(1, 1, lambda t: t[..., :0, :], 2), r"SFB of group 1"),
        (lambda data: (data[0][:1], *data[1:]), "1 groups of tensors, 2 of scales and 2 of sizes"),
    ],
)
def test_tensors_that_a_kernel_must_not_see(
    entry: LoadedStep, inputs: Inputs, change: Any, message: str
) -> None:
    kernel = abi.bind_group_gemm(entry, step(), "cpu")
    with pytest.raises(ValueError, match=message) as caught:
        kernel(change(inputs.data))
    assert "\n" not in str(caught.value)


def test_tensors_are_looked_at_again_when_they_change(entry: LoadedStep, inputs: Inputs) -> None:
    known = abi._Known(torch.device("cpu"))
    known.require(inputs.data)
    known.require(inputs.data)
    assert len(known._known) == 1
    with pytest.raises(ValueError, match="A of group 0"):
        known.require(changed(0, 0, lambda t: t[:-1])(inputs.data))
    abc, plain, blocked, sizes = inputs.data
    with pytest.raises(ValueError, match="A of group 1"):
        known.require((abc, plain, blocked, [sizes[0], (131, *sizes[1][1:])]))
    assert len(known._known) == 1
    shape = PROBLEM.parse_shape("y", {"m": 1, "n": 8, "k": 64})
    other = PROBLEM.make_inputs(shape, "gpu-mode", 2, "cpu")
    known.require(other.data)
    assert len(known._known) == 2
    del other
    assert len(known._known) == 1, "gone with its tensors"


def test_too_many_groups_are_a_limit(entry: LoadedStep) -> None:
    shape = PROBLEM.parse_shape("x", {"m": [1] * 9, "n": 8, "k": 64})
    kernel = abi.bind_group_gemm(entry, step(), "cpu")
    with pytest.raises(NotImplementedError, match="1 to 8 groups, not 9"):
        kernel(PROBLEM.make_inputs(shape, "gpu-mode", 1, "cpu").data)


def test_the_limits_here_are_those_of_the_header() -> None:
    text = (ROOT / "hopper" / "common" / "check_groups.cuh").read_text()
    assert f"kMostGroups = {abi.MAX_GROUPS};" in text
    assert ctypes.sizeof(abi.GroupGemmCall) == 80


def test_unknown_marshalling(entry: LoadedStep) -> None:
    with pytest.raises(UsageError, match=r"config\.marshal is 'pickle'"):
        abi.bind_group_gemm(entry, step("pickle"), "cpu")


def test_an_extension_without_headers_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuples.sysconfig, "get_path", lambda _: "/nowhere")
    with pytest.raises(EnvironmentProblem, match=r"need Python\.h") as caught:
        tuples.tuples_library()
    assert "\n" not in str(caught.value)
