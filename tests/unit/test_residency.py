"""How many CTAs of a kernel a GPU holds at once."""

from __future__ import annotations

import pytest

from kernelbench.ptx import residency as of


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "cluster", "sms", "ctas", "limit"),
    [
        (32, 128, 0, 1, 0, 16 * 132, "threads"),
        (168, 384, 0, 1, 0, 132, "registers"),
        (32, 64, 120 << 10, 1, 4, 4, "shared memory"),
        (32, 64, 120 << 10, 8, 0, 128, "shared memory"),
    ],
)
def test_what_fits(
    monkeypatch: pytest.MonkeyPatch, registers: int, threads: int, shared: int, cluster: int,
    sms: int, ctas: int, limit: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(of, "registers_of", lambda *_: {"kernel": registers})
    found = of.residency(
        "sm_90a",
        "its PTX",
        "kernel",
        threads=threads,
        shared_bytes=shared,
        cluster=cluster,
        sms=sms,
    )
    assert found is not None
    assert (found.ctas, limit in found.limits) == (ctas, True)
    assert f"{ctas} can reside on {sms or 132} SMs (H200)" in found.words


def test_a_gpu_that_is_not_known() -> None:
    assert of.residency("sm_75", "", "k", threads=32, shared_bytes=0, cluster=1) is None
