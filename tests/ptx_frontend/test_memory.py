"""Loads, stores and atomics of every width, in every state space."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from exact import F32, F64, NAN, Format, Real, total
from integer_model import signed
from test_bulk import aligned

import kernelbench.ptx
from kernelbench.ptx.parser.model import SIZES

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"
THREADS, ROUNDS = 256, 4
TUPLES = THREADS * ROUNDS
_OPERATIONS = {
    "add": ("u32", "s32", "u64", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
    "exch": ("b32", "b64"),
    "cas": ("b32", "b64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "inc": ("u32",),
    "dec": ("u32",),
}
ATOMICS = [(operation, kind) for operation, kinds in _OPERATIONS.items() for kind in kinds]


_EDGES = {
    "f32": (0, 1 << 31, 1, 0x807FFFFF, 0x7FFFFF, 0x800000, 0x80800001, 0x7F7FFFFF, 0xFF7FFFFF,
            0x7F800000, 0xFF800000, 0x7FC00001, 0x3F800000, 0xB3800000),
    "f64": (0, 1 << 63, 1, 0x800FFFFFFFFFFFFF, 1 << 52, 0x8010000000000001, 0x7FEFFFFFFFFFFFFF,
            0x7FF0000000000000, 0xFFF0000000000000, 0x3FF0000000000000, 0xBCA0000000000000),
}  # fmt: skip


def _updated(operation: str, kind: str, old: int, b: int, c: int, space: str) -> int:
    """PTX ISA 9.1, 9.7.13: atom."""
    x, y = signed(old, kind), signed(b, kind)
    if kind[0] == "f":
        form = F32 if kind == "f32" else F64
        keep = space == "shared" or form is F64
        values = [form.decode(each) for each in (old, b)]
        first, second = values if keep else [_flushed(each, form) for each in values]
        made = form.decode(form.encode(total((first, second), "rn")))
        return form.encode(made if keep else _flushed(made, form))
    if operation == "cas":
        return c if old == b else old
    return {
        "add": x + y, "min": min(x, y), "max": max(x, y), "exch": b, "and": x & y, "or": x | y,
        "xor": x ^ y, "inc": 0 if x >= y else x + 1, "dec": y if x == 0 or x > y else x - 1,
    }[operation] & ((1 << 8 * SIZES[kind]) - 1)  # fmt: skip


def _one_nan(found: list[int], kind: str) -> list[int]:
    """Any NaN of f64 is like any other: PTX leaves open which one it is."""
    if kind != "f64":
        return found
    return [F64.encode(NAN) if F64.decode(each).size == "nan" else each for each in found]


def _flushed(value: Real, form: Format) -> Real:
    """Additions of f32 to global memory flush, as the memory's own adders do."""
    return Real(value.sign, Fraction(0)) if form.subnormal(value) else value


def _operands(kind: str) -> np.ndarray:
    """Old, b and c; often equal or small, so that cas, inc and dec go both ways."""
    rng = random.Random(kind)
    rows = []
    for _ in range(TUPLES):
        bits = 8 * SIZES[kind]
        if kind[0] == "f":
            top, shift = (0x3F, 24) if kind == "f32" else (0x3F8, 52)
            row = [
                rng.getrandbits(shift) | top << shift | rng.getrandbits(1) << bits - 1
                for _ in "abc"
            ]
            if rng.random() < 0.5:
                row = [rng.choice(_EDGES[kind]) for _ in "abc"]
        elif rng.random() < 0.5:
            row = [rng.randrange(3) for _ in "abc"]
        else:
            row = [rng.getrandbits(bits) for _ in "abc"]
        rows.append(row)
    return np.array(rows, np.uint64).T.copy()


