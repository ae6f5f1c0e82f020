"""``kernelbench sanitize``: every way in which a tool can end, with a program in its place."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, processes_with
from gpu_tools import DONE, H200, FakeTool, fake_tool, on_h200, project

from kernelbench.base import schema
from kernelbench.base.child_process import Outcome
from kernelbench.base.errors import ExitCode
from kernelbench.build import compiler
from kernelbench.cli import invoke as run
from kernelbench.inspection import gpu_tool
from kernelbench.inspection.sanitize import SanitizeRecord
from kernelbench.inspection.tool_child import CallsMade
from kernelbench.machine import devices

__all__ = ["fake_tool", "on_h200", "project"]  # fixtures

VERSION = "NVIDIA (R) Compute Sanitizer\nVersion 2025.3.1.0 (build 36400806) (public-release)"
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_RACE = (
    "========= COMPUTE-SANITIZER\n"
    "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
)
WRITES = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at kb::ptx::store+0xb0 in store.inl:39
=========     by thread (0,0,0) in block (0,0,0)
=========         Device Frame: kb::step::gemm+0x30 in submission.py:44
=========
========= ERROR SUMMARY: 3 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at kb::ptx::cp_async_bulk_shared_global+0x90 in tma.inl:9
=========     and Read access at kb::ptx::ld_shared+0x100 in ld.inl:5 [8 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""  # noqa: E501 (lines of the tool)
ALL_CLEAN = {"memcheck": CLEAN, "racecheck": NO_RACE, "synccheck": CLEAN}

needs_nvcc = pytest.mark.skipif(compiler.nvcc() is None, reason="no nvcc: nothing can be compiled")


@pytest.fixture
def sanitizer(project: Path, fake_tool: Callable[[str, str], FakeTool]) -> FakeTool:
    """A compute-sanitizer that finds nothing."""
    tool = fake_tool("compute-sanitizer", VERSION)
    tool.says(logs=ALL_CLEAN)
    return tool


def summaries(text: str) -> dict[str, str]:
    """The summary line of each tool."""
    return dict(re.findall(r"^(\w+check) +(.*)$", text, re.MULTILINE))


def test_clean(sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["sanitize", "w0", "--seed", "7"]) == ExitCode.PASS
    text = capsys.readouterr().out
    assert text.startswith(
        "w0  u0 · gpu, NVIDIA H200 · compute-sanitizer 2025.3.1.0 · 2 calls · gpu-mode · seed 7\n"
    )
    assert summaries(text) == dict.fromkeys(ALL_CLEAN, "clean")
    assert [words[words.index("--tool") + 1] for words in sanitizer.calls] == [*ALL_CLEAN]
    assert "kernels cannot be told from others" in text
    for words in sanitizer.calls:
        assert words[words.index("-m") + 1] == "kernelbench.base.child_process"
        assert "--kernel-name" not in words
    for environment in sanitizer.environments:
        assert environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] == "1"
    logs = [Path(log) for log in re.findall(r"log: (.+)", text)]
    assert [log.name for log in logs] == ["memcheck.log", "racecheck.log", "synccheck.log"]
    assert logs[0].read_text() == CLEAN


def test_findings_with_their_place(sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    sanitizer.says(logs=ALL_CLEAN | {"memcheck": WRITES})
    assert run(["sanitize", "w0"]) == ExitCode.INCORRECT
    text = capsys.readouterr().out
    assert summaries(text) == {
        "memcheck": "findings: 3", "racecheck": "clean", "synccheck": "clean",
    }  # fmt: skip
    assert (
        "  first: Invalid __global__ write of size 4 bytes in kb::step::gemm at submission.py:44\n"
    ) in text


def test_explained_findings_are_shown_and_strict_counts_them(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]
) -> None:
    sanitizer.says(RACE)
    arguments = ["sanitize", "w0", "--tool", "racecheck"]
    assert run(arguments) == ExitCode.PASS
    text = capsys.readouterr().out
    assert summaries(text) == {"racecheck": "explained: 1 with a known cause of false positives"}
    assert "  explained ×1: one side is an asynchronous bulk copy; before 2026.3 racecheck" in text
    assert "Race reported between Write access and Read access in kb::ptx::ld_shared" in text
    assert " at tma.inl:9 and ld.inl:5\n" in text
    assert run([*arguments, "--strict"]) == ExitCode.INCORRECT
    # The same log of a release without that fault is a finding.
    sanitizer.says(RACE, version=VERSION.replace("2025.3.1.0", "2026.3.0.0"))
    assert run(arguments) == ExitCode.INCORRECT


def test_an_explained_finding_does_not_cover_another(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]
) -> None:
    sanitizer.says(RACE.replace("SUMMARY: 1 hazard displayed", "SUMMARY: 2 hazards displayed"))
    assert run(["sanitize", "w0", "--tool", "racecheck"]) == ExitCode.INCORRECT
    assert summaries(capsys.readouterr().out) == {"racecheck": "findings: 1, and 1 explained"}


@pytest.mark.parametrize(
    ("log", "said", "summary"),
    [
        (CLEAN, {"outcome": None, "code": 139, "prints": "Segmentation fault"},
         "failed: the step's process ended before its calls were done; last printed: Segmentation"),
        ("========= COMPUTE-SANITIZER\n", {"code": 9},
         "failed: it ended with code 9 and no summary"),
        ("", {"outcome": None, "code": 1}, "failed: it ended with code 1 and no summary"),
        ("========= Error: Device not supported. See the manual.\n", {"outcome": None, "code": 255},
         "failed: Device not supported. See the manual."),
        ("========= Internal Sanitizer Error: it didn't track the launch.\n" + CLEAN, {},
         "failed: Internal Sanitizer Error: it didn't track the launch."),
        (CLEAN, {"outcome": DONE | {"status": "limit", "reason": "m is at most 8"}},
         "failed: the step does not take the call: m is at most 8"),
    ],
)  # fmt: skip
def test_a_tool_that_fails_is_never_clean(
    sanitizer: FakeTool,
    capsys: pytest.CaptureFixture[str],
    log: str,
    said: dict[str, object],
    summary: str,
) -> None:
    sanitizer.says(log, **said)  # type: ignore[arg-type]
    assert run(["sanitize", "w0", "--tool", "memcheck"]) == ExitCode.ENVIRONMENT
    assert summaries(capsys.readouterr().out)["memcheck"].startswith(summary)


def test_a_step_that_raises(sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    sanitizer.says(CLEAN, outcome=DONE | {"status": "fault", "reason": "raised ValueError: no"})
    assert run(["sanitize", "w0", "--tool", "memcheck"]) == ExitCode.INCORRECT
    assert summaries(capsys.readouterr().out) == {"memcheck": "fault: raised ValueError: no"}


def test_a_tool_that_does_not_end(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = f"KB_TEST_MARK={time.time_ns()}"
    monkeypatch.setenv(*mark.split("="))
    sanitizer.says("========= COMPUTE-SANITIZER\n", outcome=None, sleeps=60)
    arguments = ["sanitize", "w0", "--tool", "synccheck", "--timeout", "1"]
    assert run(arguments) == ExitCode.ENVIRONMENT
    assert summaries(capsys.readouterr().out)["synccheck"].startswith("failed: no end within 1 s")
    assert processes_with(mark) == []


def test_two_at_once_read_their_own_logs(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has the same step under the same tool, and ends first."""
    arguments = ["sanitize", "w0", "--tool", "memcheck"]
    alone = gpu_tool.run_tool

    def beside_another(*child: Any) -> Outcome[CallsMade]:
        end = alone(*child)
        monkeypatch.setattr(gpu_tool, "run_tool", alone)
        sanitizer.says(WRITES)
        assert run(arguments) == ExitCode.INCORRECT
        capsys.readouterr()
        return end

    monkeypatch.setattr(gpu_tool, "run_tool", beside_another)
    assert run(arguments) == ExitCode.PASS
    (log,) = re.findall(r"log: (.+)", capsys.readouterr().out)
    assert Path(log).read_text() == CLEAN
    assert [path.name for path in Path(log).parent.iterdir()] == ["memcheck.log"]


