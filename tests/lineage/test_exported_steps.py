"""Compiled steps as one file: it keeps the server's rules, is the step, and gives its answers."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, launch

from kernelbench.base.errors import EnvironmentProblem, ExitCode, UsageError
from kernelbench.build import compiler
from kernelbench.build.flatten import parse_flat
from kernelbench.emulator import runtime as emulator
from kernelbench.executors import targets
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.exported import as_runnable, read_exported
from kernelbench.inspection import code_lock, cubin
from kernelbench.kinds.compiled import (
    backend_folders,
    common_folder,
    flat_source,
    native_backend,
    standalone_flags,
)
from kernelbench.lineages import submission
from kernelbench.machine import devices
from kernelbench.problems.fused_moe.shape import MoeData
from kernelbench.problems.group_gemm import abi as gemm_abi
from kernelbench.problems.moe_layer import LayerData
from kernelbench.project.arena import bits
from kernelbench.project.context import Context
from kernelbench.project.model import Step
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.project_file import project_at

CONTEXT = Context(project_at(ROOT))
STEPS = {s.name: s for s in CONTEXT.lineages.steps if s.compiled and s.status != "planned"}
MAIN = [name for name, step in STEPS.items() if not step.experiment]
GEMM = [name for name in MAIN if STEPS[name].lineage == "group_gemm"]
NVCC = compiler.nvcc()
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc: nothing can be compiled")
#: Six variants of a kernel, which a C++ compiler takes minutes for.
SLOW_BUILD = (pytest.mark.long, pytest.mark.timeout(1200))
needs_host = pytest.mark.skipif(compiler.host_compiler() is None, reason="no C++ compiler")


def problem_of(step: Step) -> Any:
    return load_problem(CONTEXT.lineage_for(step))


def write_export(name: str, folder: Path) -> Path:
    step = STEPS[name]
    file = folder / f"{name.replace('-', '_')}.py"
    file.write_text(submission.export(step, problem=problem_of(step)).text, encoding="utf-8")
    return file


@pytest.mark.parametrize("lineage", ["group_gemm", "group_gemm_hopper", "moe", "moe_layer"])
def test_every_step_can_be_exported_and_read_again(lineage: str, tmp_path: Path) -> None:
    """The rules are checked by the export itself."""
    steps = [STEPS[name] for name in MAIN if STEPS[name].lineage == lineage]
    assert len(steps) > 5
    for step in steps:
        file = write_export(step.name, tmp_path)
        found = read_exported(file)
        assert found is not None
        assert (found.name, found.lineage, found.arch) == (step.name, lineage, step.arch)
        assert (found.config, found.limits) == (step.config, step.limits)
        assert found.source == flat_source(step)
        assert file.stat().st_size < submission.MAX_BYTES / 3


@pytest.mark.parametrize("name", ["v22", "m05-tma-last", "h05"])
def test_nothing_is_lost_between_the_files(name: str) -> None:
    folders = backend_folders(STEPS[name], native_backend(STEPS[name]))
    parts = parse_flat(flat_source(STEPS[name]))
    assert len(parts) > 30
    for label, part in parts.items():
        lines = folders.path(label).read_text().splitlines()
        kept = [line for line in lines if line.split()[:1] not in (["#include"], ["#pragma"])]
        mine = [line for line in part if isinstance(line, str) and "#include" not in line]
        # A loop's pragma stays, and so do the compiler's own headers.
        assert [line for line in mine if line.split()[:1] != ["#pragma"]] == kept, label
        included = sum(line.startswith("#include") for line in lines)
        assert sum(not isinstance(each, str) or "#include <" in each for each in part) == included


def assert_same_code(name: str, folder: Path) -> None:
    """The source in the file builds without a word, to the machine code that the lock holds."""
    found = read_exported(write_export(name, folder))
    assert found is not None and NVCC is not None
    source = folder / "launch.cu"
    source.write_text(found.source)
    flags = [*standalone_flags(STEPS[name]), "-Werror", "all-warnings"]
    built = compiler.compile_shared(f"exported {name}", [source], flags)
    assert compiler.build_log(built).strip() == ""
    code = compiler.compile_shared(f"exported {name}", [source], [*flags, "-cubin"])
    lock = code_lock.read_lock(ROOT / "results" / code_lock.NAME)
    key = code_lock.LockKey(name, STEPS[name].arch, NVCC.version)
    if key not in lock:
        pytest.skip(f"the code lock knows nothing of nvcc {NVCC.version}")
    locked = {symbol: kernel.sha256 for symbol, kernel in lock[key].kernels.items()}
    hashes = cubin._read_sections(code)[1]
    assert {symbol: sha[: len(locked[symbol])] for symbol, sha in hashes.items()} == locked


@needs_nvcc
@pytest.mark.parametrize("name", ["v22"])
def test_the_file_compiles_to_the_machine_code_of_the_step(name: str, tmp_path: Path) -> None:
    assert_same_code(name, tmp_path)


@needs_nvcc
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MAIN if name != "v22"])
def test_every_file_compiles_to_the_machine_code_of_its_step(name: str, tmp_path: Path) -> None:
    assert_same_code(name, tmp_path)


def answers(step: Step, shape: str, input_class: str) -> list[torch.Tensor]:
    """The bits of a step's outputs on the emulator."""
    problem = problem_of(step)
    target = targets.resolve(step, EMULATOR.name)
    kernel = target.executor.load(step, problem, target, 0.0)
    [found] = CONTEXT.shapes_for(problem, [shape])
    inputs = problem.make_inputs(found, input_class, 7, "cpu")
    outputs = problem.outputs_of(kernel(inputs.data), inputs)
    assert all(bool(output.float().any()) for output in outputs)
    return [bits(output) for output in outputs]