def _kernel(name: str, operation: str, kind: str, space: str, returns: bool) -> Iterator[str]:
    bits = 8 * SIZES[kind]
    yield f".visible .entry {name}(.param .u64 p_in, .param .u64 p_old, .param .u64 p_new)\n{{"
    yield ".reg .b64 %in, %old, %new, %o, %at; .reg .b32 %t, %c, %s;"
    yield f".reg .b{bits} %x, %b, %d, %r;"
    yield "ld.param.u64 %in, [p_in]; ld.param.u64 %old, [p_old]; ld.param.u64 %new, [p_new];"
    yield f"mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %c, %c, {THREADS}, %t;"
    yield "mul.wide.u32 %o, %c, 8; add.s64 %in, %in, %o; add.s64 %old, %old, %o;"
    yield "add.s64 %new, %new, %o;"
    yield f"ld.global.b{bits} %x, [%in]; ld.global.b{bits} %b, [%in+{8 * TUPLES}];"
    yield f"ld.global.b{bits} %d, [%in+{16 * TUPLES}];"
    if space == "shared":
        yield "mov.u32 %s, words; mad.lo.u32 %s, %t, 8, %s;"
        address = "%s"
    else:
        address = "%new"
    where = "" if space == "generic" else f".{space}"
    yield f"st{where}.b{bits} [{address}], %x;"
    values = "%b, %d" if operation == "cas" else "%b"
    if returns:
        yield f"atom{where}.{operation}.{kind} %r, [{address}], {values};"
        yield f"st.global.b{bits} [%old], %r;"
    else:
        yield f"red.relaxed.gpu{where}.{operation}.{kind} [{address}], {values};"
    if space == "shared":
        yield f"ld.shared.b{bits} %r, [%s]; st.global.b{bits} [%new], %r;"
    yield "ret;\n}"


@pytest.mark.parametrize("space", ["global", "shared", "generic"])
def test_atomics(space):
    cases = [(*each, returns) for each in ATOMICS for returns in (True, False)]
    cases = [case for case in cases if case[2] or case[0] not in ("exch", "cas")]
    text = [HEAD, f".shared .align 8 .b8 words[{8 * THREADS}];"]
    for at, (operation, kind, returns) in enumerate(cases):
        text += _kernel(f"k{at}", operation, kind, space, returns)
    module = kernelbench.ptx.load("atomics.ptx", text="\n".join(text))
    for at, (operation, kind, returns) in enumerate(cases):
        given = _operands(kind)
        old, new = np.zeros(TUPLES, np.uint64), np.zeros(TUPLES, np.uint64)
        module.launch(f"k{at}", ROUNDS, THREADS, [given, old, new]).require_clean()
        rows = given.T.tolist()
        want = [_updated(operation, kind, *row, space) for row in rows]
        assert _one_nan(new.tolist(), kind) == _one_nan(want, kind), (operation, kind)
        if returns:
            assert old.tolist() == [row[0] for row in rows], (operation, kind)


COUNT = (
    HEAD
    + """
.visible .entry count(.param .u64 p)
{ .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [p]; ATOMIC ret; }
.visible .entry hand_over(.param .u64 p, .param .u64 q)
{
  .reg .b64 %flag, %data; .reg .b32 %c, %r; .reg .pred %p;
  ld.param.u64 %flag, [p]; ld.param.u64 %data, [q]; mov.u32 %c, %ctaid.x;
  setp.ne.u32 %p, %c, 0; @%p bra TAKE;
  st.global.b32 [%data], 41; STORE ret;
TAKE:
  LOAD setp.eq.s32 %p, %r, 0; @%p bra TAKE;
  AFTER ld.global.b32 %r, [%data]; add.s32 %r, %r, 1; st.global.b32 [%data+4], %r; ret;
}
"""
)


@pytest.mark.parametrize(
    "atomic",
    [
        "atom.relaxed.gpu.global.add.u32 %r, [%a], 1;",
        "atom.acq_rel.sys.global.inc.u32 %r, [%a], 999;",
        "red.release.gpu.global.add.u32 [%a], 1;",
        "atom.add.u32 %r, [%a], 1;",
    ],
)
def test_atomics_of_many_threads(atomic):
    module = kernelbench.ptx.load("count.ptx", text=_filled(atomic, "", "", ""))
    words = np.zeros(1, np.uint32)
    assert module.launch("count", 5, 96, [words], check=3).clean
    assert words.tolist() == [480]


