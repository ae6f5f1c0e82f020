"""Which line of a program's own source a place is."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.ptx.library import parse
from kernelbench.ptx.script_symbols import ScriptSymbols

TEXT = """
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k()
{
  .reg .b32 %r<4>;
  .reg .pred %p<1>;
  .loc 1 20 3
  mov.u32 %r0, 0;
  .loc 2 5 1, function_name $wrap, inlined_at 1 20 3
  mov.u32 %r1, 1;
  add.u32 %r1, %r1, 1;
  .loc 1 30 3
  mov.u32 %r0, 0;
  .loc 1 7 1, function_name $produce, inlined_at 1 30 3
  mov.u32 %r2, 2;
  .loc 2 5 1, function_name $wrap, inlined_at 1 7 1
  mov.u32 %r1, 3;
  .loc 1 8 1, function_name $produce, inlined_at 1 30 3
  mov.u32 %r2, 4;
  .loc 1 0 0, function_name $produce, inlined_at 1 30 3
  mov.u32 %r2, 7;
  .loc 1 0 3
  mov.u32 %r2, 8;
  .loc 3 99 1, function_name $load, inlined_at 1 20 3
  mov.u32 %r3, 5;
  .loc 2 8 1, function_name $wait, inlined_at 1 20 3
  mov.u32 %r1, 6;
  .loc 2 9 1, function_name $wait, inlined_at 1 20 3
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], 0;
  .loc 2 9 1, function_name $wait, inlined_at 1 30 3
  mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], 1;
  ret;
}
.file 1 "/home/me/k.cu"
.file 2 "/home/me/wrappers.h"
.file 3 "/usr/local/cuda/targets/x86_64-linux/include/cuda/atomic"
.section .debug_str
{
$wrap: .b8 119,0
$produce: .b8 112,0
$load: .b8 108,0
$wait: .b8 119,97,0
}
"""


class _At(ScriptSymbols):
    """An address is a line of the PTX."""

    def line(self, pc):
        return int(pc)


@pytest.mark.parametrize(
    ("instruction", "place"),
    [
        ("mov.u32 %r0, 0;", "k.cu:20"),
        ("mov.u32 %r1, 1;", "k.cu:20"),  # a wrapper of one line
        ("mov.u32 %r2, 2;", "k.cu:7"),  # one of several lines of its function
        ("mov.u32 %r1, 3;", "k.cu:7"),
        ("mov.u32 %r2, 4;", "k.cu:8"),
        ("mov.u32 %r2, 7;", "k.cu:30"),  # merged: without a line of its own
        ("mov.u32 %r2, 8;", "k.cu:30"),
        ("mov.u32 %r3, 5;", "k.cu:20"),  # the toolkit's
        ("mov.u32 %r1, 6;", "wrappers.h:8"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], 1;", "k.cu:30"),  # who waits there
    ],
)
def test_the_users_line(instruction, place):
    lines = TEXT.splitlines()
    symbols = _At(parse("k.ptx", TEXT), {}, Path("k.ptx"))
    number = next(at for at, line in enumerate(lines, 1) if line.strip() == instruction)
    assert str(symbols.own_place(number)) == place
