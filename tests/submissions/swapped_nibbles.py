"""Takes the two values of a byte in the wrong order."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    abc = []
    for a, b, c in data[0]:
        codes = a.view(torch.uint8)
        swapped = (codes << 4) | (codes >> 4)
        abc.append((swapped.view(torch.float4_e2m1fn_x2), b, c))
    return right((abc, *data[1:]))