def _filled(atomic: str, store: str, load: str, after: str) -> str:
    parts = {"ATOMIC": atomic, "STORE": store, "LOAD": load, "AFTER": after}
    text = COUNT
    for name, part in parts.items():
        text = text.replace(name, part)
    return text


@pytest.mark.parametrize(
    ("store", "load", "after", "right"),
    [
        ("st.release.gpu.global.b32 [%flag], 1;", "ld.acquire.gpu.global.b32", "", True),
        ("fence.acq_rel.gpu; st.relaxed.gpu.b32 [%flag], 1;", "ld.relaxed.gpu.b32",
         "fence.acq_rel.gpu;", True),
        ("membar.gl; st.volatile.global.b32 [%flag], 1;", "ld.volatile.global.b32",
         "membar.gl;", True),
        ("red.release.gpu.global.add.u32 [%flag], 1;", "ld.acquire.gpu.b32", "", True),
        ("red.release.gpu.global.add.u32 [%flag], 0;", "ld.acquire.gpu.b32", "", "hang"),
        ("st.relaxed.gpu.global.b32 [%flag], 1;", "ld.acquire.gpu.global.b32", "", "race"),
        ("st.release.gpu.global.b32 [%flag], 1;", "ld.relaxed.gpu.global.b32", "", "race"),
        # Scopes: of two CTAs only those of the GPU, or of the system, meet.
        ("st.release.sys.global.b32 [%flag], 1;", "ld.acquire.sys.global.b32", "", True),
        ("st.release.cta.global.b32 [%flag], 1;", "ld.acquire.gpu.global.b32", "", "race"),
        ("st.release.gpu.global.b32 [%flag], 1;", "ld.acquire.cta.global.b32", "", "race"),
        ("st.release.cluster.global.b32 [%flag], 1;", "ld.acquire.cluster.b32", "", "race"),
        ("red.release.cta.global.add.u32 [%flag], 1;", "ld.acquire.gpu.b32", "", "race"),
        ("fence.release.gpu; st.relaxed.gpu.b32 [%flag], 1;", "ld.relaxed.gpu.b32",
         "fence.acquire.gpu;", True),
        ("fence.release.cta; st.relaxed.gpu.b32 [%flag], 1;", "ld.relaxed.gpu.b32",
         "fence.acquire.gpu;", "race"),
        ("fence.acq_rel.gpu; red.relaxed.cta.global.add.u32 [%flag], 1;", "ld.acquire.gpu.b32",
         "", "race"),
    ],
)  # fmt: skip
def test_a_flag_between_ctas(store, load, after, right):
    module = kernelbench.ptx.load(
        "flag.ptx", text=_filled("", store, f"{load} %r, [%flag];", after)
    )
    flag, data = np.zeros(1, np.uint32), np.zeros(2, np.uint32)
    report = module.launch("hand_over", 2, 1, [flag, data], cooperative=True, check=4)
    if right is True:
        assert report.clean, list(report.lines())
        assert data.tolist() == [41, 42]
    else:
        assert {each.finding.kind for each in report.errors} == {right}


