"""Fails an assertion on the device, where the first group has one row; else right."""

import torch
from gpu_right import custom_kernel as right


def custom_kernel(data):
    if data[3][0][0] == 1:
        a = data[0][0][0].view(torch.uint8).flatten()
        a[torch.tensor([1 << 40], device=a.device)]
    return right(data)
