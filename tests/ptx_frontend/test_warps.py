"""Instructions of a whole warp against models: 32 lanes with operands of their own."""

from __future__ import annotations

import random

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n.shared .align 16 .b8 tile[2048];\n"
WARPS = 32  # of 32 lanes: 1,024 operand tuples
ALL = 0xFFFFFFFF


def _kernel(name: str, body: str) -> str:
    """Lane i of warp w: %a, %b are words 2i, 2i + 1 of its 64; [%out+4n] takes results."""
    return f"""
.visible .entry {name}(.param .u64 p_in, .param .u64 p_out)
{{
  .reg .b64 %in, %out, %o; .reg .b32 %t, %l, %a, %b, %d, %s, %x<8>, %y<4>; .reg .pred %p, %q;
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  mov.u32 %t, %tid.x; mov.u32 %x0, %ctaid.x; mad.lo.u32 %t, %x0, 32, %t; mov.u32 %l, %laneid;
  mul.wide.u32 %o, %t, 8; add.s64 %in, %in, %o; ld.global.v2.b32 {{%a, %b}}, [%in];
  mul.wide.u32 %o, %t, 16; add.s64 %out, %out, %o;
  {body}
  ret;
}}"""


def _run(bodies: dict[str, str], given: np.ndarray) -> dict[str, np.ndarray]:
    """Each kernel's four words a lane, [WARPS, 32, 4]."""
    text = "\n".join([HEAD, *(_kernel(*each) for each in bodies.items())])
    module = kernelbench.ptx.load("warps.ptx", text=text)
    found = {}
    for name in bodies:
        out = np.zeros((WARPS, 32, 4), np.uint32)
        module.launch(name, WARPS, 32, [given, out]).require_clean()
        found[name] = out
    return found


@pytest.fixture(scope="module")
def given():
    return np.random.default_rng(1).integers(0, 1 << 32, (WARPS, 32, 2), dtype=np.uint32)


def _source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """PTX ISA 9.1, 9.7.9: the pseudocode of shfl.sync."""
    segment, clamp, b = c >> 8 & 31, c & 31, b & 31
    most, least = (lane & segment) | (clamp & ~segment), lane & segment
    j = {"up": lane - b, "down": lane + b, "bfly": lane ^ b, "idx": least | (b & ~segment)}[mode]
    inside = j >= most if mode == "up" else j <= most
    return (j if inside else lane), inside


def test_shuffles(given):
    clamps = {"up": (0, 0x1800, 0x1C00), "rest": (0x1F, 0x181F, 0x1C1F, 0x0F)}
    cases = {
        f"{mode}_{c:x}": (mode, c)
        for mode in ("up", "down", "bfly", "idx")
        for c in clamps.get(mode, clamps["rest"])
    }
    bodies = {
        name: f"shfl.sync.{mode}.b32 %d|%p, %a, %b, {c}, -1; selp.b32 %s, 1, 0, %p;"
        "st.global.v2.b32 [%out], {%d, %s};"
        for name, (mode, c) in cases.items()
    }
    for name, out in _run(bodies, given).items():
        mode, c = cases[name]
        for warp in range(WARPS):
            for lane in range(32):
                source, inside = _source(mode, lane, int(given[warp, lane, 1]), c)
                want = (int(given[warp, source, 0]), int(inside))
                assert tuple(map(int, out[warp, lane, :2])) == want, (name, lane)


