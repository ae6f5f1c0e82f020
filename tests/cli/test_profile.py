"""``kernelbench profile``: with counters, and each reason for doing without."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from gpu_tools import DONE, H200, FakeTool, fake_tool, on_h200, project
from ncu_page import PAGE, page

from kernelbench.base import schema
from kernelbench.base.child_process import Outcome
from kernelbench.base.errors import ExitCode
from kernelbench.cli import invoke as run
from kernelbench.executors import targets
from kernelbench.inspection import gpu_tool, profile
from kernelbench.inspection.profile import ProfileRecord
from kernelbench.inspection.tool_child import CallsMade, ToolJob
from kernelbench.machine import devices

__all__ = ["fake_tool", "on_h200", "project"]  # fixtures

VERSION = "NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 36398880)"
DENIED = (
    "==PROF== Connected to process 1234\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
    "Performance Counters on the target device 0.\n"
)


@pytest.fixture
def ncu(project: Path, fake_tool: Callable[[str, str], FakeTool]) -> FakeTool:
    """An ncu that profiles two kernels."""
    tool = fake_tool("ncu", VERSION)
    tool.says(page(PAGE))
    return tool


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> list[ToolJob]:
    """What torch's profiler would see without a tool; the jobs that asked for it."""
    jobs: list[ToolJob] = []
    real = gpu_tool.run_tool

    def run_tool(prefix: list[str], job: ToolJob, limit_s: float) -> Outcome[CallsMade]:
        if prefix:
            return real(prefix, job, limit_s)
        jobs.append(job)
        launches = (
            ("void kb::step::gemm::multiply_experts<2>(kb::step::Arguments)", 10.0, 60.0),
            ("Memset (Device)", 62.0, 64.0),
        )
        return Outcome(CallsMade("done", launches=launches, work_bytes=104e6), 0)

    monkeypatch.setattr(gpu_tool, "run_tool", run_tool)
    return jobs


def test_with_counters(ncu: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "w0", "--seed", "7"]) == ExitCode.PASS
    captured = capsys.readouterr()
    head, columns, *rows = captured.out.splitlines()
    assert head == "w0  u0 · NVIDIA H200 · ncu 2025.3.1.0 · gpu-mode · seed 7"
    assert re.split(r" {2,}", columns.strip()) == [
        "kernel", "µs", "DRAM", "tensor pipe", "occupancy", "registers", "shared memory", "L2 hits",
        "top stalls",
    ]  # fmt: skip
    assert re.split(r" {2,}", rows[0].strip()) == [
        "route_tokens", "2.53", "1.2 %", "0.0 %", "30.5 % of 100.0 %", "40", "16 B", "55.0 %", "–",
    ]  # fmt: skip
    assert re.split(r" {2,}", rows[1].strip()) == [
        "multiply_experts", "93.60", "71.5 %", "21.8 %", "12.1 % of 12.5 %", "168", "197632 B",
        "48.2 %", "long scoreboard 60 %, gmma 15 %, barrier 10 %",
    ]  # fmt: skip
    assert rows[2].startswith("log: ")
    assert captured.err == ""
    (words,) = ncu.calls
    assert words[words.index("--clock-control") + 1] == "none"
    assert words[words.index("--profile-from-start") + 1] == "off"
    assert "--kernel-name" not in words
    # sm_90 has no pipe of this name.
    assert "sm__pipe_tc_" not in words[words.index("--metrics") + 1]


def test_a_kernel_is_chosen_by_ncu(ncu: FakeTool) -> None:
    assert run(["profile", "w0", "--kernel", "^multiply"]) == ExitCode.PASS
    (words,) = ncu.calls
    assert words[words.index("--kernel-name") + 1] == "regex:^multiply"


def test_missing_metrics_are_named(ncu: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    ncu.says(page({name: cells for name, cells in PAGE.items() if not name.startswith("lts__")}))
    assert run(["profile", "w0"]) == ExitCode.PASS
    assert "–: ncu has no value here for L2 hit rate" in capsys.readouterr().out


def test_json(ncu: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "w0", "--json", "-"]) == ExitCode.PASS
    record = schema.decode(ProfileRecord, json.loads(capsys.readouterr().out))
    assert (record.counters, record.why_not, record.tool) == (True, "", "ncu 2025.3.1.0")
    assert [launch.kernel for launch in record.launches] == ["route_tokens", "multiply_experts"]
    assert record.launches[1].stalls[0].reason == "long scoreboard"
    assert record.total is None


