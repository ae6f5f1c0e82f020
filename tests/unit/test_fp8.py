"""FP8 quantization against a search of the format's values."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelbench.problems.fused_moe import fp8


def e4m3_values() -> np.ndarray:
    """The 127 finite non-negative values, by the format's definition; index is the code."""
    return np.array(
        [
            m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)
            for e in range(16)
            for m in range(8)
        ][:127]
    )


def nearest_code(value: np.float32) -> int:
    """Nearest value, ties to the even code, saturating."""
    table = e4m3_values()
    distance = np.abs(table - min(abs(float(value)), 448.0))
    near = np.flatnonzero(distance == distance.min())
    code = int(near[0] if len(near) == 1 else near[near % 2 == 0][0])
    return code | (0x80 if np.signbit(value) else 0)


def draw(seed: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(6, 256, generator=generator) * scale).bfloat16()


@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-8, 3e4])
def test_quantize_by_search(scale: float) -> None:
    hidden = draw(1, scale)
    hidden[0, :128] = 0
    hidden[1, 5] = 448 * 2.0**-6  # a scale that is a power of two makes exact ties
    codes, scales = fp8.quantize(hidden)
    assert codes.dtype == torch.float8_e4m3fn
    assert scales.dtype == torch.float32
    values = hidden.float().numpy().reshape(6, 2, 128)
    for row in range(6):
        for block in range(2):
            x = values[row, block]
            expected = max(np.float32(np.abs(x).max()) / np.float32(448), np.float32(1e-6))
            assert scales[row, block].item() == expected
            found = codes.view(torch.uint8).view(6, 2, 128)[row, block].tolist()
            assert found == [nearest_code(v / expected) for v in x]


def test_scale_floor() -> None:
    codes, scales = fp8.quantize(torch.full((1, 128), 2.0**-14).bfloat16())
    assert scales.item() == np.float32(1e-6)
    assert codes.float().unique().item() == 60  # 61.035 in steps of 4
    _, scales = fp8.quantize(torch.zeros(1, 128).bfloat16())
    assert scales.item() == np.float32(1e-6)


def test_hinges_mark_midpoints_and_nothing_else() -> None:
    hidden = torch.zeros(1, 128)
    hidden[0, 0] = 448  # scale 1
    hidden[0, 1] = 17  # between 16 and 18
    hidden[0, 2] = 18
    hidden[0, 3] = -1.9375  # between 1.875 and 2
    hidden[0, 4] = 17 * (1 + 2.0**-19)
    hidden[0, 5] = 17 * (1 + 2.0**-16)
    hidden[0, 6] = 2.0**-10  # between 0 and the smallest subnormal
    hidden[0, 7] = 3 * 2.0**-10
    hidden[0, 8] = 2.0**-9
    marked = torch.nonzero(fp8.hinges(hidden)[0]).flatten().tolist()
    assert marked == [1, 3, 4, 6, 7]


def test_variants_of_the_arithmetic_agree_away_from_hinges() -> None:
    """What kernels do instead of two divisions; without the hinges removed, bits differ."""

    def variants(hidden: torch.Tensor) -> list[torch.Tensor]:
        blocks = hidden.float().view(len(hidden), -1, 128)
        amax = blocks.abs().amax(-1, keepdim=True)
        by_reciprocal = (amax * np.float32(1 / 448)).clamp(min=1e-6)
        scale = (amax / 448).clamp(min=1e-6)
        quotients = (blocks / by_reciprocal, blocks * (1 / scale), blocks * (448 / amax))
        return [q.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8) for q in quotients]

    generator = torch.Generator().manual_seed(3)
    hidden = torch.randn(256, 1024, generator=generator).bfloat16()
    raw = fp8.quantize(hidden)[0].view(torch.uint8)
    assert any(not torch.equal(raw.view(256, -1, 128), v) for v in variants(hidden))
    settled = hidden.masked_fill(fp8.hinges(hidden), 0)
    codes = fp8.quantize(settled)[0].view(torch.uint8)
    assert all(torch.equal(codes.view(256, -1, 128), v) for v in variants(settled))
