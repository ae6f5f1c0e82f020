"""What a machine can run: every verdict comes from a condition that can be changed."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kernelbench.base.errors import EnvironmentProblem, ExitCode, PlannedStepError, UsageError
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors import targets
from kernelbench.executors.gpu import GPU, SOFT_GPU
from kernelbench.executors.torch_cpu import TORCH
from kernelbench.kinds import compiled as compiled_module
from kernelbench.machine import devices, toolchain
from kernelbench.machine.environment import read_environment
from kernelbench.project.model import Step

H200 = devices.GpuInfo(0, "NVIDIA H200", (9, 0), 150 << 30, "580.159.04", "13.0", False)
B200 = dataclasses.replace(H200, name="NVIDIA B200", capability=(10, 0))
CUDA_TORCH = devices.TorchInfo("2.11.0+cu130", "13.0")
CPU_TORCH = devices.TorchInfo("2.13.0+cpu", None)


def make_step(**changes):
    step = Step(
        name="v00",
        lineage="kernels",
        problem="p:P",
        parent=None,
        title="",
        technique="",
        hypothesis="",
        arch="any",
        status="works",
        kind="python",
        path=Path("kernels/v00"),
        entry=Path("kernels/v00/submission.py"),
    )
    return dataclasses.replace(step, **changes)


def compiled(path, arch="sm_100a", status="works"):
    return make_step(
        name="v10",
        kind="step",
        arch=arch,
        status=status,
        path=path,
        entry=path / "launch.cu",
    )


@pytest.fixture
def no_gpu(monkeypatch):
    """Hide every GPU, so that these tests say the same on a GPU machine."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def machine(monkeypatch, gpus=(), torch=CUDA_TORCH):
    monkeypatch.setattr(devices, "gpus", lambda: list(gpus))
    monkeypatch.setattr(devices, "gpu_problem", lambda: "" if gpus else "no driver")
    monkeypatch.setattr(devices, "torch_info", lambda: torch)


def verdicts(step, device=0):
    return {name: (works, why) for name, works, why in targets.executors_for(step, device)}


def test_hidden_gpus_are_not_there_and_the_reason_says_so(no_gpu):
    assert devices.gpus() == []
    assert (
        "NVIDIA driver" in devices.gpu_problem() or "CUDA_VISIBLE_DEVICES" in devices.gpu_problem()
    )


def test_python_step_without_gpu_runs_on_the_cpu(no_gpu):
    assert targets.resolve(make_step()) == targets.Target(TORCH, "cpu", None)
    assert targets.runnable(make_step())[0] is True
    found = verdicts(make_step())
    assert found["torch"][0] is True
    assert [found[name][0] for name in ("gpu", "gpu-soft", "emulator")] == [False] * 3


def test_python_step_prefers_the_gpu(monkeypatch):
    machine(monkeypatch, [H200])
    assert targets.resolve(make_step()) == targets.Target(GPU, "cuda:0", H200)
    assert targets.resolve(make_step(), "torch").device == "cpu"


@pytest.mark.parametrize(
    ("gpus", "torch", "device", "said"),
    [
        ([], CUDA_TORCH, 0, "no driver"),
        ([H200], CUDA_TORCH, 3, "no GPU 3"),
        ([H200], CPU_TORCH, 0, "without CUDA"),
        ([H200], None, 0, "not installed"),
        ([dataclasses.replace(H200, cuda_driver="12.8")], CUDA_TORCH, 0, "supports CUDA 12.8"),
    ],
)
def test_why_a_python_step_gets_no_gpu(monkeypatch, gpus, torch, device, said):
    machine(monkeypatch, gpus, torch)
    with pytest.raises(EnvironmentProblem) as caught:
        targets.resolve(make_step(), "gpu", device)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_a_newer_minor_version_of_cuda_is_no_obstacle(monkeypatch):
    machine(monkeypatch, [H200], devices.TorchInfo("2.13.0", "13.2"))
    assert targets.resolve(make_step(), "gpu").executor == targets.GPU


def test_without_torch_nothing_runs_a_python_step(monkeypatch):
    machine(monkeypatch, [H200], None)
    with pytest.raises(EnvironmentProblem, match="running v00 takes torch"):
        targets.resolve(make_step())
    assert targets.runnable(make_step())[0] is False