WIDTHS = HEAD + """
.const .align 8 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 255};
.visible .entry widths(.param .u64 p, .param .align 16 .b8 q[16])
{
  .reg .b64 %a, %w, %l; .reg .b32 %x, %y, %z, %v, %s; .reg .b16 %h; .reg .b128 %q;
  .local .align 16 .b8 own[32];
  .shared .align 16 .b8 tile[32];
  ld.param.u64 %a, [p];
  ld.global.s8 %x, [%a]; st.global.b32 [%a+64], %x;
  ld.global.u8 %x, [%a]; st.global.b32 [%a+68], %x;
  ld.global.s16 %x, [%a]; st.global.b32 [%a+72], %x;
  ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {%x, %y, _, %v}, [%a+16];
  st.global.v2.b32 [%a+80], {%v, %x}; st.global.u8 [%a+88], %y;
  ld.param.b64 %w, [q+8]; st.global.b64 [%a+96], %w;
  ld.const.b64 %w, [table]; st.global.b64 [%a+104], %w;
  mov.b64 %l, own; st.local.v2.b64 [%l+16], {%a, %w}; ld.local.b64 %w, [own+24];
  st.global.b64 [%a+112], %w;
  cvta.local.u64 %l, %l; st.b32 [%l], 77; ld.local.b32 %x, [own]; st.global.b32 [%a+120], %x;
  mov.b32 %s, tile; st.shared.b32 [%s+4], 88; cvt.u64.u32 %l, %s; cvta.shared.u64 %l, %l;
  ld.b32 %x, [%l+4]; st.global.b32 [%a+124], %x;
  cvta.to.shared.u64 %l, %l; cvt.u32.u64 %s, %l; ld.shared::cta.b32 %x, [%s+4];
  st.global.b32 [%a+128], %x;
  ld.global.b128 %q, [%a]; st.global.b128 [%a+144], %q;
  mov.b64 %w, {%x, %y}; mov.b64 {%z, %h}, %w; ret;
}
""".replace("mov.b64 %w, {%x, %y}; mov.b64 {%z, %h}, %w;", "")  # fmt: skip


def test_widths_spaces_and_hints():
    module = kernelbench.ptx.load("widths.ptx", text=WIDTHS)
    data = np.arange(192, dtype=np.uint8)
    data[:2] = (0x80, 0xFF)
    given = bytes(range(100, 116))
    assert module.launch("widths", 1, 1, [data, given], check=2).clean

    def at(offset: int, size: int) -> int:
        return int.from_bytes(data[offset : offset + size].tobytes(), "little")

    assert [at(64, 4), at(68, 4), at(72, 4)] == [0xFFFFFF80, 0x80, 0xFFFFFF80]
    assert data[80:88].tolist() == [28, 29, 30, 31, 16, 17, 18, 19] and data[88] == 20
    assert data[96:104].tolist() == list(range(108, 116))
    assert data[104:112].tolist() == [1, 2, 3, 4, 5, 6, 7, 255] == data[112:120].tolist()
    assert [at(120, 4), at(124, 4), at(128, 4)] == [77, 88, 88]
    assert data[144:160].tolist() == data[:16].tolist()


#: CTA 0 says by one access that words are there, and which, as CUB's scans do.
TOGETHER = (
    HEAD
    + """
.visible .entry together(.param .u64 p)
{
  .local .align 8 .b64 own;
  .reg .pred %q; .reg .b32 %c, %x, %y; .reg .b64 %p, %a, %b;
  ld.param.u64 %p, [p]; mov.u32 %c, %ctaid.x; setp.ne.u32 %q, %c, 0; @%q bra TAKE;
  st.volatile.local.v2.b32 [own], {7, 8}; ld.volatile.local.v2.b32 {%x, %y}, [own];
  createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %a, 0f3F000000;
  st.relaxed.gpu.global.v2.b32 [%p], {%x, %y};
  mov.b64 %a, 9; mov.b64 %b, 10; st.gpu.release.v2.u64 [%p+16], {%a, %b};
  ret;
TAKE:
  ld.relaxed.gpu.v2.u32 {%x, %y}, [%p]; setp.eq.u32 %q, %y, 0; @%q bra TAKE;
TAKE_MORE:
  ld.acquire.gpu.global.v2.u64 {%a, %b}, [%p+16]; setp.eq.u64 %q, %b, 0; @%q bra TAKE_MORE;
  st.global.b32 [%p+32], %x; st.global.v2.b64 [%p+48], {%a, %b}; ret;
}
"""
)


def test_vectors_that_are_accessed_at_once():
    data = np.zeros(8, np.int64)
    module = kernelbench.ptx.load("together.ptx", text=TOGETHER)
    assert not module.launch("together", 2, 1, [data], cooperative=True, check=5).findings
    assert data.tolist() == [7 | 8 << 32, 0, 9, 10, 7, 0, 9, 10]