def test_the_child_itself_says_what_it_could_not_do(project: Path) -> None:
    """No tool: the real process, on a machine whose torch cannot find a GPU."""
    import torch

    from kernelbench.inspection.tool_child import ToolJob
    from kernelbench.project.context import Context
    from kernelbench.runs import plan as planning

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    (plan,) = planning.plan(Context.find(), ["w0"], [], "auto", [], 0, warn=pytest.fail)
    job = ToolJob(plan.step, plan.lineage, plan.shapes[0], "gpu-mode", plan.target, seed=1)
    end = gpu_tool.run_tool([], job, 120)
    assert (end.code, end.timed_out) == (0, False)
    assert end.value is not None
    assert end.value.status == "fault"
    assert re.search("cuda|nvidia", end.value.reason, re.IGNORECASE)


def test_json_is_the_only_thing_on_stdout(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]
) -> None:
    sanitizer.says(logs=ALL_CLEAN | {"racecheck": RACE})
    assert run(["sanitize", "w0", "--json", "-"]) == ExitCode.PASS
    captured = capsys.readouterr()
    record = schema.decode(SanitizeRecord, json.loads(captured.out))
    assert (record.step, record.shape, record.device) == ("w0", "u0", "NVIDIA H200")
    assert record.sanitizer == "compute-sanitizer 2025.3.1.0"
    assert [result.status for result in record.results] == ["clean", "explained", "clean"]
    (finding,) = record.results[1].findings
    assert finding.accesses[0][0].file == "tma.inl"
    assert "racecheck  explained" in captured.err


def test_without_the_tool(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_tool, "find", lambda name: None)
    assert run(["sanitize", "w0"]) == ExitCode.ENVIRONMENT
    assert capsys.readouterr().err.startswith(
        "kernelbench: no compute-sanitizer on PATH, in CUDA_HOME/bin, in /usr/local/cuda/bin or in "
        "the Python environment; install the CUDA toolkit"
    )


