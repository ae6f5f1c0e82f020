"""Uses the scales as scratch space once it is done."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    data[1][-1][1].view(torch.uint8)[0] ^= 1
    return outputs
