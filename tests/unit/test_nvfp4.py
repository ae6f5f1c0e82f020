"""NVFP4 decoding and the blocked scale layout, against the formats' definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from kernelbench.problems.group_gemm import nvfp4

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def e4m3(code: int) -> float:
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    if exponent == 0:
        return sign * mantissa / 8 * 2.0**-6
    return sign * (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def test_every_byte_decodes_low_nibble_first() -> None:
    packed = torch.arange(256, dtype=torch.uint8).view(16, 16)
    values = (nvfp4.scaled_e2m1(packed).double() * 2.0**14).view(-1, 2).tolist()
    for byte, (low, high) in enumerate(values):
        for nibble, value in ((byte & 15, low), (byte >> 4, high)):
            assert value == (-1 if nibble & 8 else 1) * E2M1[nibble & 7]


def test_every_e4m3_code() -> None:
    values = nvfp4.decode_e4m3(torch.arange(256, dtype=torch.uint8)).tolist()
    for code, value in enumerate(values):
        expected = e4m3(code)
        assert value == expected or (math.isnan(value) and math.isnan(expected))
    assert values[nvfp4.E4M3_MAX_CODE] == 448


def test_dequantize_applies_the_scale_of_the_block() -> None:
    packed = torch.full((2, 16), 0x22, dtype=torch.uint8)  # all ones, two blocks a row
    scales = torch.tensor([[0x38, 0x40], [0x48, 0x01]], dtype=torch.uint8)
    expected = torch.tensor([[1.0] * 16 + [2.0] * 16, [4.0] * 16 + [2.0**-9] * 16])
    assert torch.equal(nvfp4.dequantize(packed, scales).double(), expected.double())


def test_dequantize_is_the_product_of_value_and_scale() -> None:
    generator = torch.Generator().manual_seed(3)
    packed = torch.randint(0, 256, (5, 256), dtype=torch.uint8, generator=generator)
    scales = torch.randint(0, 127, (5, 32), dtype=torch.uint8, generator=generator)
    values = nvfp4.dequantize(packed[:, ::2], scales[:, ::2])
    assert values.dtype == torch.float32 and values.shape == (5, 256)
    for row in range(5):
        for place in range(256):
            code = int(packed[row, place // 2 * 2]) >> 4 * (place % 2) & 15
            value = (-1 if code & 8 else 1) * E2M1[code & 7]
            assert values[row, place] == value * e4m3(int(scales[row, place // 16 * 2]))


@pytest.mark.parametrize(("rows", "k"), [(1, 64), (128, 256), (129, 64), (333, 192)])
def test_blocked_layout_closed_form(rows: int, k: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    blocks, padded = k // 16, -(-rows // 128) * 128
    scales = torch.randint(0, 127, (rows, blocks), dtype=torch.uint8, generator=generator)
    padding = torch.randint(0, 127, (padded, blocks), dtype=torch.uint8, generator=generator)
    view = nvfp4.block_scales(scales, padding)
    assert view.shape == (32, 4, padded // 128, 4, k // 64, 1)
    storage = view.permute(5, 2, 4, 0, 1, 3)
    assert storage.is_contiguous()
    memory = storage.flatten().tolist()
    assert len(memory) == padded * blocks
    for row in range(padded):
        for block in range(blocks):
            byte = ((row // 128) * (blocks // 4) + block // 4) * 512
            byte += (row % 32) * 16 + ((row % 128) // 32) * 4 + block % 4
            expected = scales[row, block] if row < rows else padding[row, block]
            assert memory[byte] == int(expected)


def test_round_to_half_rounds_once() -> None:
    # By way of float32 this becomes a tie, which goes down to the even 1.
    above_tie = torch.tensor([1 + 2.0**-11 + 2.0**-30], dtype=torch.float64)
    assert nvfp4.round_to_half(above_tie).item() == 1 + 2.0**-10
    generator = torch.Generator().manual_seed(1)
    mantissa = torch.rand(20000, dtype=torch.float64, generator=generator) * 2 - 1
    exponent = torch.randint(-30, 16, (20000,), generator=generator)
    values = torch.ldexp(mantissa, exponent)
    ties = torch.ldexp(torch.arange(-4097, 4097, 2, dtype=torch.float64), torch.tensor(-13))
    values = torch.cat((values, ties, torch.tensor([0.0, 65504.0, -65504.0]).double()))
    expected = values.numpy().astype(np.float16)  # numpy rounds float64 to float16 directly
    assert np.array_equal(nvfp4.round_to_half(values).numpy(), expected)
