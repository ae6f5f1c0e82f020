"""A warp that waits for a barrier by parity, and that nobody waits for, can miss two phases.

The protocol is that of CUTLASS's tutorial ``blackwell/02_mma_tma_sm100.cu`` (docs/ptx.md, "The
hang"): one warp completes a phase for each tile and waits for that alone; the others wait for each
phase, too, by its parity.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")


def _text(name: str, meets: bool) -> str:
    """Warp 0 arrives once for each tile; both warps wait. ``meets``: and then for each other."""
    return f"""
.visible .entry {name}(.param .u64 p_out, .param .u32 p_tiles) .reqntid 64
{{
  .reg .b64 %out, %o; .reg .b32 %t, %b, %k, %n, %parity; .reg .pred %first, %done, %more;
  ld.param.u64 %out, [p_out]; ld.param.u32 %n, [p_tiles];
  mov.u32 %t, %tid.x; mov.b32 %b, bar; setp.eq.u32 %first, %t, 0; mov.b32 %k, 0;
  @%first mbarrier.init.shared::cta.b64 [%b], 1;
  bar.sync 0;
NEXT:
  @%first mbarrier.arrive.shared::cta.b64 _, [%b];
  and.b32 %parity, %k, 1;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %done, [%b], %parity; @!%done bra WAIT;
  {"bar.sync 0;" if meets else ""}
  add.u32 %k, %k, 1; setp.lt.u32 %more, %k, %n; @%more bra NEXT;
  mul.wide.u32 %o, %t, 4; add.s64 %out, %out, %o; st.global.b32 [%out], %k;
  ret;
}}"""


TEXT = "\n".join([
    ".version 8.8\n.target sm_90\n.address_size 64\n.shared .align 8 .b64 bar;",
    _text("alone", meets=False), _text("together", meets=True),
])  # fmt: skip


@pytest.fixture(scope="module")
def module():
    return kernelbench.ptx.load("laps.ptx", text=TEXT)


def _ends(tiles: int, meets: bool) -> set[str]:
    """How every order of the two warps' steps ends: by all states that can be reached.

    A state is each warp's tile and place there (arrive, wait, meet) and the barrier's phase. A wait
    for a parity goes on if the barrier's phase has the other one (PTX ISA 9.1, 9.7.13.15).
    """
    begin = ((0, "arrive"), (0, "wait"), 0)
    seen, todo, ends = {begin}, [begin], set()
    while todo:
        *warps, phase = state = todo.pop()
        after = set()
        for at, (tile, place) in enumerate(warps):
            if tile == tiles:
                continue
            begins = (tile + 1, "wait" if at else "arrive")
            if place == "arrive":
                after.add((((tile, "wait"), warps[1]), phase + 1))
            elif place == "wait" and phase % 2 != tile % 2:
                moved = (tile, "meet") if meets else begins
                after.add(((moved, warps[1]) if at == 0 else (warps[0], moved), phase))
        if [place for _, place in warps] == ["meet", "meet"] and warps[0][0] < tiles:
            after.add((((warps[0][0] + 1, "arrive"), (warps[1][0] + 1, "wait")), phase))
        new = {(*each, now) for each, now in after} - seen
        seen |= new
        todo += new
        if not after:
            ends.add("end" if warps == [(tiles, "arrive"), (tiles, "wait")] else "hang")
            assert state in seen
    return ends


@pytest.mark.parametrize("tiles", range(1, 7))
def test_every_order(tiles):
    """With one tile nothing is missed; with more a hang can be reached, and none if they meet."""
    assert _ends(tiles, meets=False) == ({"end"} if tiles == 1 else {"end", "hang"})
    assert _ends(tiles, meets=True) == {"end"}


@pytest.mark.parametrize("tiles", [1, 2, 3])
def test_the_checker_agrees(module, tiles):
    """It finds what the enumeration says can be reached, and in no schedule anything else."""
    for name, meets in (("alone", False), ("together", True)):
        out = np.zeros(64, np.int32)
        report = module.launch(name, 1, 64, [out, tiles], check=60, seed=1)
        kinds = {each.finding.kind for each in report.errors}
        if "hang" in _ends(tiles, meets):
            assert "hang" in kinds
            assert kinds <= {"hang", "phase"}
        else:
            assert kinds == set()
            assert (out == tiles).all()