@pytest.mark.parametrize(
    ("said", "why", "hint"),
    [
        ({"log": DENIED}, "this user may not read the GPU's performance counters",
         "an administrator can allow it"),
        ({"log": "", "prints": DENIED}, "this user may not read the GPU's performance counters",
         "an administrator can allow it"),
        ({"log": "==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n", "code": 1},
         "ncu: Failed to initialize the profiler: LibraryNotLoaded", "--no-counters"),
        ({"log": "==PROF== Connected\n==WARNING== No kernels were profiled.\n"},
         "ncu printed no table", "--no-counters"),
        ({"log": page({name: cells[:1] for name, cells in PAGE.items()})},
         "ncu profiled no kernel", "--no-counters"),
        ({"version": "", "version_code": 1}, "--version fails: status 1", "--no-counters"),
    ],
)  # fmt: skip
def test_what_can_be_had_without_counters(
    ncu: FakeTool,
    timeline: list[ToolJob],
    capsys: pytest.CaptureFixture[str],
    said: dict[str, object],
    why: str,
    hint: str,
) -> None:
    ncu.says(**said)  # type: ignore[arg-type]
    assert run(["profile", "w0"]) == ExitCode.ENVIRONMENT
    captured = capsys.readouterr()
    assert re.search(
        rf"^without hardware counters \(.*{re.escape(why)}", captured.out, re.MULTILINE
    )
    assert re.search(r"^multiply_experts +50\.00 +– +– +– of – ", captured.out, re.MULTILINE)
    assert re.search(r"^Memset +2\.00 ", captured.out, re.MULTILINE)
    assert (
        "one call: 52.0 µs of kernels and copies, caches warm; bytes of the problem / time: "
        "2.00 TB/s"
    ) in captured.out
    assert captured.err.startswith("kernelbench: no hardware counters: ")
    assert captured.err.count("\n") == 1
    assert why in captured.err
    assert hint in captured.err
    (job,) = timeline
    assert job.marking == "torch-profiler"


def test_without_counters_when_asked(
    project: Path, timeline: list[ToolJob], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["profile", "w0", "--no-counters", "--kernel", "^multiply"]) == ExitCode.PASS
    captured = capsys.readouterr()
    assert "without hardware counters (--no-counters)" in captured.out
    assert "Memset" not in captured.out
    assert captured.err == ""
    assert run(["profile", "w0", "--no-counters", "--kernel", "nothing"]) == ExitCode.USAGE
    assert capsys.readouterr().err == (
        "kernelbench: no kernel of w0 matches --kernel nothing; a call runs multiply_experts, "
        "Memset\n"
    )


def test_ncu_that_does_not_end(
    ncu: FakeTool, timeline: list[ToolJob], capsys: pytest.CaptureFixture[str]
) -> None:
    ncu.says("", outcome=None, sleeps=60)
    assert run(["profile", "w0", "--timeout", "1"]) == ExitCode.ENVIRONMENT
    assert "no hardware counters: no end within 1 s under ncu" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("outcome", "code", "message"),
    [
        ({"status": "fault", "reason": "raised ValueError: no"}, ExitCode.INCORRECT,
         "kernelbench: w0: raised ValueError: no\n"),
        ({"status": "limit", "reason": "m is at most 8"}, ExitCode.USAGE,
         "kernelbench: w0 does not take u0: m is at most 8\n"),
    ],
)  # fmt: skip
def test_a_step_that_fails(
    ncu: FakeTool,
    capsys: pytest.CaptureFixture[str],
    outcome: dict[str, str],
    code: ExitCode,
    message: str,
) -> None:
    ncu.says(page(PAGE), outcome=DONE | outcome)
    assert run(["profile", "w0"]) == code
    assert capsys.readouterr().err == message


def test_a_pattern_that_is_none(ncu: FakeTool, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["profile", "w0", "--kernel", "("]) == ExitCode.USAGE
    assert "not a regular expression" in capsys.readouterr().err


def test_the_soft_executor_is_refused(
    in_checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "gpus", lambda: [H200])
    monkeypatch.setattr(
        targets, "executors_for", lambda step, device=0: [("gpu-soft", True, "native")]
    )
    assert run(["profile", "v07", "--shape", "u1"]) == ExitCode.ENVIRONMENT
    assert "v07 runs on gpu-soft here, its tensor cores in software" in capsys.readouterr().err


def test_static_facts_fit_the_names_of_the_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernelbench.inspection.resources import Build, Code, Inspection

    code = Code(
        kernel="kb::step::gemm", symbol="_Z", registers=168, barriers=1, stack_bytes=0,
        spill_store_bytes=0, spill_load_bytes=0, static_shared_bytes=16,
        dynamic_shared_bytes=1000, threads=100, ctas_per_sm=2, limited_by=("registers",),
        code_bytes=1,
    )  # fmt: skip
    found = Inspection("x", "x", None, (Build("sm_90a", False, (code,), (), ()),), (), ())
    monkeypatch.setattr(profile.resources, "inspect", lambda step, arch: found)

    step = SimpleNamespace(built=True, kind="step", arch="sm_90a")
    run = SimpleNamespace(step=step)
    facts = profile._static_facts(run)  # type: ignore[arg-type]
    known = facts[gpu_tool.plain_kernel_name("void kb::step::gemm<3>(int)")]
    assert (known.registers, known.shared_bytes) == (168, 1016)
    assert known.occupancy_limit_pct == 100 * 2 * 4 / 64  # two CTAs of four warps