def assert_same_answers(name: str, shape: str, folder: Path) -> None:
    file = write_export(name, folder)
    [given] = CONTEXT.lineages.select([str(file)])
    back = as_runnable(given, CONTEXT.lineages, EMULATOR.name, 0)
    assert back.entry is not None and back.entry != STEPS[name].entry
    for input_class in problem_of(back).input_classes:
        pairs = zip(
            answers(STEPS[name], shape, input_class), answers(back, shape, input_class), strict=True
        )
        assert all(torch.equal(one, other) for one, other in pairs), input_class


@needs_host
@pytest.mark.parametrize(("name", "shape"), [("v14", "u1"), ("v22", "D")])
def test_a_file_gives_the_bits_of_its_step(name: str, shape: str, tmp_path: Path) -> None:
    assert_same_answers(name, shape, tmp_path)


@needs_host
@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in GEMM if name != "v14"])
def test_every_file_gives_the_bits_of_its_step(name: str, tmp_path: Path) -> None:
    assert_same_answers(name, "u1", tmp_path)


def emulating_nvcc(folder: Path) -> Path:
    """An nvcc that is the C++ compiler, for sources with the emulator's files in them."""
    host = compiler.host_compiler()
    assert host is not None
    flags = "-x c++ -shared -fPIC -std=c++20 -O0 -pthread -fvisibility=hidden -Wl,-Bsymbolic"
    unique = "-fno-gnu-unique" if host.kind == "g++" else ""
    script = folder / "nvcc"
    script.write_text(
        f"#!{sys.executable}\n"
        "import subprocess, sys\n"
        "if sys.argv[1:] == ['--version']: sys.exit(print('release 13.0, V13.0.88'))\n"
        "given = sys.argv[1:]\n"
        "headers = [w for w in zip(given, given[1:]) if w[0] in ('-isystem', '-o')]\n"
        "files = [word for word in given if word.endswith(('.cu', '.cpp'))]\n"
        f"sys.exit(subprocess.call([{str(host.path)!r}, *{flags!r}.split(), *{unique!r}.split(),\n"
        "    *files, *(part for pair in headers for part in pair)]))\n"
    )
    script.chmod(0o755)
    return script


def named_memory(data: MoeData | LayerData) -> list[tuple[str, torch.Tensor, bool]]:
    named = zip(data._fields, data, strict=True)
    return [(name, each, name == "output") for name, each in named if torch.is_tensor(each)]


