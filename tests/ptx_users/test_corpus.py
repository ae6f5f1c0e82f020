"""Kernels that Triton has compiled, without Triton: right, and clean but for the compiler's bug."""

from __future__ import annotations

import pytest
import torch
from corpus import CASES, HERE, module_of, text_of, with_fences

from kernelbench.ptx import load
from kernelbench.ptx.library import parse
from kernelbench.ptx.lowering.translator import translate

pytestmark = pytest.mark.usefixtures("emulator_runtime")


@pytest.mark.parametrize("file", sorted((HERE / "corpus").iterdir()), ids=lambda file: file.stem)
def test_everything_in_the_corpus_translates(file):
    name = file.name.removesuffix(".ptx.gz")
    text = text_of(name)
    assert translate(parse(f"{name}.ptx", text)).entries
    # No folder of the machine that made it.
    assert "/" not in "".join(line for line in text.splitlines() if ".file" in line)


@pytest.mark.parametrize("name", ["layer_norm_90", "matmul_tma_90"])
def test_right_and_clean(name):
    torch.manual_seed(1)
    case = CASES[name]()
    report = case.launch(module_of(name), check=3)
    assert report.clean and not report.error
    # Triton has no fence between an mbarrier's initialization and a copy.
    assert {each.finding.kind for each in report.findings} == {
        "layer_norm_90": set(), "matmul_tma_90": {"proxy-fence"},
    }[name]  # fmt: skip
    assert case.is_right()


@pytest.mark.parametrize("name", ["matmul_90", "matmul_rows_90"])
def test_the_missing_proxy_fence_of_triton_36(name):
    """cp.async writes the stages through the generic proxy, wgmma reads them through the async one.

    PTX ISA 9.1, 9.7.15: fence.proxy.async has to stand between. Triton 3.6.0 emits none.
    """
    torch.manual_seed(1)
    case = CASES[name]()
    report = case.launch(module_of(name), check=1)
    assert {each.finding.kind for each in report.errors} == {"proxy-fence"}
    script = name.removesuffix("_90")
    lines = {source for each in report.errors for source in each.source + each.other_source}
    loads_and_product = {f"{script}.py:{line}" for line in (20, 21, 22)}
    assert f"{script}.py:22" in lines <= loads_and_product
    # What the tensor core would see without the fence is not what was copied.
    assert not case.is_right()


def test_with_the_fence_it_is_right_and_clean():
    assert with_fences(text_of("matmul_90")).count("fence.proxy.async;") == 2
    torch.manual_seed(1)
    case = CASES["matmul_90"]()
    report = case.launch(module_of("matmul_90", fenced=True), check=3)
    assert not report.findings
    assert case.is_right()


def test_an_operand_along_n_is_right():
    """Without the checker stale copies are not shown, so that the product can be compared."""
    torch.manual_seed(1)
    case = CASES["matmul_rows_90"]()
    case.launch(module_of("matmul_rows_90"), check=0).require_clean()
    assert case.is_right()


_HALVES = """
.version 8.7
.target sm_90a
.address_size 64
.shared .align 4 .b8 tile[4];
.visible .entry halves(.param .u64 p_out)
{
  .reg .pred %p; .reg .b16 %h; .reg .b32 %t, %a, %v; .reg .b64 %out;
  mov.u32 %t, %tid.x; mov.b32 %a, tile; ld.param.u64 %out, [p_out];
  setp.eq.u32 %p, %t, 0; @%p st.shared.b32 [%a], 0;
  bar.sync 0;
  setp.eq.u32 %p, %t, 32; @%p add.u32 %a, %a, 2;
  setp.eq.u32 %p, %t, 0; setp.eq.or.u32 %p, %t, 32, %p;
  cvt.u16.u32 %h, %t; @%p st.shared.b16 [%a], %h;
  bar.sync 0;
  setp.eq.u32 %p, %t, 0; ld.shared.b32 %v, [tile]; @%p st.global.b32 [%out], %v;
  ret;
}
"""


def test_halves_of_a_word_that_one_of_the_threads_has_written_whole():
    """As Triton's layer norm does: both stores of a half are ordered behind that of the word."""
    out = torch.zeros(1, dtype=torch.int32)
    report = load("halves.ptx", text=_HALVES).launch("halves", 1, 64, [out], check=4)
    assert not report.findings
    assert out.item() == 32 << 16
