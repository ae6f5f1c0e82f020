"""``examples/kernelbench-moe``: the torch op against the problem's reference, what it refuses, and
both plug-ins against stubs of the engines' interfaces. Tensors are the CPU's, where l00 computes
the op."""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.util
import logging
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import engine_stubs as stubs
import pytest
import torch
from conftest import ROOT

from kernelbench.build import compiler
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.targets import Target
from kernelbench.lineages import standalone
from kernelbench.machine import devices
from kernelbench.problems.moe_layer import PROBLEM, LayerData, LayerShape, abi
from kernelbench.problems.moe_layer.reference import judge_layer
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import load_lineages

EXAMPLE = ROOT / "examples" / "kernelbench-moe"
SHAPE = LayerShape("small", 12, 256, 128, 8, 2)
ENGINES = ("vllm_plugin", "vllm_experts", "sglang_plugin", "sglang_runner")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with its steps, as the build makes it, in a folder on ``sys.path``."""
    folder = tmp_path_factory.mktemp("site")
    package = folder / "kernelbench_moe"
    ignored = shutil.ignore_patterns("__pycache__", "l[0-9]*.py")
    shutil.copytree(EXAMPLE / "src" / "kernelbench_moe", package, ignore=ignored)
    with pytest.MonkeyPatch.context() as patch:
        if importlib.util.find_spec("hatchling") is None:  # on a machine with a GPU, say
            base = SimpleNamespace(BuildHookInterface=list)
            patch.setitem(sys.modules, "hatchling.builders.hooks.plugin.interface", base)
        hook = runpy.run_path(str(EXAMPLE / "export_steps.py"))
    hook["export_steps"](package / "steps")
    return folder


@pytest.fixture(scope="module")
def moe(built: Path) -> Iterator[ModuleType]:
    """The package."""
    sys.path.insert(0, str(built))
    yield importlib.import_module("kernelbench_moe")
    sys.path.remove(str(built))


@pytest.fixture
def plugin(moe: ModuleType) -> Iterator[Callable[[str], Any]]:
    """``plugin(name)``: a module of the package, imported anew while the stubs are in place."""
    forget_plugins()
    yield lambda name: importlib.import_module(f"kernelbench_moe.{name}")
    forget_plugins()


def forget_plugins() -> None:
    for name in ("engines", *ENGINES):
        sys.modules.pop(f"kernelbench_moe.{name}", None)
        package = sys.modules.get("kernelbench_moe")
        if package is not None and hasattr(package, name):
            delattr(package, name)


def draw(shape: LayerShape = SHAPE, input_class: str = "random", seed: int = 1) -> LayerData:
    data: LayerData = PROBLEM.make_inputs(shape, input_class, seed, "cpu").data
    return data


def operands(data: LayerData) -> tuple[torch.Tensor, ...]:
    """In the order of the package's function."""
    return (data.hidden, data.w13, data.w13_scales, data.w2, data.w2_scales, data.ids,
            data.expert_weights)  # fmt: skip


def judge(output: torch.Tensor, data: LayerData) -> None:
    inputs = SimpleNamespace(data=data)
    verdict = judge_layer(output, PROBLEM.reference(inputs, SHAPE, "random"))
    assert verdict.ok, verdict.reason


# The op


@pytest.mark.parametrize("input_class", PROBLEM.input_classes)
def test_the_op_agrees_with_the_float64_reference(moe: ModuleType, input_class: str) -> None:
    data = draw(replace(SHAPE, m=33), input_class)
    data.output.fill_(torch.nan)  # nobody has to zero it
    output = moe.moe_layer(*operands(data), out=data.output)
    assert output is data.output
    judge(output, data)
    rounded = moe.moe_layer(*operands(data))
    assert rounded.dtype is torch.bfloat16
    assert torch.equal(rounded.nan_to_num(9), output.bfloat16().nan_to_num(9))


def test_ids_of_no_expert_add_nothing_and_nan_stays_in_its_token(moe: ModuleType) -> None:
    data = draw()
    data.ids[0] = -1
    data.ids[1] = SHAPE.e
    data.hidden[2, 5] = torch.nan
    data.expert_weights[3, 1] = torch.nan
    output = moe.moe_layer(*operands(data), out_dtype=torch.float32)
    assert not output[:2].any()
    assert output[2:4].isnan().all() and output[4:].isfinite().all()
    judge(output, data)