def test_planned_step(no_gpu, tmp_path):
    planned = compiled(tmp_path, status="planned")
    assert targets.runnable(planned) == (False, "planned")
    assert not any(works for _, works, _ in targets.executors_for(planned))
    with pytest.raises(PlannedStepError) as caught:
        targets.resolve(planned, "emulator")
    assert caught.value.exit_code == ExitCode.USAGE


def test_unknown_executor():
    with pytest.raises(UsageError, match="unknown executor 'cpu'"):
        targets.resolve(make_step(), "cpu")


def test_compiled_steps_need_their_executors_parts(monkeypatch, tmp_path):
    """Each part that is missing is named; with all parts there, the verdict turns."""
    machine(monkeypatch, [B200])
    step = compiled(tmp_path / "kernels" / "v10")
    (tmp_path / "kernels" / "common").mkdir(parents=True)
    assert "common/backend/sm100a" in verdicts(step)["gpu"][1]
    assert "common/backend/emu" in verdicts(step)["emulator"][1]
    for backend in ("sm100a", "soft", "emu"):
        (tmp_path / "kernels" / "common" / "backend" / backend).mkdir(parents=True)
    here = toolchain.Compiler("nvcc", Path("nvcc"), "13.0")
    found: list[toolchain.Compiler] = []
    monkeypatch.setattr(compiled_module, "nvcc", lambda: None)
    monkeypatch.setattr(toolchain, "host_compilers", lambda: found)
    assert "no nvcc" in verdicts(step)["gpu"][1]
    assert "no g++" in verdicts(step)["emulator"][1]
    found.append(toolchain.Compiler("g++", Path("g++"), "9.4.0"))
    assert "needs C++20" in verdicts(step)["emulator"][1]
    found.append(toolchain.Compiler("clang++", Path("clang++"), "17.0.6"))
    monkeypatch.setattr(compiled_module, "nvcc", lambda: here)
    with pytest.raises(UsageError, match=r"v10: .*launch\.cu is missing"):
        targets.resolve(step)
    step.path.mkdir()
    step.entry.touch()
    assert targets.resolve(step).executor == targets.GPU
    assert targets.resolve(step, "emulator") == targets.Target(
        targets.EMULATOR, "cpu", None, DEFAULT_EMULATION
    )
    machine(monkeypatch, [H200])
    assert "this is NVIDIA H200" in verdicts(step)["gpu"][1]
    assert targets.resolve(step) == targets.Target(SOFT_GPU, "cuda:0", H200)
    machine(monkeypatch, [])
    assert targets.resolve(step).executor == targets.EMULATOR


def test_a_lineage_beside_kernels_shares_its_backends(monkeypatch, tmp_path):
    monkeypatch.setattr(
        toolchain, "host_compilers", lambda: [toolchain.Compiler("g++", Path("g++"), "12")]
    )
    (tmp_path / "kernels" / "common" / "backend" / "emu").mkdir(parents=True)
    step = compiled(tmp_path / "moe" / "m00", arch="sm_90a")
    assert verdicts(step)["emulator"][0] is True


def test_soft_executor_is_for_blackwell_steps_only(monkeypatch, tmp_path):
    machine(monkeypatch, [H200])
    assert "sm_90a" in verdicts(compiled(tmp_path, arch="sm_90a"))["gpu-soft"][1]


def test_torch_info_is_what_torch_says():
    torch = pytest.importorskip("torch")
    assert devices.torch_info() == devices.TorchInfo(torch.__version__, torch.version.cuda)


def test_questions_are_answered_without_importing_torch():
    code = (
        "import sys\n"
        "from kernelbench.machine import devices, environment\n"
        "devices.gpus(), devices.torch_info(), environment.cpu_name()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_environment_of_the_cpu(no_gpu):
    pytest.importorskip("torch")
    environment = read_environment("cpu", None)
    assert environment.kind == "cpu"
    assert environment.device.startswith("CPU ")
    assert environment.device.endswith(f"{environment.sms} core" + "s" * (environment.sms != 1))
    assert environment.memory_bytes > 1 << 28
    assert socket.gethostname() not in repr(environment)
