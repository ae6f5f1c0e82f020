"""Fetches of textures and accesses of surfaces against the programming guide's formulas."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest

import kernelbench.ptx

pytestmark = pytest.mark.usefixtures("emulator_runtime")

WIDTH, HEIGHT, LAYERS = 5, 4, 2
WRAP, CLAMP, MIRROR, BORDER = range(4)
TEXT = """.version 8.8
.target sm_90
.address_size 64
.visible .entry fetch(.param .u64 p_t, .param .u64 p_at, .param .u64 p_out)
{
  .reg .b64 %t, %at, %out, %o; .reg .f32 %x, %y; .reg .b32 %a, %b, %c, %d, %i;
  ld.param.u64 %t, [p_t]; ld.param.u64 %at, [p_at]; ld.param.u64 %out, [p_out];
  mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 8; add.u64 %at, %at, %o;
  mul.wide.u32 %o, %i, 16; add.u64 %out, %out, %o;
  ld.global.v2.f32 {%x, %y}, [%at]; mov.b32 %i, 1;
  FETCH {%a, %b, %c, %d}, [%t, {AT}];
  st.global.v4.b32 [%out], {%a, %b, %c, %d};
  ret;
}
.visible .entry surface(.param .u64 p_t, .param .u64 p_out)
{
  .reg .b64 %t, %out; .reg .b32 %x, %y, %a, %w;
  ld.param.u64 %t, [p_t]; ld.param.u64 %out, [p_out]; mov.b32 %x, 8; mov.b32 %y, 3;
  suld.b.2d.b32.trap {%a}, [%t, {%x, %y}]; st.global.b32 [%out], %a;
  mov.b32 %x, -4; suld.b.2d.b32.clamp {%a}, [%t, {%x, %y}]; st.global.b32 [%out+4], %a;
  suld.b.2d.b32.zero {%a}, [%t, {%x, %y}]; st.global.b32 [%out+8], %a;
  sust.b.2d.b32.zero [%t, {%x, %y}], %y; mov.b32 %x, 16; sust.b.2d.b32.trap [%t, {%x, %y}], %y;
  txq.width.b32 %w, [%t]; st.global.b32 [%out+12], %w;
  ret;
}
"""
IMAGE = (np.arange(WIDTH * HEIGHT * LAYERS, dtype=np.float32) * 3 % 17).reshape(
    LAYERS, HEIGHT, WIDTH
)
AT = np.array([(x / 8 - 1, y / 4 - 0.5) for x in range(-8, 24) for y in (0, 3, 7, 9)], np.float32)


def _words(
    *, wrapping: int, linear: bool, normalized: bool, levels: int = 1, mixes: bool = False
) -> np.ndarray:
    """An object's words, as ``ImageWords`` of textures.hpp has them, and a border of 9."""
    made = struct.pack(
        "3Q4I2I I 3I 3I I 4f 2I 3f 12x", IMAGE.ctypes.data, 4 * WIDTH, 4 * WIDTH * HEIGHT, WIDTH,
        HEIGHT, 0, LAYERS, 1, 32, 2, *[wrapping] * 3, linear, normalized, 0, 0, *[9.0] * 4,
        levels, mixes, 0.25, 0, 2,
    )  # fmt: skip
    return np.frombuffer(made, np.uint8).copy()


def _texel(layer: int, place: tuple[int, ...], wrapping: int) -> Fraction:
    inside = []
    for at, extent in zip(place, (WIDTH, HEIGHT), strict=True):
        if wrapping == BORDER and not 0 <= at < extent:
            return Fraction(9)
        folded = at % (2 * extent)
        inside.append({
            WRAP: at % extent, MIRROR: min(folded, 2 * extent - 1 - folded),
        }.get(wrapping, max(0, min(at, extent - 1))))  # fmt: skip
    return Fraction(float(IMAGE[layer, inside[1], inside[0]]))


def _wanted(layer: int, at: np.ndarray, wrapping: int, linear: bool, normalized: bool) -> float:
    scale = (WIDTH, HEIGHT) if normalized else (1, 1)
    x, y = (Fraction(float(each)) * by for each, by in zip(at, scale, strict=True))
    if not normalized and wrapping in (WRAP, MIRROR):
        wrapping = CLAMP
    if not linear:
        return float(_texel(layer, (math.floor(x), math.floor(y)), wrapping))
    x, y = x - Fraction(1, 2), y - Fraction(1, 2)
    i, j = math.floor(x), math.floor(y)
    a, b = (Fraction(math.floor((v - math.floor(v)) * 256 + Fraction(1, 2)), 256) for v in (x, y))
    t = [_texel(layer, (i + p, j + q), wrapping) for q in (0, 1) for p in (0, 1)]
    return float((1 - a) * (1 - b) * t[0] + a * (1 - b) * t[1] + (1 - a) * b * t[2] + a * b * t[3])


