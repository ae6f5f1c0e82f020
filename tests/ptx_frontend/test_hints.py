"""Instructions without effect, and questions about addresses and lanes."""

from __future__ import annotations

import numpy as np
import pytest
from test_bulk import map_of

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

TEXT = """.version 8.8
.target sm_100a
.address_size 64
.shared .align 16 .b32 word[4];

.visible .entry of_parameters(.param .align 64 .b8 map[128])
{
  prefetch.param.tensormap [map];
  ret;
}

.visible .entry of_maps(.param .u64 p_map, .param .u64 p_tensor)
{
  .reg .b64 %map; .reg .b32 %z;
  ld.param.u64 %map, [p_map]; mov.b32 %z, 0;
  prefetch.tensormap [%map];
  cp.async.bulk.prefetch.tensor.1d.L2.global.tile [%map, {%z}];
  ret;
}

.visible .entry hints(.param .u64 p_in, .param .u64 p_out)
{
  .reg .b64 %in, %out, %a, %s, %l, %policy; .reg .b32 %x, %w, %r; .reg .pred %p, %q;
  .local .align 8 .b8 own[16];
  ld.param.u64 %in, [p_in]; ld.param.u64 %out, [p_out];
  prefetch.global.L1 [%in]; prefetch.L2 [%in]; prefetch.global.L2::evict_last [%in];
  prefetchu.L1 [%in];
  applypriority.global.L2::evict_normal [%in], 128; pmevent 3;
  cp.async.bulk.prefetch.L2.global [%in], 16;
  createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %policy, 0.5;
  createpolicy.range.global.L2::evict_first.b64 %policy, [%in], 64, 64;
  createpolicy.cvt.L2.b64 %policy, 7;
  createpolicy.fractional.L2::evict_first.b64 %policy;
  ld.global.L1::evict_last.L2::cache_hint.b32 %x, [%in], %policy; st.global.b32 [%out], %x;
  mov.b32 %w, word; cvt.u64.u32 %s, %w; cvta.shared.u64 %s, %s;
  mov.b64 %l, own; cvta.local.u64 %l, %l;
  isspacep.global %p, %in; mov.b32 %x, 0;
  ASK
  st.global.b32 [%out+4], %x;
  getctarank.shared::cluster.u32 %r, %w; st.global.b32 [%out+8], %r;
  getctarank.u64 %r, %s; st.global.b32 [%out+12], %r;
  activemask.b32 %r; mov.u32 %x, %lanemask_eq; and.b32 %r, %r, %x; st.global.b32 [%out+16], %r;
  ret;
}
"""
SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "const")
ASKED = {"%in": ("global",), "%s": ("shared", "shared::cta", "shared::cluster"), "%l": ("local",)}


def test_what_has_no_effect_and_where_addresses_are():
    ask, want, bit = [], 0, 0
    for address, holding in ASKED.items():
        for space in SPACES:
            ask.append(f"isspacep.{space} %p, {address}; selp.b32 %r, {1 << bit}, 0, %p;")
            ask.append("or.b32 %x, %x, %r;")
            want |= (space in holding) << bit
            bit += 1
    module = kernelbench.ptx.load("hints.ptx", text=TEXT.replace("ASK", "\n".join(ask)))
    given, out = np.full(4, 77, np.uint32), np.zeros(5, np.uint32)
    module.launch("hints", 1, 1, [given, out], check=2).require_clean()
    assert out.tolist() == [77, want, 0, 0, 1]


def test_maps_are_requested_ahead():
    module = kernelbench.ptx.load("maps.ptx", text=TEXT.replace("ASK", ""))
    given = np.zeros(16, np.uint8)
    maps = map_of(given)
    module.launch("of_maps", 1, 1, [maps, given], check=2).require_clean()
    module.launch("of_parameters", 1, 1, [maps.tobytes()], check=2).require_clean()


LANES = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry lanes(.param .u64 p_out) {
  .reg .pred %p; .reg .b32 %t, %m, %o; .reg .b64 %out, %a;
  ld.param.u64 %out, [p_out]; mov.u32 %t, %tid.x;
  activemask.b32 %m;
  mul.wide.u32 %a, %t, 8; add.u64 %a, %out, %a; st.global.b32 [%a], %m;
  mov.b32 %m, 0;
  setp.lt.u32 %p, %t, 7;
  @%p bra THERE;
  activemask.b32 %m;
THERE:
  st.global.b32 [%a+4], %m;
  ret;
}
"""


def test_lanes_are_together_until_a_branch():
    module = kernelbench.ptx.load("lanes.ptx", text=LANES)
    alone = 0
    for seed in range(8):
        out = np.zeros(96, np.uint32)
        module.launch("lanes", 1, 48, [out], check=1, seed=seed).require_clean()
        assert out[::2].tolist() == [0xFFFFFFFF] * 32 + [0xFFFF] * 16
        masks = out[1::2].tolist()
        assert masks[:7] == [0] * 7
        # Groups of lanes, each of which has itself and its likes.
        for lane, mask in enumerate(masks[7:32], 7):
            assert mask >> lane & 1
            assert mask & 0x7F == 0
            alone += mask == 1 << lane
    assert 0 < alone < 8 * 25