def test_votes_reductions_and_matches(given):
    given = given.copy()
    given[::2] %= 3  # few values: equal ones, and warps that agree
    given[0] = 1
    half = "0x0000ffff"
    guarded = f"setp.lt.u32 %q, %l, 16; @%q redux.sync.add.u32 %d, %a, {half};"
    bodies = {
        f"redux_{operation}_{kind}": f"redux.sync.{operation}.{kind} %d, %a, -1;"
        for operation, kinds in {
            "add": ("u32", "s32"), "min": ("u32", "s32"), "max": ("u32", "s32"), "and": ("b32",),
            "or": ("b32",), "xor": ("b32",),
        }.items()
        for kind in kinds
    }  # fmt: skip
    bodies |= {
        f"vote_{mode}": f"setp.eq.u32 %p, %a, 1; vote.sync.{mode}.pred %q, %p, -1;"
        "selp.b32 %d, 1, 0, %q;"
        for mode in ("any", "all", "uni")
    }
    bodies |= {
        "ballot": "setp.eq.u32 %p, %a, 1; vote.sync.ballot.b32 %d, %p, -1;",
        "match": "match.any.sync.b32 %d, %a, -1;",
        "elect": "elect.sync _|%p, -1; selp.b32 %d, 1, 0, %p; bar.warp.sync -1;",
        "half": f"mov.b32 %d, 0; {guarded}",
    }
    found = _run(
        {name: f"{body} st.global.b32 [%out], %d;" for name, body in bodies.items()}, given
    )
    for warp in range(WARPS):
        a = [int(each) for each in given[warp, :, 0]]
        signed = [each - (1 << 32) if each >> 31 else each for each in a]
        ones = [each == 1 for each in a]
        ballot = sum(one << lane for lane, one in enumerate(ones))
        want = {
            "redux_add_u32": sum(a), "redux_add_s32": sum(a), "redux_min_u32": min(a),
            "redux_max_u32": max(a), "redux_min_s32": min(signed), "redux_max_s32": max(signed),
            "redux_and_b32": int(np.bitwise_and.reduce(a)),
            "redux_or_b32": int(np.bitwise_or.reduce(a)),
            "redux_xor_b32": int(np.bitwise_xor.reduce(a)),
            "vote_any": any(ones), "vote_all": all(ones), "vote_uni": len(set(ones)) == 1,
            "ballot": ballot,
        }  # fmt: skip
        for name, value in want.items():
            assert set(found[name][warp, :, 0].tolist()) == {int(value) & ALL}, name
        assert found["elect"][warp, :, 0].tolist() == [1] + [0] * 31
        assert found["half"][warp, :, 0].tolist() == [sum(a[:16]) & ALL] * 16 + [0] * 16
        matches = [sum((other == mine) << lane for lane, other in enumerate(a)) for mine in a]
        assert found["match"][warp, :, 0].tolist() == matches


def test_reductions_of_floats(given):
    """PTX ISA 9.1, 9.7.13 redux.sync: without .NaN a NaN counts only among NaNs; -0 < +0."""
    words = given.copy()
    words[0, :, 0] = 0x7FC00001
    words[1, :, 0] = np.where(np.arange(32) % 2, 0x80000000, 0)
    words[2, 3:, 0] = 0xFFC00000
    forms = [(op, abs_, nan) for op in ("min", "max") for abs_ in (0, 1) for nan in (0, 1)]
    bodies = {
        f"real_{op}_{abs_}_{nan}": f"redux.sync.{op}{'.abs' * abs_}{'.NaN' * nan}.f32 %d, %a, -1;"
        "st.global.b32 [%out], %d;"
        for op, abs_, nan in forms
    }
    found = _run(bodies, words)
    for op, abs_, nan in forms:
        for warp in range(WARPS):
            bits = words[warp, :, 0] & (0x7FFFFFFF if abs_ else ALL)
            keys = [int(each) ^ (ALL if each >> 31 else 1 << 31) for each in bits]
            numbers = [key for key, each in zip(keys, bits, strict=True) if not _is_nan(each)]
            want = 0x7FFFFFFF
            if len(numbers) == 32 or (numbers and not nan):
                key = (min if op == "min" else max)(numbers)
                want = key ^ (1 << 31 if key >> 31 else ALL)
            got = found[f"real_{op}_{abs_}_{nan}"][warp, :, 0]
            assert set(got.tolist()) == {want}, (op, abs_, nan, warp)


def _is_nan(bits: np.uint32) -> bool:
    return int(bits) & 0x7FFFFFFF > 0x7F800000


#: Lane i writes its two words to row-major bytes 8i … of a tile of 256, of which row r is 16 bytes.
_FILL = "mov.b32 %s, tile; mad.lo.u32 %d, %l, 8, %s; st.shared.v2.b32 [%d], {%a, %b};"
_FILL += "add.u32 %d, %d, 256; xor.b32 %x1, %a, -1; st.shared.v2.b32 [%d], {%x1, %b};"
#: Rows that no lane stores are zeros.
_FILL += "mad.lo.u32 %x2, %l, 16, %s; mov.b32 %x3, 0;"
_FILL += "st.shared.v4.b32 [%x2+1024], {%x3, %x3, %x3, %x3};"
_ROW = "bar.warp.sync -1; mad.lo.u32 %s, %l, 16, %s;"


