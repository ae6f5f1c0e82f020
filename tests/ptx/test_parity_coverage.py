"""The parity cases call every function of the ptx layer, and are known by what they call."""

from __future__ import annotations

import pytest
from declarations import ARCHES, declarations

from kernelbench.bringup.native_stages import SUITES, functions_of


@pytest.mark.parametrize("backend", ARCHES)
def test_every_function_has_a_case(backend):
    declared = {found.name for found in declarations() if backend in found.arches}
    called = {
        name
        for suite in SUITES
        if backend in suite.backends
        for work in suite.works(0).values()
        for name in functions_of(suite.stem, work.case)
    }
    assert called == declared


def test_a_case_is_said_to_call_what_it_calls_and_no_more():
    assert functions_of("parity_control", "commits") == {
        "barrier_cluster_arrive", "barrier_cluster_wait", "cluster_ctarank",
        "fence_mbarrier_init_release_cluster", "mbarrier_init", "mbarrier_test_wait_parity",
        "tcgen05_commit", "thread_index",
    }  # fmt: skip
    assert "tcgen05_mma_mxf4nvf4_block_scale_4x" in functions_of("parity_tensor", "product")
    assert "wgmma_commit_group" in functions_of("parity_wgmma", "e4m3_64_shared")
