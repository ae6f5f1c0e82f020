"""Where accesses lie: each on a multiple of its size, and all of its bytes in one buffer.

PTX ISA 9.1, 6.4.1: an address that is not naturally aligned to the access size is undefined.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_bulk import aligned

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
SHARED, LOCAL, GLOBAL = 256, 64, 256

#: Bytes, space, and the instruction at `[A]`.
ACCESSES = [
    *(
        (bytes_, space, f"{order}.{vector}{kind} {made};")
        for space in ("global", "shared", "local")
        for bytes_, vector, kind, values in (
            (2, "", "b16", "%h"), (4, "", "b32", "%x"), (8, "", "b64", "%d"),
            (2, "v2.", "b8", "{%h, %h}"), (4, "v4.", "b8", "{%h, %h, %h, %h}"),
            (8, "v2.", "b32", "{%x, %x}"), (16, "v4.", "f32", "{%x, %x, %x, %x}"),
            (16, "v2.", "u64", "{%d, %d}"),
        )
        for order, made in (
            (f"ld.{space}", f"{values}, [A]"), (f"st.{space}", f"[A], {values}"),
        )
    ),
    (32, "global", "ld.global.v8.b32 {%x, %x, %x, %x, %x, %x, %x, %x}, [A];"),
    (32, "global", "st.global.v4.b64 [A], {%d, %d, %d, %d};"),
    (16, "generic", "ld.v4.b32 {%x, %x, %x, %x}, [A];"),
    (8, "global", "ld.relaxed.gpu.global.v2.b32 {%x, %x}, [A];"),
    (4, "global", "ld.relaxed.gpu.global.v2.b16 {%h, %h}, [A];"),
    (32, "global", "ld.relaxed.gpu.global.v8.b32 {%x, %x, %x, %x, %x, %x, %x, %x}, [A];"),
    (32, "global", "st.volatile.global.v8.b32 [A], {%x, %x, %x, %x, %x, %x, %x, %x};"),
    (4, "shared", "st.volatile.shared.v2.b16 [A], {%h, %h};"),
    (16, "shared", "ld.volatile.shared.v4.b32 {%x, %x, %x, %x}, [A];"),
    (4, "global", "atom.global.add.u32 %x, [A], 1;"),
    (8, "shared", "atom.shared.add.u64 %d, [A], 1;"),
    (16, "global", "atom.global.add.v4.f32 {%x, %x, %x, %x}, [A], {%x, %x, %x, %x};"),
    (8, "global", "red.global.add.v2.f32 [A], {%x, %x};"),
    (8, "global", "red.relaxed.gpu.global.add.v2.f32 [A], {%x, %x};"),
    (4, "global", "red.global.add.noftz.v2.f16 [A], {%h, %h};"),
    (16, "shared", "cp.async.ca.shared.global [A], [%g], 16;"),
    (8, "global", "cp.async.ca.shared.global [%s], [A], 8;"),
    (16, "shared", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%x}, [A];"),
    (16, "shared", "stmatrix.sync.aligned.m8n8.x1.shared.b16 [A], {%x};"),
    (16, "global", "cp.async.bulk.global.shared::cta.bulk_group [A], [%s], 16;"),
    (16, "shared", "cp.async.bulk.global.shared::cta.bulk_group [%g], [A], 16;"),
]  # fmt: skip


@pytest.fixture(scope="module")
def module() -> kernelbench.ptx.PtxModule:
    """A kernel of each access, which takes the address's offset in its space."""
    kernels = [_kernel(at, space, text) for at, (_, space, text) in enumerate(ACCESSES)]
    return kernelbench.ptx.load("access.ptx", text=HEAD + "\n".join(kernels))


def _kernel(number: int, space: str, text: str) -> str:
    base = {"local": "mov.b64 %a, depot;", "shared": "mov.b64 %a, tile;"}.get(
        space, "mov.b64 %a, %g;"
    )
    return f"""
.visible .entry k{number}(.param .u64 p, .param .u64 offset)
{{
  .local .align 16 .b8 depot[{LOCAL}]; .shared .align 128 .b8 tile[{SHARED}];
  .reg .b64 %a, %g, %o, %d; .reg .b32 %x, %s; .reg .b16 %h;
  ld.param.u64 %g, [p]; ld.param.u64 %o, [offset]; mov.b32 %x, 0; mov.b64 %d, 0; mov.b16 %h, 0;
  mov.b32 %s, tile; {base} add.s64 %a, %a, %o;
  {text.replace("[A]", "[%a]")}
  cp.async.wait_all; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
  ret;
}}"""