def _fetched(opcode: str, place: str, words: np.ndarray) -> np.ndarray:
    module = kernelbench.ptx.load(
        "textures.ptx", text=TEXT.replace("FETCH", opcode).replace("AT}", place + "}")
    )
    out = np.zeros((len(AT), 4), np.float32)
    report = module.launch(
        "fetch", grid=1, block=len(AT), args=[words, AT, out], memory={"image": IMAGE}, check=1
    )
    report.require_clean()
    return out


@pytest.mark.parametrize("wrapping", [WRAP, CLAMP, MIRROR, BORDER])
@pytest.mark.parametrize(("linear", "normalized"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_filters_and_address_modes(wrapping: int, linear: int, normalized: int) -> None:
    words = _words(wrapping=wrapping, linear=bool(linear), normalized=bool(normalized))
    for opcode, place, layer in (
        ("tex.2d.v4.f32.f32", "%x, %y", 0),
        ("tex.a2d.v4.f32.f32", "%i, %x, %y, %y", 1),
    ):
        found = _fetched(opcode, place, words)[:, 0]
        wanted = [_wanted(layer, at, wrapping, bool(linear), bool(normalized)) for at in AT]
        assert found == pytest.approx(wanted, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("mixes", "level", "share"),
    [(0, 0.0, 0), (0, 0.375, 1), (0, 7.0, 1), (1, 0.25, 0.5), (1, -3.0, 0), (1, 0.75, 1)],
)
def test_levels_by_their_number_with_a_bias(mixes: int, level: float, share: float) -> None:
    """The second level has the texels of the second layer."""
    first, second = (
        _words(wrapping=CLAMP, linear=False, normalized=True, levels=2, mixes=bool(mixes))
        for _ in range(2)
    )
    second[:8] = np.frombuffer(struct.pack("Q", IMAGE[1].ctypes.data), np.uint8)
    words = np.concatenate([first, second])
    level_bits = f"0f{struct.pack('>f', level).hex()}"
    found = _fetched("tex.level.2d.v4.f32.f32", f"%x, %y}}], {level_bits};//", words)[:, 0]
    low, high = (
        np.array([_wanted(layer, at, CLAMP, False, True) for at in AT]) for layer in (0, 1)
    )
    assert found == pytest.approx((1 - share) * low + share * high, rel=1e-6)


def test_a_level_by_gradients_is_refused() -> None:
    words = np.tile(_words(wrapping=CLAMP, linear=False, normalized=True, levels=2), 2)
    module = kernelbench.ptx.load(
        "textures.ptx",
        text=TEXT.replace("FETCH", "tex.grad.2d.v4.f32.f32").replace(
            "AT}]", "%x, %y}], {%x, %y}, {%x, %y}"
        ),
    )
    out = np.zeros((len(AT), 4), np.float32)
    report = module.launch(
        "fetch", grid=1, block=len(AT), args=[words, AT, out], memory={"image": IMAGE}, check=1
    )
    assert [each.finding.kind for each in report.findings] == ["descriptor"]
    assert "tex.level is" in report.findings[0].finding.text


def test_gather_takes_four_texels() -> None:
    words = _words(wrapping=CLAMP, linear=False, normalized=False)
    found = _fetched("tld4.r.2d.v4.f32.f32", "%x, %y", words)
    for at, four in zip(AT, found, strict=True):
        i, j = (math.floor(float(each) - 0.5) for each in at)
        order = ((0, 1), (1, 1), (1, 0), (0, 0))
        assert list(four) == [float(_texel(0, (i + p, j + q), CLAMP)) for p, q in order]


def test_surfaces() -> None:
    words, out = _words(wrapping=CLAMP, linear=False, normalized=False), np.zeros(4, np.int32)
    module = kernelbench.ptx.load(
        "textures.ptx", text=TEXT.replace("FETCH", "tex.2d.v4.f32.f32").replace("AT}", "%x, %y}")
    )
    image = IMAGE.copy()
    words[:8] = np.frombuffer(struct.pack("Q", image.ctypes.data), np.uint8)
    report = module.launch(
        "surface", grid=1, block=1, args=[words, out], memory={"i": image}, check=1
    )
    report.require_clean()
    bits = IMAGE.view(np.int32)
    assert list(out) == [bits[0, 3, 2], bits[0, 3, 0], 0, WIDTH]
    assert image.view(np.int32)[0, 3, 4] == 3 and image[0, 3, 0] == IMAGE[0, 3, 0]
