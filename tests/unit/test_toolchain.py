"""Archs: which a GPU is built for, which code runs where, which nvcc knows."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import launch

from kernelbench.base.errors import ExitCode
from kernelbench.machine import toolchain


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 6), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("sm_120", (10, 0), False),
    ],
)
def test_which_code_runs_where(arch: str, capability: tuple[int, int], runs: bool) -> None:
    assert toolchain.runs_on(arch, capability) is runs


def test_what_a_gpu_is_built_for() -> None:
    assert [toolchain.own_arch(c) for c in ((8, 9), (9, 0), (12, 0))] == [
        "sm_89", "sm_90a", "sm_120a",
    ]  # fmt: skip
    assert toolchain.cuda_arch_flags((9, 0)) == ["-gencode", "arch=compute_90a,code=sm_90a"]


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
def test_what_nvcc_builds_for() -> None:
    known = toolchain.nvcc_archs()
    assert {"sm_80", "sm_90", "sm_90a"} <= set(known)
    assert known.index("sm_90a") == known.index("sm_90") + 1
    assert toolchain.unknown_arch("sm_90a") == ""
    assert toolchain.unknown_arch("sm_999").endswith(", ".join(known))


def test_without_nvcc_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "nvcc", lambda: None)
    assert toolchain.unknown_arch("sm_999") == ""


@pytest.mark.skipif(toolchain.nvcc() is None, reason="no nvcc")
def test_nvcc_without_a_host_compiler_is_the_environment_s(tmp_path: Path) -> None:
    """Its own words, of host compiler properties, say it to nobody."""
    nvcc = toolchain.nvcc()
    assert nvcc is not None
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "nvcc").symlink_to(nvcc.path)
    program = tmp_path / "program.cu"
    program.write_text("int main() { return 0; }\n")
    alone = {"PATH": str(tools), "KERNELBENCH_CACHE": str(tmp_path / "cache")}
    done = launch("check", program, env=alone)
    assert done.code == ExitCode.ENVIRONMENT, done.err
    assert "nvcc needs a C++ compiler, and there is no g++ or clang++; install g++" in done.error