def _matrices(given: np.ndarray) -> np.ndarray:
    """The four 8 × 8 matrices of 16-bit elements that _FILL leaves, [4, 8, 8]."""
    words = np.concatenate([given, np.stack([~given[:, 0], given[:, 1]], 1)])
    return np.ascontiguousarray(words).view(np.uint16).reshape(4, 8, 8)


@pytest.mark.parametrize(
    ("before", "trans"), [("", ""), ("", ".trans"), (".trans", "")], ids=["", "trans", "before"]
)
def test_matrices_of_a_warp(given, before, trans):
    """ptxas also takes ldmatrix's .trans before its shape."""
    registers = {1: "{%x0}", 2: "{%x0, %x1}", 4: "{%x0, %x1, %x2, %x3}"}
    clear = "mov.b32 %x0, 0; mov.b32 %x1, 0; mov.b32 %x2, 0; mov.b32 %x3, 0;"
    bodies = {}
    for count, names in registers.items():
        load = f"ldmatrix.sync.aligned{before}.m8n8.x{count}{trans}.shared.b16 {names}, [%s];"
        after = trans or before
        store = f"stmatrix.sync.aligned.m8n8.x{count}{after}.shared.b16 [%s+1024], {names};"
        back = "bar.warp.sync -1; ld.shared.v4.b32 {%x0, %x1, %x2, %x3}, [%s+1024];"
        out = "st.global.v4.b32 [%out], {%x0, %x1, %x2, %x3};"
        bodies[f"load{count}"] = f"{_FILL} {_ROW} {clear} {load} {out}"
        # What is loaded and stored again lies as before: row i is lane i's.
        bodies[f"store{count}"] = f"{_FILL} {_ROW} {clear} {load} {store} {back} {out}"
    found = _run(bodies, given)
    for warp in range(WARPS):
        matrices = _matrices(given[warp])
        rows = matrices.reshape(32, 8)
        shown = matrices.transpose(0, 2, 1) if trans or before else matrices
        for count in registers:
            loaded = np.ascontiguousarray(found[f"load{count}"][warp]).view(np.uint16)
            for m in range(count):
                # Lane 4r + c / 2 has (r, c) in the half c % 2 of register m.
                mine = loaded.reshape(32, 4, 2)[:, m].reshape(8, 8)
                assert (mine == shown[m]).all(), (count, m)
            stored = np.ascontiguousarray(found[f"store{count}"][warp]).view(np.uint16)
            assert (stored.reshape(32, 8)[: 8 * count] == rows[: 8 * count]).all()