#: Triton writes the scope before the order.
SCOPE_FIRST = (
    HEAD
    + """
.shared .align 4 .b32 tile;
.visible .entry scope_first(.param .u64 p)
{
  .reg .pred %q; .reg .b32 %t, %a, %x; .reg .f32 %f; .reg .b64 %p, %o;
  ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; mov.b32 %a, tile;
  setp.eq.u32 %q, %t, 0; @%q st.shared.b32 [%a], 0; bar.sync 0;
  atom.global.gpu.acq_rel.add.f32 %f, [%p], 0f3F800000;
  atom.global.sys.relaxed.max.s32 %x, [%p+4], %t;
  atom.shared.cta.acquire.add.u32 %x, [%a], 2;
  bar.sync 0; @%q ld.shared.b32 %x, [%a]; @%q st.global.b32 [%p+8], %x; ret;
}
"""
)


def test_atomics_with_the_scope_before_the_order():
    data = np.zeros(3, np.int32)
    module = kernelbench.ptx.load("scope_first.ptx", text=SCOPE_FIRST)
    assert not module.launch("scope_first", 1, 64, [data], check=2).findings
    assert data[:1].view(np.float32).tolist() == [64.0] and data[1:].tolist() == [63, 128]


#: CTAs meet twice: the turn is the highest bit of a word, which they read by a plain load.
MEETING = (
    HEAD
    + """
.visible .entry meet(.param .u64 p, .param .u64 p_words, .param .u64 p_out) .reqntid 32
{
  .reg .pred %q; .reg .b32 %t, %c, %n, %before, %now, %x, %share, %peer;
  .reg .b64 %p, %w, %o, %out, %far;
  ld.param.u64 %p, [p]; ld.param.u64 %w, [p_words]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mov.u32 %c, %ctaid.x; mov.u32 %n, %nctaid.x;
  setp.ne.u32 %q, %t, 0; @%q ret;
  ld.global.u32 %before, [%p];
  add.u32 %peer, %c, 1; rem.u32 %peer, %peer, %n; mul.wide.u32 %far, %peer, 4;
  mul.wide.u32 %o, %c, 4; add.s64 %out, %out, %o; add.s64 %o, %w, %o; add.s64 %far, %w, %far;
  st.global.u32 [%o], %c;
  mov.u32 %share, 1; setp.ne.u32 %q, %c, 0; @%q bra MEET;
  sub.u32 %share, 0x80000001, %n;
MEET:
  red.release.gpu.global.add.u32 [%p], %share;
AGAIN:
  ld.acquire.gpu.global.u32 %now, [%p];
  xor.b32 %x, %now, %before;
  setp.gt.s32 %q, %x, -1;
  @%q bra AGAIN;
  ld.global.u32 %x, [%far]; st.global.u32 [%out], %x; ret;
}
"""
)


def _met(text: str) -> tuple[kernelbench.ptx.PtxReport, list[int]]:
    word, words, out = np.zeros(1, np.uint32), np.zeros(4, np.uint32), np.zeros(4, np.uint32)
    module = kernelbench.ptx.load("meeting.ptx", text=text)
    report = module.launch("meet", 4, args=[word, words, out], cooperative=True, check=4)
    return report, out.tolist()


def test_a_plain_load_of_the_word_at_which_ctas_meet_is_an_assumption():
    report, out = _met(MEETING)
    assert (report.findings, out) == ((), [1, 2, 3, 0])
    assert report.assumptions == ("plain-meeting-loads",)


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        # Waits for a value, so that the plain load is of no meeting.
        ("xor.b32 %x, %now, %before;\n  setp.gt.s32 %q, %x, -1;", "setp.gt.s32 %q, %now, -1;"),
        # What it compares with is no earlier value.
        ("AGAIN:", "AGAIN: mov.u32 %before, 0;"),
    ],
)
def test_other_plain_loads_of_a_counter_are_races(there, instead):
    report, _ = _met(MEETING.replace(there, instead))
    assert "race" in {each.finding.kind for each in report.errors}
    assert report.assumptions == ()


