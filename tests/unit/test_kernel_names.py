"""Names of kernels and their variables as sources have them."""

from __future__ import annotations

import pytest

from kernelbench.ptx.demangle import source_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("add", "add"),
        ("_Z5scaleIfLi4EEvPT_", "scale<float, 4>"),
        ("_ZN12_GLOBAL__N_13addEPf", "(anonymous namespace)::add"),
        ("_ZZ5sgemmPfS_S_E2As", "sgemm"),  # As of sgemm
        ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"),
        ("_Z6kernelIZ4mainEUliE_EvT_i", "kernel<main::{lambda(int)#1}>"),
        ("_Z4runsN18cooperative_groups4__v112thread_blockE", "runs"),
        ("_ZN18cooperative_groups4__v17details4syncEv", "cooperative_groups::__v1::details::sync"),
        ("_Znot_a_name", "_Znot_a_name"),
    ],
)
def test_a_name_is_that_of_the_source(symbol: str, name: str) -> None:
    assert source_name(symbol) == name
