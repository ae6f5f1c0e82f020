"""Archs: which a GPU is built for, which code runs where, which nvcc knows."""

from __future__ import annotations

import pytest

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
