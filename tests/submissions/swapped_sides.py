"""Takes the scales of A for B and those of B for A."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    abc, plain, blocked, sizes = data
    swapped = []
    for sfa, sfb in plain:
        rows_a, rows_b = (torch.arange(side.shape[0]) for side in (sfa, sfb))
        pair = (
            sfb.view(torch.uint8)[rows_a % len(rows_b)],
            sfa.view(torch.uint8)[rows_b % len(rows_a)],
        )
        swapped.append(tuple(side.view(torch.float8_e4m3fn) for side in pair))
    return right((abc, swapped, blocked, sizes))
