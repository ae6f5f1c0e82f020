"""Calls of compiled fused MoE steps: what a step's C side receives, and what is refused before."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelbench.build import compiler
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.problems.fused_moe import abi
from kernelbench.problems.fused_moe.problem import PROBLEM
from kernelbench.problems.fused_moe.shape import MoeData, MoeShape
from kernelbench.project.problem import Inputs

ROOT = Path(__file__).parents[2]
COMMON = ROOT / "kernels" / "common"
CPU = torch.device("cpu")
SHAPE = MoeShape("x", 5, 256, 384, 7, 3, renormalize=False, softcap=2.5)

# Writes what it was told into the first bytes of the output.
SOURCE = """#include "moe_checks.cuh"
KB_EXPORT int kb_run(const kb::FusedMoeCall* call, char* message, size_t size) {
  return kb::guarded(message, size, [&] {
    kb::check_call(*call);
    auto* out = reinterpret_cast<uint64_t*>(call->output);
    for (int32_t each : {call->m, call->n, call->k, call->e, call->topk, call->renormalize}) {
      *out++ = uint64_t(each);
    }
    *out++ = uint64_t(1000 * call->softcap);
    *out++ = reinterpret_cast<uint64_t>(call->hidden);
    *out++ = reinterpret_cast<uint64_t>(call->gating);
    *out++ = reinterpret_cast<uint64_t>(call->weights);
    *out++ = reinterpret_cast<uint64_t>(call->weight_scales);
    *out++ = reinterpret_cast<uint64_t>(call->output);
    *out++ = reinterpret_cast<uint64_t>(call->stream);
  });
}
KB_EXPORT void kb_describe(kb::Description* out) { *out = {}; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if compiler.host_compiler() is None:
        pytest.skip("no C++ compiler")
    folder = tmp_path_factory.mktemp("moe-abi")
    (folder / "launch.cpp").write_text(SOURCE)
    return compiler.compile_shared(
        "moe abi", [folder / "launch.cpp"], ("-std=c++20", "-O1"),
        include_dirs=(ROOT / "moe" / "common", COMMON, COMMON / "backend" / "emu"),
        compiler=compiler.host_compiler(),
    )  # fmt: skip


@pytest.fixture
def entry(library: Path) -> LoadedStep:
    return LoadedStep(ctypes.CDLL(str(library)), library)


@pytest.fixture
def inputs() -> Inputs:
    return PROBLEM.make_inputs(SHAPE, "random", 1, "cpu")


def test_the_c_side_receives_the_call(entry: LoadedStep, inputs: Inputs) -> None:
    data = inputs.data
    assert abi.bind_moe(entry, "cpu")(data) is data.output
    told = data.output.view(-1).view(torch.int64)[:13].tolist()
    pointers = [tensor.data_ptr() for tensor in data[:5]]
    assert told == [5, 256, 384, 7, 3, 0, 2500, *pointers, 0]


def test_the_stream_and_renormalize_are_passed_on(inputs: Inputs) -> None:
    call = abi.make_call(inputs.data._replace(renormalize=True), CPU, 0x1230)
    assert (call.stream, call.renormalize) == (0x1230, 1)


def test_a_call_that_comes_again_is_not_checked_anew(
    entry: LoadedStep, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[MoeData] = []
    make = abi.make_call
    monkeypatch.setattr(
        abi, "make_call", lambda data, *rest: made.append(data) or make(data, *rest)
    )
    kernel = abi.bind_moe(entry, "cpu")
    for _ in range(2):
        kernel(inputs.data)
        kernel(inputs.data._replace(renormalize=True))
    assert [data.renormalize for data in made] == [inputs.data.renormalize, True]
    # A tensor's memory is elsewhere: the C side is told where, and whether it fits is asked again.
    inputs.data.gating.data = inputs.data.gating.clone()
    told = kernel(inputs.data).view(-1).view(torch.int64)[8].item()
    assert (len(made), told) == (3, inputs.data.gating.data_ptr())
    inputs.data.gating.data = inputs.data.gating[:, :6].clone()
    with pytest.raises(ValueError, match="gating: "):
        kernel(inputs.data)


def test_what_is_known_of_a_call_goes_with_its_tensors(inputs: Inputs) -> None:
    known = abi.KnownCalls(5)
    data = inputs.data._replace(gating=inputs.data.gating.clone())
    assert known.find(data, 0) is None
    assert known.keep("call", data, 0) == known.find(data, 0) == "call"
    assert known.find(data, 16) is None, "another stream"
    assert known.find(inputs.data, 0) is None
    del data
    assert not known._known


def test_the_memory_of_a_call_is_registered_and_forgotten(
    entry: LoadedStep, inputs: Inputs
) -> None:
    class Runtime:
        def __init__(self) -> None:
            self.seen: dict[str, tuple[int, int, bool]] = {}
            self.forgotten = 0
            self.queueing = False
            self.stream = 0

        def register(
            self, address: int, size: int, name: str, *, writable: bool, fresh: bool
        ) -> None:
            self.seen[name] = (address, size, writable)
            assert fresh == writable

        def unregister_all(self) -> None:
            self.forgotten += 1

    runtime: Any = Runtime()
    emulated = LoadedStep(entry.library, entry.path, runtime)
    abi.bind_moe(emulated, "cpu")(inputs.data)
    names = ("hidden", "gating", "weights", "weight_scales", "output")
    assert runtime.seen == {
        name: (tensor.data_ptr(), tensor.nbytes, name == "output")
        for name, tensor in zip(names, inputs.data[:5], strict=True)
    }
    with pytest.raises(NotImplementedError):
        abi.bind_moe(emulated, "cpu")(inputs.data._replace(topk=8))
    assert runtime.forgotten == 2


def changed(name: str, change: Callable[[torch.Tensor], Any]) -> Callable[[MoeData], MoeData]:
    return lambda data: data._replace(**{name: change(getattr(data, name))})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("hidden", lambda t: t.float()), r"hidden: expected a dense bfloat16\[5, 384\]"),
        (
            changed("hidden", lambda t: t[:4]),
            r"gating: .* float32\[4, 7\] on cpu, found .*\[5, 7\]",
        ),
        (changed("hidden", lambda t: t[0]), r"hidden: expected a tensor of 2 dimensions"),
        (changed("hidden", lambda t: t[:, ::2]), r"hidden: .*\[5, 192\].* strides \(384, 2\)"),
        (changed("gating", lambda t: t[:, :6]), r"gating: .*\[5, 7\]"),
        (changed("gating", lambda t: t.T.contiguous().T), r"gating: .*strides \(1, 5\)"),
        (changed("weights", lambda t: t.view(torch.uint8)), r"weights: .*float8_e4m3fn\[7, 256"),
        (changed("weights", lambda t: t.mT), r"weights: expected a dense .*\[7, 384, 384\]"),
        (changed("weight_scales", lambda t: t[:, :1]), r"weight_scales: .*\[7, 2, 3\]"),
        (changed("weight_scales", lambda t: t.double()), r"weight_scales: .*float32"),
        (changed("weight_scales", lambda t: None), r"weight_scales: expected a tensor, found"),
        (changed("output", lambda t: t.half()), r"output: expected a dense float32\[5, 256\]"),
        (changed("output", lambda t: t.to("meta")), r"output: .* on cpu, found .*meta"),
        (lambda data: data._replace(topk=0), r"topk = 0: expected a positive"),
        (lambda data: data._replace(topk=2.0), r"topk: expected an integer, found float"),
        (lambda data: data._replace(topk=True), r"topk: expected an integer, found bool"),
        (lambda data: data._replace(softcap="3"), r"softcap: expected a number, found str"),
    ],
)
def test_tensors_that_a_kernel_must_not_see(
    entry: LoadedStep, inputs: Inputs, change: Callable[[MoeData], MoeData], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        abi.bind_moe(entry, "cpu")(change(inputs.data))
    assert "\n" not in str(caught.value)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor at an address that is no multiple of 16."""
    bits = torch.zeros(tensor.numel() + 32, dtype=tensor.dtype)
    elements = 1 if tensor.dtype != torch.bfloat16 else 2
    found = bits[elements : elements + tensor.numel()].view(tensor.shape)
    return found if found.data_ptr() % 16 else bits[: tensor.numel()].view(tensor.shape)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data._replace(topk=8), "topk = 8: expected 1 to 7"),
        (lambda data: data._replace(softcap=-1.0), "softcap = -1.000000: expected 0 or a bound"),
        (lambda data: data._replace(softcap=float("nan")), "softcap = nan: expected 0 or a bound"),
        (changed("weights", misaligned), "weights is null or not aligned to 16 bytes"),
        (changed("hidden", misaligned), "hidden is null or not aligned to 16 bytes"),
    ],
)
def test_limits_of_the_steps_are_refused_in_one_line(
    entry: LoadedStep, inputs: Inputs, change: Callable[[MoeData], MoeData], message: str
) -> None:
    with pytest.raises(NotImplementedError) as caught:
        abi.bind_moe(entry, "cpu")(change(inputs.data))
    assert str(caught.value) == message


def tensors(m: int, n: int, k: int, e: int, topk: int) -> MoeData:
    """Operands of any shape, also of those that the problem refuses."""
    return MoeData(
        torch.zeros(m, k, dtype=torch.bfloat16), torch.zeros(m, e),
        torch.zeros(e, n, k, dtype=torch.uint8).view(torch.float8_e4m3fn),
        torch.zeros(e, n // 128, k // 128), torch.zeros(m, n), topk, True, 0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 192, 128, 1, 1), "n = 192: expected a multiple of 128"),
        ((1, 128, 200, 1, 1), "k = 200: expected a multiple of 128"),
        ((1, 128, 128, 513, 1), "e = 513: expected 1 to 512"),
        ((1, 128, 128, 16, 9), "topk = 9: expected 1 to 8"),
    ],
)
def test_shapes_out_of_range_are_refused_in_one_line(
    entry: LoadedStep, shape: tuple[int, int, int, int, int], message: str
) -> None:
    with pytest.raises(NotImplementedError) as caught:
        abi.bind_moe(entry, "cpu")(tensors(*shape))
    assert str(caught.value) == message
