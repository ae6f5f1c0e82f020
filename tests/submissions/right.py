"""The right answer, in the simplest way; the other submissions here do one thing wrong."""

import functools

import torch

_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


@functools.cache
def table(device):
    """The float32 value of each code."""
    return torch.tensor(_E2M1, dtype=torch.float32, device=device)


def values_of(packed, scales):
    """``[rows, k / 2, 1]`` codes and ``[rows, k / 16, 1]`` scales -> float32 ``[rows, k]``."""
    codes = packed[:, :, 0].view(torch.uint8).long()
    values = table(packed.device)[torch.stack((codes & 15, codes >> 4), dim=-1)].flatten(1)
    factors = scales[:, :, 0].to(packed.device).to(torch.float32)
    return values * factors.repeat_interleave(16, dim=1)


def products(data):
    """Each group's ``c`` with the float16 ``[m, n]`` that belongs there."""
    for (a, b, c), (sfa, sfb) in zip(data[0], data[1], strict=True):
        yield c, (values_of(a, sfa) @ values_of(b, sfb).t()).to(torch.float16)


def custom_kernel(data):
    outputs = []
    for c, product in products(data):
        c[:, :, 0] = product
        outputs.append(c)
    return outputs