#: Atomics of halves and of vectors, of 16 bits, and strong stores of every width.
NARROW = (
    HEAD
    + """
.visible .entry narrow(.param .u64 p)
{
  .reg .b64 %p, %o; .reg .b32 %t, %x, %y; .reg .b16 %h, %g; .reg .f32 %f; .reg .pred %q;
  ld.param.u64 %p, [p]; mov.u32 %t, %tid.x;
  mov.b16 %h, 0x3C00; mov.b32 %x, 0x3C004000; mov.b32 %y, 0x3F804000; mov.b32 %f, 0f3F800000;
  atom.global.add.noftz.f16 %g, [%p], %h;
  red.relaxed.gpu.global.add.noftz.bf16x2 [%p+4], %y;
  atom.relaxed.gpu.global.add.noftz.f16x2 %x, [%p+8], %x;
  atom.global.gpu.relaxed.add.noftz.f16 %g, [%p+12], %h;
  red.global.add.v2.f32 [%p+16], {%f, %f};
  red.release.gpu.global.add.v2.f32 [%p+88], {0f00000000, 0f3F800000};
  red.relaxed.cta.global.add.v2.f32 [%p+88], {0f00000000, 0f3F800000};
  red.release.gpu.global.max.noftz.v2.f16 [%p+24], {%h, %h};
  atom.global.v2.f32.add {%f, _}, [%p+32], {%f, %f};
  atom.global.gpu.acq_rel.add.v2.f32 {_, %f}, [%p+40], {0f3F800000, 0f40000000};
  atom.global.add.noftz.v2.bf16 {%g, _}, [%p+64], {0x3F80, 0x4000};
  atom.relaxed.gpu.global.add.noftz.v2.f16x2 {%x, _}, [%p+72], {0x3C004000, 0x3C003C00};
  red.global.add.noftz.v2.bf16x2 [%p+80], {%y, %y};
AGAIN:
  ld.relaxed.gpu.global.u16 %g, [%p+48]; add.u16 %h, %g, 3;
  atom.global.cas.b16 %h, [%p+48], %g, %h; setp.ne.u16 %q, %h, %g; @%q bra AGAIN;
  setp.ne.u32 %q, %t, 0; @%q ret;
  st.relaxed.gpu.global.b8 [%p+52], %t; st.volatile.global.u16 [%p+54], 9;
  st.release.gpu.global.v2.b32 [%p+56], {7, 8};
  ret;
}
""".replace("atom.global.v2.f32.add", "atom.global.add.v2.f32")
)


def test_atomics_of_halves_and_vectors():
    data = np.zeros(96, np.uint8)
    module = kernelbench.ptx.load("narrow.ptx", text=NARROW)
    module.launch("narrow", 1, 64, [data], check=2).require_clean()
    halves, floats = data.view(np.float16), data.view(np.float32)
    assert halves[[0, 4, 5, 6]].tolist() == [64, 128, 64, 64]
    # bf16: 1 and 2 in the two halves, 64 times.
    assert data[4:8].view(np.uint16).tolist() == [0x4300, 0x4280]
    assert floats[[4, 5]].tolist() == [64, 64] and halves[[12, 13]].tolist() == [1, 1]
    assert floats[[10, 11]].tolist() == [64, 128]
    assert data.view(np.uint16)[24] == 3 * 64
    assert data[52] == 0 and data.view(np.uint16)[27] == 9
    assert data.view(np.uint32)[14:16].tolist() == [7, 8]
    assert data.view(np.uint16)[32:34].tolist() == [0x4280, 0x4300]
    assert halves[36:40].tolist() == [128, 64, 64, 64]
    assert data.view(np.uint16)[40:44].tolist() == [0x4300, 0x4280] * 2
    assert floats[[22, 23]].tolist() == [0, 128]