@needs_host
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the emulator needs Linux")
@pytest.mark.parametrize(
    ("name", "shape", "memory"),
    [
        pytest.param("v01", "u1", gemm_abi._memory, id="tensors"),
        pytest.param("v22", "u1", gemm_abi._memory, id="tuples"),
        pytest.param("m07", "s6", named_memory, id="moe"),
        pytest.param("l14", "l0", named_memory, id="layer", marks=SLOW_BUILD),
    ],
)
def test_the_file_itself_builds_calls_and_returns(
    name: str, shape: str, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, but that nvcc is another, and its source has the emulator's files in it."""
    file = write_export(name, tmp_path)
    step = STEPS[name]
    given = as_runnable(*CONTEXT.lineages.select([str(file)]), CONTEXT.lineages, EMULATOR.name, 0)
    assert given.entry is not None
    text = file.read_text()
    start = text.index('SOURCE = r"""') + len('SOURCE = r"""')
    end = text.index('"""', start)
    script = tmp_path / "rebuilt.py"
    script.write_text(text[:start] + given.entry.read_text() + text[end:])
    emulating_nvcc(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runtime = emulator.runtime(common_folder(step))
    spec = importlib.util.spec_from_file_location(script.stem, script)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._entry.__dict__["device"] = "cpu"
    monkeypatch.setattr(module.StandaloneStep, "queue_on", lambda _self, _device: lambda: 0)
    problem = problem_of(step)
    [found] = CONTEXT.shapes_for(problem, [shape])
    input_class = problem.input_classes[0]
    inputs = problem.make_inputs(found, input_class, 3, "cpu")
    reference = problem.reference(inputs, found, input_class)
    # The file's own NamedTuple is another than ours: it takes a plain tuple as well.
    for data in (inputs.data, tuple(inputs.data)):
        inputs.arena.fill(inputs.arena.draw_poison(5))
        runtime.configure()
        for label, tensor, writable in memory(inputs.data):
            runtime.register(tensor.data_ptr(), tensor.nbytes, label, writable=writable)
        try:
            outputs = problem.outputs_of(module.custom_kernel(data), inputs)
        finally:
            runtime.unregister_all()
        assert runtime.report()["findings"] == []
        verdict = problem.compare(outputs, reference, found, input_class)
        assert verdict.ok, verdict.reason


def test_words_that_the_server_refuses_come_back(tmp_path: Path) -> None:
    step = replace(
        STEPS["v22"], title="Stream-K", config={"streams": "a stream", "marshal": "direct"}
    )
    text = submission.export(step, problem=problem_of(step)).text
    assert "v22: Str¦eam-K." in text
    (tmp_path / "file.py").write_text(text)
    found = read_exported(tmp_path / "file.py")
    assert found is not None and found.config == step.config


def fake_gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    empty = devices.GpuInfo(*(None for _ in dataclasses.fields(devices.GpuInfo)))
    found = [replace(empty, name="A GPU", capability=capability)]
    monkeypatch.setattr(devices, "gpus", lambda: found)


@needs_nvcc
@pytest.mark.parametrize(("name", "capability"), [("h05", (9, 0)), ("v22", (10, 0))])
def test_on_its_own_gpu_the_file_itself_runs(
    name: str, capability: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_export(name, tmp_path)
    [given] = CONTEXT.lineages.select([str(file)])
    fake_gpu(monkeypatch, capability)
    for executor in ("auto", "gpu"):
        back = as_runnable(given, CONTEXT.lineages, executor, 0)
        assert (back.kind, back.entry, back.limits) == ("python", file, STEPS[name].limits)
        assert CONTEXT.lineage_for(back).name == STEPS[name].lineage


@needs_nvcc
def test_on_another_gpu_its_source_runs_in_software(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_export("v22", tmp_path)
    [given] = CONTEXT.lineages.select([str(file)])
    fake_gpu(monkeypatch, (9, 0))
    with pytest.raises(EnvironmentProblem, match="v22 is written for sm_100a, a Blackwell GPU"):
        as_runnable(given, CONTEXT.lineages, "gpu", 0)
    back = as_runnable(given, CONTEXT.lineages, "auto", 0)
    mine, theirs = (cubin.compile_cubin(step, soft=True) for step in (STEPS["v22"], back))
    assert mine.hashes and mine.hashes == theirs.hashes


def test_a_file_of_an_unknown_lineage_runs_on_its_own_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_export("h05", tmp_path)
    file.write_text(file.read_text().replace("'group_gemm_hopper'", "'elsewhere'"))
    [given] = CONTEXT.lineages.select([str(file)])
    fake_gpu(monkeypatch, (9, 0))
    back = as_runnable(given, CONTEXT.lineages, "auto", 0)
    assert back == replace(given, limits=STEPS["h05"].limits)
    fake_gpu(monkeypatch, (10, 0))
    with pytest.raises(UsageError, match="unknown lineage 'elsewhere'"):
        as_runnable(given, CONTEXT.lineages, "auto", 0)


def test_it_imports_nothing_of_ours(tmp_path: Path) -> None:
    text = write_export("v22", tmp_path).read_text()
    assert "import kernelbench" not in text and "from kernelbench" not in text
    assert str(ROOT) not in text


@needs_host
def test_run_takes_a_file_back_on_the_emulator(tmp_path: Path) -> None:
    file = write_export("v22", tmp_path)
    done = launch("run", file, "--shape", "u0", "--inputs", "gpu-mode", "--no-save")
    assert done.code == ExitCode.PASS, done.err
    assert "executor emulator" in done.out and "1 passed of 1" in done.out
    [given] = CONTEXT.lineages.select([str(file)])
    assert as_runnable(given, CONTEXT.lineages, "auto", 0).limits["k_multiple"] == 256
    with pytest.raises(EnvironmentProblem, match="'torch' cannot run v22: v22 is a compiled step"):
        as_runnable(given, CONTEXT.lineages, "torch", 0)


@needs_host
def test_check_takes_a_file_back(tmp_path: Path) -> None:
    file = write_export("v22", tmp_path)
    done = launch("check", file, "--shape", "u0", "--schedules", "1", "--sms", "4", "--no-save")
    assert done.code == ExitCode.PASS, done.out + done.err


def test_files_that_only_look_like_one(tmp_path: Path) -> None:
    file = write_export("v22", tmp_path)
    text = file.read_text()
    [given] = CONTEXT.lineages.select([str(file)])
    file.write_text(text.replace("'lineage': 'group_gemm'", "'lineage': 'absent'"))
    with pytest.raises(UsageError, match="unknown lineage 'absent'"):
        as_runnable(given, CONTEXT.lineages, EMULATOR.name, 0)
    file.write_text(text.replace("// <<< common/rt.cuh\n", "", 1))
    with pytest.raises(UsageError, match="the source in the file of v22 is damaged"):
        as_runnable(given, CONTEXT.lineages, EMULATOR.name, 0)
    for damage in ("'arch': 'sm_100a'", "MARK = ", "STEP = "):
        file.write_text(text.replace(damage, "X = " if "=" in damage else "'other': 1"))
        assert read_exported(file) is None
    file.write_text(text.replace("'name': 'v22'", "'name': '../v22'"))
    assert read_exported(file) is None
    file.write_text("STEP = SOURCE = MARK = 1\n")
    assert read_exported(file) is None
    assert read_exported(ROOT / "kernels" / "v00" / "submission.py") is None


@pytest.mark.gpu
@needs_nvcc
@pytest.mark.skipif(
    not any(gpu.capability == (9, 0) for gpu in devices.gpus()[:1]), reason="no Hopper GPU"
)
@pytest.mark.parametrize(("name", "shape"), [("h05", "u1"), ("m07", "s0")])
def test_a_file_runs_natively(name: str, shape: str, tmp_path: Path) -> None:
    file = write_export(name, tmp_path)
    arguments = ("--shape", shape, "--executor", "gpu", "--check-only", "--no-save")
    done = launch("run", file, *arguments, gpu=True)
    assert done.code == ExitCode.PASS, done.out + done.err
    assert "1 passed of 1" in done.out


@pytest.mark.gpu
@needs_nvcc
@pytest.mark.skipif(
    not any(gpu.capability == (9, 0) for gpu in devices.gpus()[:1]), reason="no Hopper GPU"
)
def test_a_file_for_another_gpu_says_so_or_runs_in_software(tmp_path: Path) -> None:
    file = write_export("v22", tmp_path)
    refused = launch("run", file, "--shape", "u0", "--executor", "gpu", "--no-save", gpu=True)
    assert refused.code == ExitCode.ENVIRONMENT
    assert "v22 is written for sm_100a" in refused.error
    soft = launch("run", file, "--shape", "u0", "--no-save", gpu=True)
    assert "executor gpu-soft" in soft.out and "1 passed of 1" in soft.out
    call = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import v22; v22.custom_kernel(None)"
    said = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True)
    assert re.fullmatch(
        r"RuntimeError: v22 is built for sm_100a, which .* \(sm_90\) does not run",
        said.stderr.splitlines()[-1],
    )
