"""How many CTAs of a kernel a GPU holds at once."""

from __future__ import annotations

import pytest

from kernelbench.machine.arch import ARCHES
from kernelbench.ptx import residency as of


@pytest.mark.parametrize(
    ("registers", "threads", "shared", "cluster", "sms", "ctas", "limit"),
    [
        (32, 128, 0, 1, 0, 16 * 132, "threads"),
        (168, 384, 0, 1, 0, 132, "registers"),
        (32, 64, 120 << 10, 1, 4, 4, "shared memory"),
        (32, 64, 120 << 10, 8, 0, 120, "shared memory"),
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


#: Of one H200: clusters at once, by their CTAs, where an SM holds one CTA, and two
#: (cudaOccupancyMaxActiveClusters, and the most that were seen to run together).
CLUSTERS = {
    1: (132, 264), 2: (66, 132), 3: (39, 79), 4: (30, 62), 5: (22, 47), 6: (17, 39), 7: (15, 32),
    8: (15, 30), 9: (9, 23), 10: (7, 21), 12: (7, 16), 14: (7, 14), 16: (7, 14),
}  # fmt: skip


def test_clusters_reside_as_on_an_h200() -> None:
    hopper = ARCHES[90]
    found = {size: tuple(hopper.clusters(size, each, 132) for each in (1, 2)) for size in CLUSTERS}
    assert found == CLUSTERS
    assert hopper.clusters(4, 1, 8) == 2  # of SMs that nobody knows the GPCs of
    assert ARCHES[100].clusters(4, 1, 148) == 37