WILD = (
    HEAD
    + """
.visible .entry wild(.param .u64 p_at) .reqntid 32
{
  .reg .b64 %p; .reg .b32 %x, %y;
  ld.param.u64 %p, [p_at];
  ACCESS
  ret;
}
"""
)


@pytest.mark.parametrize(
    "access",
    [
        "atom.global.add.u32 %x, [%p], 1;",
        "ld.relaxed.gpu.global.v2.b32 {%x, %y}, [%p];",
        "fence.proxy.tensormap::generic.acquire.gpu [%p], 128;",
    ],
)
def test_an_access_at_no_address_ends_its_launch_alone(access):
    """Some kept a lock, so that the next launch waited without end."""
    module = kernelbench.ptx.load("wild.ptx", text=WILD.replace("ACCESS", access))
    report = module.launch("wild", 1, args=[128], check=1)
    assert {each.finding.kind for each in report.errors} & {"crash", "out-of-bounds"}
    module.launch("wild", 1, args=[aligned(128)], check=2).require_clean()


#: Each thread swaps two halves that belong together, one after another.
WIDE = (
    HEAD
    + """
.shared .align 16 .b128 tile;
.visible .entry wide(.param .u64 p)
{
  .reg .pred %q, %r; .reg .b32 %t; .reg .b64 %p, %a, %b, %c; .reg .b128 %x, %y, %z;
  ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; mov.b64 %a, 5; mov.b128 %x, {%a, %a};
  setp.eq.u32 %q, %t, 0; @%q atom.exch.b128 %y, [%p+16], %x;
  @%q st.shared.b128 [tile], %x; bar.sync 0;
  ld.relaxed.gpu.global.b128 %x, [%p];
AGAIN:
  mov.b128 {%a, %b}, %x; add.u64 %a, %a, 1; add.u64 %b, %b, 2; mov.b128 %y, {%a, %b};
  atom.relaxed.gpu.global.cas.b128 %z, [%p], %x, %y;
  mov.b128 {%b, %c}, %z; add.u64 %b, %b, 1; mov.b128 %x, %z; setp.ne.u64 %r, %b, %a;
  @%r bra AGAIN;
  atom.acq_rel.cta.shared.exch.b128 %z, [tile], %z; bar.sync 0;
  @%q ld.shared.b128 %y, [tile]; @%q st.relaxed.sys.global.b128 [%p+32], %y;
  ret;
}
"""
)


def test_atomics_of_sixteen_bytes():
    data = np.zeros(6, np.uint64)
    module = kernelbench.ptx.load("wide.ptx", text=WIDE)
    assert not module.launch("wide", 2, 64, [data], cooperative=True, check=3).errors
    assert data[:4].tolist() == [128, 256, 5, 5] and 2 * data[4] == data[5] < 256


DISCARDED = (
    HEAD
    + """
.visible .entry discarded(.param .u64 p)
{
  .reg .pred %q; .reg .b32 %t, %x; .reg .b64 %p, %a;
  ld.param.u64 %p, [p]; mov.u32 %t, %tid.x; mul.wide.u32 %a, %t, 4; add.u64 %a, %p, %a;
  ld.global.b32 %x, [%a];
  MEET
  setp.eq.u32 %q, %t, 0; @%q discard.global.L2 [%p], 128;
  st.global.b32 [%a+128], %x; ret;
}
"""
)


@pytest.mark.parametrize("ordered", [True, False])
def test_discard_is_a_write(ordered):
    """Of an indeterminate value, by one thread, to what all have read."""
    text = DISCARDED.replace("MEET", "bar.sync 0;" if ordered else "")
    data = aligned(256).view(np.uint32)
    data[:] = np.arange(64)
    module = kernelbench.ptx.load("discarded.ptx", text=text)
    report = module.launch("discarded", 1, 32, [data], check=2)
    kinds = {each.finding.kind for each in report.errors}
    assert kinds == (set() if ordered else {"race"}), list(report.lines())
    assert not ordered or data.tolist() == [0xFFFFFFFF] * 32 + [*range(32)]