def _found(module: kernelbench.ptx.PtxModule, number: int, offset: int) -> dict[str, str]:
    """The text of each finding that is neither of what nobody has written nor of a race."""
    buffer = aligned(GLOBAL)
    threads = 32 if "matrix" in ACCESSES[number][2] else 1
    report = module.launch(f"k{number}", 1, threads, [buffer, offset], check=1)
    return {
        each.finding.kind: each.finding.text
        for each in report.findings
        if each.finding.kind in ("alignment", "out-of-bounds", "crash")
    }


def _extent(space: str) -> int:
    return {"shared": SHARED, "local": LOCAL}.get(space, GLOBAL)


CASES = [
    pytest.param(at, id=f"{text.split(' ')[0]}-{space}")
    for at, (_, space, text) in enumerate(ACCESSES)
]


@pytest.mark.parametrize("number", CASES)
def test_an_address_is_a_multiple_of_the_access_size(module, number):
    bytes_, space, _ = ACCESSES[number]
    assert _found(module, number, 0) == {}
    assert _found(module, number, bytes_) == {}
    assert _found(module, number, _extent(space) - bytes_) == {}
    assert [*_found(module, number, bytes_ // 2)] == ["alignment"]


@pytest.mark.parametrize("number", CASES)
def test_an_access_behind_the_end(module, number):
    _, space, _ = ACCESSES[number]
    assert [*_found(module, number, _extent(space))] == ["out-of-bounds"]


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        ("ld.global.v4.b32 {%x, %x, %x, %x}, [A];", 8),
        ("ld.global.nc.v4.b32 {%x, %x, %x, %x}, [A];", 8),
        ("st.global.v4.b32 [A], {%x, %x, %x, %x};", 8),
        ("cp.async.bulk.global.shared::cta.bulk_group [A], [%s], 16;", 8),
        ("ld.global.v8.b32 {%x, %x, %x, %x, %x, %x, %x, %x}, [A];", 24),
    ],
)
def test_part_of_a_vector_outside(text, outside):
    """A buffer of 40 bytes: an aligned vector at 32."""
    module = kernelbench.ptx.load("part.ptx", text=HEAD + _kernel(0, "global", text))
    buffer = aligned(64)[:40]
    report = module.launch("k0", 1, 1, [buffer, 32], check=1)
    assert [each.finding.kind for each in report.findings] == ["out-of-bounds"]
    (finding,) = report.findings
    assert f", {outside} of them beyond the end of" in finding.finding.text
    assert not module.launch("k0", 1, 1, [aligned(64), 32], check=1).findings


CALLED = """
.func (.param .b32 r) first(.param .b64 p)
{
  .reg .b64 %a; .reg .b32 %x;
  ld.param.b64 %a, [p]; cvta.to.local.u64 %a, %a; ld.local.b32 %x, [%a+60];
  st.param.b32 [r], %x; ret;
}
.visible .entry k(.param .u64 p)
{
  .local .align 16 .b8 depot[64]; .reg .b64 %a, %g; .reg .b32 %x;
  ld.param.u64 %g, [p]; mov.b64 %a, depot; st.local.b32 [%a+60], 7; cvta.local.u64 %a, %a;
  { .param .b64 given; .param .b32 got; st.param.b64 [given], %a;
    call (got), first, (given); ld.param.b32 %x, [got]; }
  st.global.b32 [%g], %x; ret;
}
"""


def test_a_function_reaches_an_array_of_its_caller():
    module = kernelbench.ptx.load("called.ptx", text=HEAD + CALLED)
    words = aligned(4).view(np.uint32)
    module.launch("k", 1, 1, [words], check=1).require_clean()
    assert words.tolist() == [7]


NOT_SHARED = """
.visible .entry k(.param .u64 p, .param .u32 p_use)
{
  .reg .b64 %g, %a; .reg .b32 %use, %x; .reg .pred %p;
  ld.param.u64 %g, [p]; ld.param.u32 %use, [p_use];
  mov.b64 %a, 0; cvta.to.shared.u64 %a, %a; add.s64 %a, %a, 64;
  setp.eq.u32 %p, %use, 0; mov.b32 %x, 7; @%p bra DONE;
  ld.shared.b32 %x, [%a];
DONE: st.global.b32 [%g], %x; ret;
}
"""


def test_a_shared_address_of_null_is_wrong_where_it_is_used():
    """CUTLASS converts null for a matrix that it does not read."""
    module = kernelbench.ptx.load("null.ptx", text=HEAD + NOT_SHARED)
    words = aligned(4).view(np.uint32)
    module.launch("k", 1, 1, [words, 0], check=1).require_clean()
    assert words.tolist() == [7]
    (found,) = module.launch("k", 1, 1, [words, 1], check=1).findings
    assert found.finding.kind == "out-of-bounds"