def test_a_tool_that_does_not_start(
    sanitizer: FakeTool, capsys: pytest.CaptureFixture[str]
) -> None:
    sanitizer.says(version="cannot open shared object file", version_code=127)
    assert run(["sanitize", "w0"]) == ExitCode.ENVIRONMENT
    assert "--version fails: cannot open shared object file" in capsys.readouterr().err


def test_cuda_home_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    FakeTool(tmp_path / "cuda" / "bin", "compute-sanitizer", VERSION)
    assert gpu_tool.find("compute-sanitizer") == tmp_path / "cuda" / "bin" / "compute-sanitizer"


@pytest.mark.parametrize("command", ["sanitize", "profile"])
def test_without_a_gpu(
    in_checkout: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: [])
    monkeypatch.setattr(devices, "gpu_problem", lambda: "no driver")
    assert run([command, "m02", "--shape", "qwen35-m1"]) == ExitCode.ENVIRONMENT
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "this needs m02 on a GPU, not on emulator: no driver" in error


def test_another_arch_is_named(
    in_checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    b200 = replace(H200, name="NVIDIA B200", capability=(10, 0))
    monkeypatch.setattr(devices, "gpus", lambda: [b200])
    assert run(["sanitize", "m02", "--shape", "qwen35-m1"]) == ExitCode.ENVIRONMENT
    expected = "m02 is written for sm_90a, a Hopper GPU (H100, H200, H800); this is NVIDIA B200"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["w1"], "unknown step 'w1'"),
        (["w0", "--shape", "every"], None),
        (["w0", "--tool", "leakcheck"], "'leakcheck' is not one of"),
        (["w0", "--device", "3"], "no GPU 3"),
    ],
)
def test_usage(
    sanitizer: FakeTool,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str | None,
) -> None:
    code = run(["sanitize", *arguments])
    if message is None:
        assert code == ExitCode.PASS  # the file has one shape
        return
    assert code in (ExitCode.USAGE, ExitCode.ENVIRONMENT)
    assert message in capsys.readouterr().err
    assert sanitizer.calls == []


KERNELS = """
#include "entry.cuh"
KB_EXPORT void kb_describe(kb::Description* out) { *out = {.threads = 128}; }
KB_EXPORT int kb_run(const void*, char*, unsigned long);
namespace kb::step {
KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) first(float* p) { p[0] = 1; }
KB_GLOBAL void KB_LAUNCH_BOUNDS(128, 1) second(float* p) { p[0] = 2; }
}
int kb_run(const void*, char*, unsigned long) { return 0; }
"""


@pytest.fixture
def compiled_step(project: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a step with two kernels."""
    from kernelbench.problems.group_gemm.problem import PROBLEM

    monkeypatch.setattr(type(PROBLEM), "prepare", lambda self, step: None)
    (project / "kernels").mkdir()
    (project / "kernels" / "common").symlink_to(ROOT / "kernels" / "common")
    step = project / "tiny" / "c0"
    step.mkdir()
    (step / "step.toml").write_text(
        'name = "c0"\ntitle = "t"\ntechnique = "t"\nhypothesis = "h"\narch = "sm_90a"\n'
        'status = "works"\n'
    )
    (step / "launch.cu").write_text(KERNELS)
    return "c0"


@needs_nvcc
def test_without_pyelftools(
    sanitizer: FakeTool, compiled_step: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for module in [name for name in sys.modules if name.partition(".")[0] == "elftools"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "elftools", None)
    sanitizer.says(CLEAN)
    assert run(["sanitize", compiled_step, "--tool", "memcheck"]) == ExitCode.ENVIRONMENT
    assert "kernelbench: pyelftools is missing, " in capsys.readouterr().err


@needs_nvcc
def test_only_the_kernels_of_a_compiled_step(
    sanitizer: FakeTool, compiled_step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["sanitize", compiled_step, "--tool", "memcheck", "--tool", "initcheck"]
    sanitizer.says(CLEAN)
    assert run(arguments) == ExitCode.PASS
    memcheck, initcheck = sanitizer.calls
    names = [memcheck[i + 1] for i, word in enumerate(memcheck) if word == "--kernel-name"]
    assert sorted(names) == ["kne=_ZN2kb4step5firstEPf", "kne=_ZN2kb4step6secondEPf"]
    # This release's initcheck must see what other kernels write.
    assert "--kernel-name" not in initcheck
    capsys.readouterr()
    foreign = """\
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at at::native::vectorized_elementwise_kernel+0x60
=========
========= ERROR SUMMARY: 1 error
"""
    sanitizer.says(foreign)
    assert run(["sanitize", compiled_step, "--tool", "initcheck"]) == ExitCode.PASS
    assert "initcheck  clean; 1 in kernels that are not the step's" in capsys.readouterr().out
    sanitizer.says(foreign.replace("at::native::vectorized_elementwise_kernel", "kb::step::first"))
    assert run(["sanitize", compiled_step, "--tool", "initcheck"]) == ExitCode.INCORRECT
