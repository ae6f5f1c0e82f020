"""One element is off by one unit in the last place."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    outputs[-1].view(torch.int16)[-1, -1, 0] ^= 1
    return outputs