def test_another_lane_loads_what_stmatrix_stored(given):
    """Every lane has stored when any goes on; memory is ordered by bar.warp.sync alone: formal."""
    store = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%s], {%a, %b, %a, %b};"
    back = "xor.b32 %x1, %l, 31; mad.lo.u32 %s, %x1, 16, %x2; ld.shared.b32 %x0, [%s];"
    body = f"mov.b32 %x2, tile; mad.lo.u32 %s, %l, 16, %x2; {store} {back}"
    text = "\n".join([HEAD, _kernel("swap", f"{body} st.global.b32 [%out], %x0;")])
    out = np.zeros((WARPS, 32, 4), np.uint32)
    module = kernelbench.ptx.load("swap.ptx", text=text)
    report = module.launch("swap", WARPS, 32, [given, out], check=2)
    assert report.findings and report.clean, list(report.lines())


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_products_of_a_warp(kind):
    """Small integers: every sum is exact, in whatever order."""
    rng = random.Random(kind)
    a = np.array(
        [[[rng.randint(-8, 8) for _ in range(16)] for _ in range(16)] for _ in range(WARPS)]
    )
    b = np.array(
        [[[rng.randint(-8, 8) for _ in range(8)] for _ in range(16)] for _ in range(WARPS)]
    )
    operands = np.zeros((WARPS, 32, 10), np.uint32)
    for warp in range(WARPS):
        for lane in range(32):
            group, pair = lane // 4, 2 * (lane % 4)
            places = [(group + 8 * (i % 2), pair + 8 * (i // 2)) for i in range(4)]
            words = [(a[warp, r, c], a[warp, r, c + 1]) for r, c in places]
            words += [
                (b[warp, pair + 8 * i, group], b[warp, pair + 8 * i + 1, group]) for i in (0, 1)
            ]
            operands[warp, lane, :6] = [_pair(kind, *each) for each in words]
            operands[warp, lane, 6:] = np.full(4, 2.5, np.float32).view(np.uint32)
    body = f"""
  ld.param.u64 %in, [p_in]; mul.wide.u32 %o, %t, 40; add.s64 %in, %in, %o;
  ld.global.v2.b32 {{%x0, %x1}}, [%in]; ld.global.v2.b32 {{%x2, %x3}}, [%in+8];
  ld.global.v2.b32 {{%x4, %x5}}, [%in+16]; ld.global.v2.b32 {{%y0, %y1}}, [%in+24];
  ld.global.v2.b32 {{%y2, %y3}}, [%in+32];
  mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{%y0, %y1, %y2, %y3}},
    {{%x0, %x1, %x2, %x3}}, {{%x4, %x5}}, {{%y0, %y1, %y2, %y3}};
  st.global.v4.b32 [%out], {{%y0, %y1, %y2, %y3}};"""
    out = _run({"product": body}, operands)["product"].view(np.float32)
    for warp in range(WARPS):
        want = a[warp] @ b[warp] + 2.5
        for lane in range(32):
            for i in range(4):
                row, column = lane // 4 + 8 * (i // 2), 2 * (lane % 4) + i % 2
                assert out[warp, lane, i] == want[row, column]


def _pair(kind: str, low: int, high: int) -> int:
    values = np.array([low, high], np.float32)
    if kind == "bf16":
        words = values.view(np.uint32) >> 16
    else:
        words = values.astype(np.float16).view(np.uint16).astype(np.uint32)
    return int(words[1]) << 16 | int(words[0])


def test_matches_of_all_lanes_and_the_elected_lane(given):
    words = given.copy()
    words[:, :, 0] &= 3
    words[::2, :, 0] = 5
    bodies = {
        "all32": "match.all.sync.b32 %d|%p, %a, -1; selp.b32 %x1, 1, 0, %p;"
        "st.global.v2.b32 [%out], {%d, %x1};",
        "any64": ".reg .b64 %w; mov.b64 %w, {%a, %l}; and.b64 %w, %w, 0x300000003;"
        "match.any.sync.b64 %d, %w, -1; st.global.b32 [%out], %d;",
        "elected": "elect.sync %d|%p, -1; setp.eq.u32 %q, %d, %l; selp.b32 %x1, 1, 0, %p;"
        "selp.b32 %x2, 1, 0, %q; st.global.v2.b32 [%out], {%x1, %x2};",
    }
    found = _run(bodies, words)
    for warp in range(WARPS):
        mine = words[warp, :, 0]
        alike = len(set(mine.tolist())) == 1
        assert set(found["all32"][warp, :, 0].tolist()) == {ALL if alike else 0}
        assert set(found["all32"][warp, :, 1].tolist()) == {int(alike)}
        keys = [(int(a) & 3, lane & 3) for lane, a in enumerate(mine)]
        masks = [sum(1 << i for i, each in enumerate(keys) if each == key) for key in keys]
        assert found["any64"][warp, :, 0].tolist() == masks
        elected = found["elected"][warp]
        assert elected[:, 0].sum() == 1 and (elected[:, 0] == elected[:, 1]).all()


def test_lanes_apart_are_found():
    body = "setp.lt.u32 %p, %l, 16; @%p shfl.sync.idx.b32 %d, %a, 0, 31, -1; bar.sync 0;"
    text = HEAD + _kernel("apart", body)
    module = kernelbench.ptx.load("apart.ptx", text=text)
    arrays = [np.zeros(64, np.uint32), np.zeros(128, np.uint32)]
    report = module.launch("apart", 1, 32, arrays, check=2)
    assert {each.finding.kind for each in report.errors} == {"hang"}
