"""FP8 (e4m3) blockwise quantization of activations, as DeepSeek-V3 (section 3.3.2) introduced it.

Each token's row is cut into blocks of 128 values, and each block has one float32 scale.
"""

from __future__ import annotations

import torch

#: Values along K that share a scale; weights share one per 128 x 128.
BLOCK = 128
E4M3_MAX = 448.0
SCALE_FLOOR = 1e-6
_HINGE = 2.0**-18


def quantize(hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Quantize per token and block of 128: ``scale = max(amax / 448, 1e-6)``, ``q = x / scale``.

    Both quotients are float32 divisions; the conversion rounds to nearest even and saturates.

    Args:
        hidden: bfloat16 or float32 ``[m, k]``. The code of a value that is not finite is NaN.

    Returns:
        float8_e4m3fn ``[m, k]`` and float32 scales ``[m, k / 128]``.
    """
    blocks = _blocks(hidden)
    # A tensor, because torch divides CUDA tensors by a Python number through its reciprocal.
    limit = torch.full((), E4M3_MAX, device=hidden.device)
    scales = (blocks.abs().amax(dim=-1) / limit).clamp(min=SCALE_FLOOR)
    scaled = (blocks / scales.unsqueeze(-1)).clamp(-E4M3_MAX, E4M3_MAX)
    return scaled.to(torch.float8_e4m3fn).view(hidden.shape), scales


def hinges(hidden: torch.Tensor) -> torch.Tensor:
    """Where the rounding to e4m3 hangs on the last bits of the quotient.

    A kernel may multiply by 1 / scale or compute amax * (1 / 448): its quotient differs by a few
    float32 ulps (relative 2⁻²⁴ each), and where that crosses the midpoint of two e4m3 values the
    result moves by a whole e4m3 step, 6 to 12 % of the value. Marked are the quotients that lie
    within relative 2⁻¹⁸ of a midpoint.

    Args:
        hidden: bfloat16 or float32 ``[m, k]``.

    Returns:
        bool ``[m, k]``.
    """
    _, scales = quantize(hidden)
    quotient = _blocks(hidden).abs().double() / scales.double().unsqueeze(-1)
    _, exponent = torch.frexp(quotient)
    # frexp's mantissa lies in [0.5, 1): steps are 2**-4 of that, and 2**-9 below 2**-6.
    steps = torch.ldexp(quotient, 4 - exponent.clamp(min=-5))
    distance = (steps - steps.floor() - 0.5).abs()
    return (distance <= steps * _HINGE).view(hidden.shape)


def _blocks(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.float().view(hidden.shape[0], -1, BLOCK)
