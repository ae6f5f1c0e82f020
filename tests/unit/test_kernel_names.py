"""Names of kernels and their variables as sources have them."""

from __future__ import annotations

import pytest

from kernelbench.base.demangle import short_name, source_name


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("add", "add"),
        ("_Z5scaleIfLi4EEvPT_", "scale<float, 4>"),
        ("_ZN12_GLOBAL__N_13addEPf", "(anonymous namespace)::add"),
        ("__nv_static_18__4df_6_add_cu_13_5__Z3addPf", "add"),
        ("__nv_static_6__a_cu_", "__nv_static_6__a_cu_"),
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


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN2kb4step9load_warpERKNS0_6GroupsE", "load_warp"),
        ("_ZZ6kernelPiE4tile", "tile"),
        ("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}"),
        ("_ZZ6kernelPfiENKUlifE0_clEif", "kernel::{lambda(int, float)#2}"),
        ("_ZZN2ns6kernelIfEEvPT_ENKUlT_E_clIiEEDaS2_", "kernel::{lambda(auto:1)#1}"),
        ("_ZZZ4mainENKUliE_clEiENKUlvE0_clEv", "main::{lambda(int)#1}::{lambda()#2}"),
        ("_ZZZ4mainENKUliE_clEiE4tile", "tile"),
    ],
)
def test_the_short_name_of_a_function_or_its_variable(symbol: str, name: str) -> None:
    assert short_name(symbol) == name