def test_in_place_and_without_tokens(moe: ModuleType) -> None:
    data = draw()
    expected = moe.moe_layer(*operands(data))
    assert moe.moe_layer(*operands(data), out=data.hidden) is data.hidden
    assert torch.equal(data.hidden, expected)
    none = data._replace(
        hidden=data.hidden[:0], ids=data.ids[:0], expert_weights=data.expert_weights[:0]
    )
    assert moe.moe_layer(*operands(none)).shape == (0, SHAPE.h)


def test_torch_knows_what_the_op_writes(moe: ModuleType) -> None:
    data = draw()
    arguments = (torch.empty(SHAPE.m, SHAPE.h), *operands(data))
    op = torch.ops.kernelbench_moe.moe_layer.default
    # Its test of schemas cannot compare float8 tensors.
    torch.library.opcheck(op, arguments, test_utils=("test_faketensor",))
    before = [tensor.clone() for tensor in arguments[1:]]
    op(*arguments)
    assert all(
        torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        for one, other in zip(before, arguments[1:], strict=True)
    )
    [out] = [each for each in op._schema.arguments if each.alias_info is not None]
    assert out.name == "out" and out.alias_info.is_write


REFUSED: dict[str, tuple[Callable[[LayerData], dict[str, Any]], str]] = {
    "half tokens": (
        lambda d: {"hidden": d.hidden.half()},
        r"hidden: expected bfloat16 \[12, 256\]",
    ),
    "vector": (lambda d: {"hidden": d.hidden[0]}, "hidden: expected 2 dimensions, found shape"),
    "e5m2": (lambda d: {"w2": d.w2.to(torch.float8_e5m2)}, "w2: expected float8_e4m3fn"),
    "gate only": (
        lambda d: {"w13": d.w13[:, :128].contiguous()},
        r"w13: .* \[8, 256, 256\] on cpu",
    ),
    "scales by row": (
        lambda d: {"w13_scales": d.w13_scales.repeat_interleave(128, 1)},
        r"w13_scales: expected float32 \[8, 2, 2\]",
    ),
    "wide ids": (lambda d: {"ids": d.ids.long()}, "topk_ids: expected int32"),
    "half weights": (
        lambda d: {"expert_weights": d.expert_weights.bfloat16()},
        "topk_weights: expected float32",
    ),
    "transposed": (lambda d: {"hidden": d.hidden.T.contiguous().T}, "hidden: expected a dense"),
    "shifted": (
        lambda d: {"hidden": torch.zeros(12 * 256 + 1).bfloat16()[1:].view(12, 256)},
        "hidden: its address is no multiple of 16",
    ),
    "nine experts a token": (
        lambda d: {"ids": d.ids.repeat(1, 5)[:, :9], "expert_weights": torch.ones(12, 9)},
        "topk = 9: l28 takes 1 to 8",
    ),
    "odd width": (lambda d: {"hidden": d.hidden[:, :200]}, "H = 200: l28 takes multiples of 128"),
    "many tokens": (
        lambda d: {"hidden": d.hidden[:1].expand(4097, 256)},
        "M = 4097: the table ends at 4096 tokens",
    ),
    "elsewhere": (lambda d: {"w2": d.w2.to("meta")}, "w2: expected .* on cpu, found .* on meta"),
    "another device": (lambda d: {"hidden": d.hidden.to("meta")}, "tensors on meta"),
    "output": (lambda d: {"output": d.output.half()}, "out: expected bfloat16 or float32"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_call_is_refused_in_one_line_and_writes_nothing(moe: ModuleType, what: str) -> None:
    change, message = REFUSED[what]
    data = draw()
    data.output.fill_(5)
    wrong = data._replace(**change(data))
    assert re.search(message, moe.why_not(*operands(wrong), out=wrong.output))
    if "meta" in message:
        return  # there torch only looks at sizes
    with pytest.raises(moe.RefusedError, match=f"^moe_layer: .*{message}") as caught:
        moe.moe_layer(*operands(wrong), out=wrong.output)
    assert "\n" not in str(caught.value)
    assert bool((wrong.output == 5).all())


def test_the_table_says_what_the_step_says(moe: ModuleType) -> None:
    table = importlib.import_module("kernelbench_moe.table")
    assert [row.tokens for row in table.TABLE] == sorted(row.tokens for row in table.TABLE)
    for name in {row.step for row in table.TABLE}:
        limits = table.LIMITS[name]
        folder = ROOT / "layer" / name
        said = tomllib.loads((folder / "step.toml").read_text())
        assert said["status"] == "works" and said["config"]["synchronize"] == "none"
        assert said["config"]["graph"]
        assert said["limits"] == {
            "max_tokens": limits.tokens,
            "max_hidden": limits.hidden,
            "max_intermediate": limits.intermediate,
        }
        if said.get("kind") == "triton":
            continue  # its memory is the call's, and it has no constants for sizes
        assert said["config"]["workspace"] == "stream"
        while not (folder / "layout.cuh").is_file():  # of the step that it is based on
            folder = folder.parent / tomllib.loads((folder / "step.toml").read_text())["base"]
        code = (folder / "layout.cuh").read_text()
        for constant, value in (
            ("kMaxExperts", limits.experts),
            ("kMaxTopk", limits.topk),
            ("kMaxRoutes", limits.routes),
        ):
            assert f"{constant} = {value};" in code
    assert table.step_for(1) == table.TABLE[0].step and table.step_for(10**6) == ""


def test_memory_is_reserved_once_for_each_stream_and_never_while_a_graph_is_recorded(
    moe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = importlib.import_module("kernelbench_moe.op")
    monkeypatch.setattr(op, "_reserved", set())
    recording = SimpleNamespace(now=True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: recording.now)
    calls: list[Any] = []
    monkeypatch.setattr(op, "load_step", lambda name: calls.append)
    [step] = (row.step for row in op.TABLE)
    given, other = (operands(draw(replace(SHAPE, i=i))) for i in (128, 256))
    with pytest.raises(RuntimeError, match=r"first call .* while a CUDA graph is recorded; make"):
        op._reserve(step, 1, given)
    recording.now = False
    op._reserve(step, 1, given)
    assert [len(call.hidden) for call in calls] == [4096, *range(64, 0, -1)]
    assert all(bool((call.ids == -1).all()) for call in calls)
    op._reserve(step, 1, given)
    assert len(calls) == 65
    recording.now = True
    op._reserve(step, 2, given)  # memory of stream 1
    with pytest.raises(RuntimeError, match=f"first call of {step} .* I = 256"):
        op._reserve(step, 1, other)
    recording.now = False
    op._reserve(step, 2, given)
    assert len(calls) == 130
    op._reserve(step, 1, other)
    assert [len(call.hidden) for call in calls[130:]] == [4096, *range(64, 0, -1)]
    largest = calls[0]
    assert largest.output.shape == (4096, SHAPE.h) and largest.w13 is given[1]
    op._reserve(step, 3, other)
    recording.now = True
    with pytest.raises(RuntimeError, match=r"first call .* on its stream while"):
        op._reserve(step, 3, given)  # its own memory would have to grow


def test_one_process_calls_it_on_one_gpu(moe: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = importlib.import_module("kernelbench_moe.op")
    monkeypatch.setattr(op, "_capability", lambda device: (9, 0) if device.index < 2 else (10, 0))
    monkeypatch.setattr(op, "_launched_on", {torch.device("cuda:0")})
    assert op._refused_device(torch.device("cuda:0")) == ""
    assert "one process for each GPU" in op._refused_device(torch.device("cuda:1"))
    assert "compute capability 10.0" in op._refused_device(torch.device("cuda:2"))


def test_on_a_gpu_a_step_gets_the_call_that_its_custom_kernel_would_make(
    moe: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = importlib.import_module("kernelbench_moe.op")
    made: list[bytes] = []
    entry = SimpleNamespace(call=lambda call: made.append(bytes(call)))
    step = SimpleNamespace(_entry=entry, MoeLayerCall=abi.MoeLayerCall)
    monkeypatch.setattr(op, "_module", lambda name: step)
    monkeypatch.setattr(op, "_reserve", lambda *_: None)
    monkeypatch.setattr(op, "_launched_on", set())
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0x10, raising=False)
    data = draw(SHAPE)
    op._launch(data.output, operands(data))
    assert made == [bytes(abi.make_layer_call(data, torch.device("cpu"), 0x10))]


STUB = """
#include <stddef.h>
#include <string.h>
unsigned char seen[256]; int calls, status;
int kb_run(const void* call, char* message, size_t bytes) {
  memcpy(seen, call, 96); calls++; strncpy(message, "no room", bytes); return status;
}
int reader(int device, void** stream) { *stream = (void*)0x10; return 0; }
"""


@pytest.mark.slow
@pytest.mark.skipif(not all(map(shutil.which, ("nvcc", "g++"))), reason="no nvcc, or no g++")
def test_calls_like_one_that_was_looked_at_are_launched_from_cpp(
    moe: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    op = importlib.import_module("kernelbench_moe.op")
    (tmp_path / "stub.c").write_text(STUB)
    built = ["g++", "-xc", "-shared", "-fPIC", "stub.c", "-o", "stub.so"]
    subprocess.run(built, cwd=tmp_path, check=True)
    stub = ctypes.CDLL(str(tmp_path / "stub.so"))
    step = SimpleNamespace(
        _entry=SimpleNamespace(_library=stub), build_standalone=standalone.build_standalone
    )
    monkeypatch.setattr(op, "_module", lambda name: step)
    monkeypatch.setattr(op, "_admitted", set())
    monkeypatch.setattr(op, "_stream_reader", lambda: ctypes.cast(stub.reader, ctypes.c_void_p))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    test = torch.library.Library("kernelbench_moe_test", "DEF")
    asked: list[Any] = []
    for name in ("moe_layer", "moe_layer_by_python"):
        test.define(f"{name}{op._OPERANDS}")
    test.impl("moe_layer_by_python", lambda *tensors: asked.append(tensors), "CPU")
    launcher = op.load_launcher("", "-DKBM_KEY=CPU", "-DKBM_LIBRARY=kernelbench_moe_test")
    assert launcher is not None
    monkeypatch.setattr(op, "load_launcher", lambda name: launcher)
    call = torch.ops.kernelbench_moe_test.moe_layer
    [name] = (row.step for row in op.TABLE)

    def counts() -> tuple[int, int]:
        return ctypes.c_int.in_dll(stub, "calls").value, len(asked)

    data = draw(SHAPE)
    call(data.output, *operands(data))
    assert counts() == (0, 1)  # nobody admitted it
    op._admit(name, 0x10, operands(data))
    call(data.output, *operands(data))
    assert counts() == (1, 1)
    expected = bytes(abi.make_layer_call(data, torch.device("cpu"), 0x10))
    assert bytes((ctypes.c_ubyte * 96).in_dll(stub, "seen")) == expected
    fewer = draw(replace(SHAPE, m=1))
    rounded = torch.zeros_like(fewer.output, dtype=torch.bfloat16)
    written = []
    for number in (2, 3):  # sums of both are at the same place
        call(rounded, *operands(fewer))
        assert counts() == (number, 1)
        written.append(bytes((ctypes.c_ubyte * 96).in_dll(stub, "seen"))[80:88])
    assert written[0] == written[1] != expected[80:88]
    hidden, w13, w13_scales, w2, w2_scales, ids, weights = operands(data)
    others = [
        (data.output, hidden.float(), w13, w13_scales, w2, w2_scales, ids, weights),
        (data.output, hidden, w13[:-1], w13_scales, w2, w2_scales, ids, weights),
        (data.output.half(), hidden, w13, w13_scales, w2, w2_scales, ids, weights),
        (data.output, hidden, w13, w13_scales, w2, w2_scales, ids.t().contiguous().t(), weights),
        (data.output, hidden, w13, w13_scales, w2, w2_scales, ids[:, :1], weights[:, :1]),
        (data.output[:0], hidden[:0], w13, w13_scales, w2, w2_scales, ids[:0], weights[:0]),
        (data.output, hidden[0], w13, w13_scales, w2, w2_scales, ids, weights),
    ]
    for number, tensors in enumerate(others, 2):
        call(*tensors)
        assert counts() == (3, number)
    ctypes.c_int.in_dll(stub, "status").value = 2
    with pytest.raises(RuntimeError, match="moe_layer: no room"):
        call(data.output, *operands(data))


def test_without_a_compiler_python_launches(
    moe: ModuleType, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    op = importlib.import_module("kernelbench_moe.op")

    def refuse(*_: Any) -> Path:
        raise RuntimeError("no nvcc")

    step = SimpleNamespace(build_standalone=refuse)
    monkeypatch.setattr(op, "_module", lambda name: step)
    monkeypatch.setattr(op, "load_launcher", functools.cache(op.load_launcher.__wrapped__))
    monkeypatch.setattr(op, "_admitted", set())
    [name] = (row.step for row in op.TABLE)
    op._admit(name, 1, operands(draw()))
    assert "launched from Python: no nvcc" in caplog.text
    assert len(op._admitted) == 1


@pytest.fixture(scope="module")
def emulated() -> Callable[[Any], torch.Tensor]:
    """The first row's step on the emulator, on six SMs."""
    first = importlib.import_module("kernelbench_moe.table").TABLE[0]
    step = load_lineages(project_at(ROOT)).get(first.step)
    return EMULATOR.load(step, PROBLEM, Target(EMULATOR, "cpu", None, Emulation(sms=6)), 0.0)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "shape",
    [
        replace(SHAPE, m=1, topk=1),
        replace(SHAPE, m=7, i=256),
        replace(SHAPE, m=20, i=256),
        replace(SHAPE, m=28, h=384, routing="skewed"),
        replace(SHAPE, m=70, routing="one"),
        LayerShape("all", 1, 128, 640, 512, 8),
    ],
    ids=lambda shape: shape.describe(),
)
def test_the_champion_gets_the_tensors_and_is_right(
    moe: ModuleType, emulated: Any, shape: LayerShape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own kernels, through the function that serving engines call."""
    op = importlib.import_module("kernelbench_moe.op")
    seen = []

    def step(data: Any) -> torch.Tensor:
        seen.append([tensor.data_ptr() for tensor in data])
        return emulated(data)

    monkeypatch.setattr(op, "load_step", lambda name: step)
    for input_class in PROBLEM.input_classes:
        data = draw(shape, input_class)
        # The same call again is recorded as a graph, and then launched; nothing is reset between.
        for _ in range(3):
            output = moe.moe_layer(*operands(data), out=data.output.fill_(torch.nan))
            judge(output, data)
            assert seen.pop() == [tensor.data_ptr() for tensor in data]
        # The order of its additions varies: the last bits, too.
        rounded = moe.moe_layer(*operands(data))
        close = {"rtol": 2e-2, "atol": 1e-6, "equal_nan": True}
        torch.testing.assert_close(rounded.float(), output, **close)
    nobody = data._replace(ids=torch.full_like(data.ids, -1))
    assert not moe.moe_layer(*operands(nobody)).any()


# The op on a GPU

needs_hopper = pytest.mark.skipif(
    compiler.nvcc() is None or not any(gpu.capability == (9, 0) for gpu in devices.gpus()[:1]),
    reason="no Hopper GPU, or no nvcc",
)


def draw_on_gpu(m: int, input_class: str = "random", seed: int = 1) -> LayerData:
    shape = LayerShape("gpu", m, 512, 256, 32, 4)
    data: LayerData = PROBLEM.make_inputs(shape, input_class, seed, "cuda:0").data
    return data._replace(output=data.output.fill_(torch.nan))


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize("m", [1, 7, 16, 700, 3000])
def test_on_a_gpu_the_op_agrees_with_the_reference(moe: ModuleType, m: int) -> None:
    for input_class in PROBLEM.input_classes:
        data = draw_on_gpu(m, input_class)
        judge(moe.moe_layer(*operands(data), out=data.output), data)
        rounded = moe.moe_layer(*operands(data)).float()
        torch.testing.assert_close(rounded, data.output, rtol=2e-2, atol=1e-5, equal_nan=True)


@pytest.mark.gpu
@needs_hopper
@pytest.mark.parametrize(("m", "larger"), [(16, 2560), (3000, 4096)])
def test_on_a_gpu_a_graph_computes_what_its_tensors_hold(
    moe: ModuleType, m: int, larger: int
) -> None:
    """Also after larger calls, for which no step allocates what its graphs use anew."""
    data = draw_on_gpu(m)
    moe.moe_layer(*operands(data))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moe.moe_layer(*operands(data), out=data.output)
    for seed in (2, 3):
        large = draw_on_gpu(larger, seed=seed)
        judge(moe.moe_layer(*operands(large), out=large.output), large)
        for tensor, other in zip(data, draw_on_gpu(m, seed=seed), strict=True):
            tensor.copy_(other)
        for _ in range(3):
            graph.replay()
        judge(data.output, data)


@pytest.mark.gpu
@needs_hopper
def test_on_a_gpu_calls_on_two_streams_do_not_meet(moe: ModuleType) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    drawn = [draw_on_gpu(m, seed=m) for m in (16, 200)]
    torch.cuda.synchronize()
    for _ in range(20):
        for stream, data in zip(streams, drawn, strict=True):
            with torch.cuda.stream(stream):
                moe.moe_layer(*operands(data), out=data.output)
    torch.cuda.synchronize()
    for data in drawn:
        judge(data.output, data)


# vLLM


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "kernelbench_moe"]


@pytest.fixture
def vllm(
    plugin: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Any:
    """vLLM's stub, with the plug-in registered; ``vllm.select(config)`` makes experts."""
    caplog.set_level(logging.INFO, "kernelbench_moe")
    oracle = stubs.stub_vllm(monkeypatch)
    plugin("vllm_plugin").register()
    keys = sys.modules["vllm.model_executor.layers.quantization.utils.quant_utils"]

    def select(weights: str = keys.kFp8Static128BlockSym, **changes: Any) -> Any:
        return oracle.select(stubs.vllm_moe_config(**changes), weights, keys.kFp8Dynamic128Sym)

    return SimpleNamespace(oracle=oracle, select=select, plugin=plugin("vllm_plugin"))


def test_vllm_selects_our_experts_and_calls_the_op(vllm: Any, moe: ModuleType) -> None:
    data = draw()
    found = vllm.select()
    assert found.__name__ == "KernelbenchExperts" and issubclass(found, stubs.TritonExperts)
    experts = found(
        stubs.vllm_moe_config(), stubs.vllm_quant_config(data.w13_scales, data.w2_scales)
    )
    given = (data.hidden, data.w13, data.w2, data.ids, data.expert_weights)
    output = stubs.run_modular(experts, *given)
    assert torch.equal(output, moe.moe_layer(*operands(data)))
    wide = stubs.run_modular(experts, *given[:3], data.ids.long(), data.expert_weights)
    assert torch.equal(wide, output)
    assert experts.calls == []


def test_vllm_is_offered_it_once(vllm: Any) -> None:
    offered = vllm.oracle.backend_to_kernel_cls
    vllm.plugin.register()
    assert vllm.oracle.backend_to_kernel_cls is offered
    found = offered(vllm.oracle.Fp8MoeBackend.TRITON)
    assert [each.__name__ for each in found] == ["KernelbenchExperts", "TritonExperts"]
    assert offered(vllm.oracle.Fp8MoeBackend.MARLIN) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_dim": 16512}, "H = 16512: l28 takes multiples of 128 up to 16384"),
        ({"intermediate_size_per_partition": 96}, "I = 96: l28 takes multiples of 128"),
        ({"num_local_experts": 1024}, "E = 1024: l28 takes 1 to 512"),
        ({"experts_per_token": 10}, "topk = 10: l28 takes 1 to 8"),
        ({"in_dtype": torch.float16}, "hidden states are torch.float16"),
        ({"has_bias": True}, "biases"),
        ({"swiglu_limit": 7.0}, "a SwiGLU with limit"),
        ({"activation": stubs.MoEActivation.GELU}, "activation"),
        ({"is_lora_enabled": True}, "LoRA"),
        ({"moe_parallel_config": SimpleNamespace(use_ep=True, dp_size=1)}, "parallel config"),
        ({"moe_parallel_config": SimpleNamespace(use_ep=False, dp_size=2)}, "parallel config"),
        ({"weights": "per tensor"}, "quantization scheme"),
    ],
)
def test_vllm_keeps_layers_that_the_op_does_not_take(
    vllm: Any, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    for _ in range(2):
        assert vllm.select(**changes) is stubs.TritonExperts
    lines = [line for line in said(caplog) if "vLLM keeps its own path" in line]
    assert len(lines) == 1 and reason in lines[0] and "\n" not in lines[0]


def test_vllm_computes_calls_that_the_op_does_not_take(
    vllm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = draw()
    scales = (data.w13_scales, data.w2_scales)
    many = data.hidden[:1].repeat(4097, 1)
    ids, weights = data.ids[:1].repeat(4097, 1), data.expert_weights[:1].repeat(4097, 1)
    for hidden, quant, given, reason in (
        (many, {}, (ids, weights), "M = 4097"),
        (data.hidden, {"a2_scale": torch.ones(1)}, (data.ids, data.expert_weights), "by scales"),
        (data.hidden, {"gemm1_clamp_limit": 7.0}, (data.ids, data.expert_weights), "SwiGLU"),
        (data.hidden, {"w1_bias": torch.ones(1)}, (data.ids, data.expert_weights), "biases"),
    ):
        caplog.clear()
        experts = vllm.select()(stubs.vllm_moe_config(), stubs.vllm_quant_config(*scales, **quant))
        for _ in range(2):
            output = stubs.run_modular(experts, hidden, data.w13, data.w2, *given)
            assert bool((output == 7).all())
        assert len(experts.calls) == 2
        # Unquantized: vLLM's own experts quantize what they asked for unquantized.
        assert experts.calls[0]["hidden_states"] is hidden
        lines = said(caplog)
        assert len(lines) == 1 and reason in lines[0]


# SGLang


@pytest.fixture
def sglang(
    plugin: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Any:
    """SGLang's stub with the plug-in registered."""
    caplog.set_level(logging.INFO, "kernelbench_moe")
    stub = stubs.stub_sglang(monkeypatch)
    for _ in range(2):
        plugin("sglang_plugin").register()
    return stub


def runner_of(stub: Any, block: list[int] | None = None, lora: bool = False, **changes: Any) -> Any:
    method = stubs.Fp8MoEMethod(stub, block or [128, 128])
    method.create_moe_runner(None, stubs.MoeRunnerConfig(**changes), lora)
    return method.runner


def dispatched(data: LayerData, **changes: Any) -> Any:
    topk = stubs.StandardTopKOutput(data.expert_weights, data.ids, None)
    return stubs.StandardDispatchOutput(data.hidden, None, topk)._replace(**changes)


def quant_info(data: LayerData, **changes: Any) -> Any:
    fields = {"w13_scale": data.w13_scales, "w2_scale": data.w2_scales}
    return stubs.TritonMoeQuantInfo(data.w13, data.w2, **fields | changes)


@pytest.mark.parametrize("inplace", [True, False])
def test_sglang_runs_our_core(sglang: Any, moe: ModuleType, inplace: bool) -> None:
    [(target, _, kind)] = sglang.hooks
    assert (target.rsplit(".", 2)[1:], kind) == (["Fp8MoEMethod", "create_moe_runner"], "after")
    assert sglang.names == {"kernelbench"}
    assert set(sglang.pre) == {("standard", "kernelbench")}
    assert set(sglang.post) == {("kernelbench", "standard")}
    data = draw()
    data.ids[1, 0] = -1  # an expert of another rank
    expected = moe.moe_layer(*operands(data))
    runner = runner_of(sglang, inplace=inplace)
    output = runner.run(dispatched(data), quant_info(data))
    assert torch.equal(output.hidden_states, expected)
    assert (output.hidden_states is data.hidden) == inplace
    assert sglang.own_calls == []


def test_sglang_scales_routed_weights(sglang: Any, moe: ModuleType) -> None:
    data = draw()
    runner = runner_of(sglang, inplace=False, routed_scaling_factor=2.5)
    output = runner.run(dispatched(data), quant_info(data)).hidden_states
    scaled = data._replace(expert_weights=data.expert_weights * 2.5)
    assert torch.equal(output, moe.moe_layer(*operands(scaled)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"block": [64, 64]}, "blocks of weights are [64, 64]"),
        ({"lora": True}, "LoRA"),
        ({"activation": "gelu"}, "activation gelu"),
        ({"is_gated": False}, "activation silu"),
        ({"swiglu_limit": 7.0}, "SwiGLU"),
        ({"apply_router_weight_on_input": True}, "router weights on the input"),
        ({"no_combine": True}, "results of single experts"),
        ({"params_dtype": torch.float16}, "hidden states are torch.float16"),
        ({"hidden_size": 16512}, "H = 16512: l28 takes"),
        ({"top_k": 9}, "topk = 9: l28 takes"),
    ],
)
def test_sglang_keeps_layers_that_the_op_does_not_take(
    sglang: Any, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], reason: str
) -> None:
    caplog.clear()
    for _ in range(2):
        assert runner_of(sglang, **changes).runner_core == "triton's core"
    [line] = said(caplog)
    assert reason in line and "SGLang keeps its own path" in line


def test_sglang_keeps_layers_whose_tokens_go_to_other_ranks(sglang: Any) -> None:
    sglang.a2a = stubs.MoeA2ABackend.DEEPEP
    assert runner_of(sglang).runner_core == "triton's core"


def test_sglang_computes_calls_that_the_op_does_not_take(
    sglang: Any, caplog: pytest.LogCaptureFixture
) -> None:
    data = draw()
    runner = runner_of(sglang, inplace=False)
    for given, info, reason in (
        ({"hidden_states": data.hidden.half()}, {}, "hidden: expected bfloat16"),
        ({"hidden_states_scale": torch.ones(12, 2)}, {}, "quantized before"),
        ({"topk_output": SimpleNamespace(format="bypassed")}, {}, "top-k format bypassed"),
        ({}, {"use_fp8_w8a8": False}, "not block-scaled FP8"),
        ({}, {"block_shape": [64, 64]}, "not block-scaled FP8"),
        ({}, {"a13_scale": torch.ones(1)}, "scales of tokens"),
        ({}, {"fuse_swiglu_interleaved": True}, "gate and up interleaved"),
    ):
        caplog.clear()
        sglang.own_calls.clear()
        dispatch, quant = dispatched(data, **given), quant_info(data, **info)
        for _ in range(2):
            output = runner.run(dispatch, quant).hidden_states
            assert bool((output == 7).all())
        assert sglang.own_calls == 2 * [(dispatch, quant, runner.config)]
        if reason != "not block-scaled FP8" or "block_shape" not in info:
            [line] = said(caplog)
            assert reason in line


# Without engines, and as a package


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_without_an_engine_a_line_says_what_is_missing(
    plugin: Callable[[str], Any], caplog: pytest.LogCaptureFixture, engine: str
) -> None:
    if importlib.util.find_spec(engine) is not None:
        pytest.skip(f"{engine} is installed")
    module = plugin(f"{engine}_plugin")
    for _ in range(2):
        module.register()
    [line] = said(caplog)
    assert f"No module named '{engine}'" in line and module.WRITTEN_FOR in line


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_it_can_be_switched_off(
    plugin: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.setenv("KERNELBENCH_MOE", "0")
    oracle = stubs.stub_vllm(monkeypatch)
    stub = stubs.stub_sglang(monkeypatch)
    plugin(f"{engine}_plugin").register()
    assert [each.__name__ for each in oracle.backend_to_kernel_cls(stubs.Fp8MoeBackend.TRITON)] == [
        "TritonExperts"
    ]
    assert stub.hooks == []


def test_a_step_that_was_not_exported_is_named(moe: ModuleType) -> None:
    op = importlib.import_module("kernelbench_moe.op")
    with pytest.raises(RuntimeError, match="step l99 is not there; install the package"):
        op.load_step("l99")


def test_the_repository_holds_no_copy_of_a_step() -> None:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--", "examples/kernelbench-moe"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [name for name in listed if "/steps/" in name] in (
        [],
        ["examples/kernelbench-moe/src/kernelbench_moe/steps/__init__.py"],
    )
    own = ["examples/kernelbench-moe/src/kernelbench_moe/round.cu"]
    assert [name for name in listed if name.endswith((".cu", ".cuh"))] == own


@pytest.mark.slow
def test_the_wheel_has_the_steps_and_the_entry_points(tmp_path: Path) -> None:
    folder = tmp_path / "examples" / "kernelbench-moe"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "l[0-9]*.py"))
    (tmp_path / "kernelbench").symlink_to(ROOT / "kernelbench")
    for name in ("pyproject.toml", "shapes.yaml", "layer", "moe", "kernels", "hopper", "peers"):
        (tmp_path / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        entries = archive.read("kernelbench_moe-0.1.0.dist-info/entry_points.txt").decode()
        text = archive.read("kernelbench_moe/steps/l28.py").decode()
    assert {"kernelbench_moe/steps/l00.py", "kernelbench_moe/steps/__init__.py"} < set(names)
    assert "kernelbench_moe/launcher.cpp" in names
    assert "def custom_kernel(data):" in text
    assert "[vllm.general_plugins]\nkernelbench_moe = kernelbench_moe.vllm_plugin:regis" in entries
    assert "[sglang.srt.plugins]\nkernelbench_moe = kernelbench_moe.sglang_plugin:regis" in entries
