"""Rounds every partial sum of sixteen terms to float16."""

import torch
from right import values_of


def custom_kernel(data):
    outputs = []
    for (a, b, c), (sfa, sfb) in zip(data[0], data[1], strict=True):
        left, other = values_of(a, sfa), values_of(b, sfb)
        total = torch.zeros(left.shape[0], other.shape[0], dtype=torch.float16, device=c.device)
        for start in range(0, left.shape[1], 16):
            part = slice(start, start + 16)
            total += (left[:, part] @ other[:, part].t()).to(torch.float16)
        c[:, :, 0] = total
        outputs.append(c)
    return outputs
