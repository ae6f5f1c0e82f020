"""Asks the device for a tebibyte, where the first group has one row; else right."""

import torch
from gpu_right import custom_kernel as right


def custom_kernel(data):
    if data[3][0][0] == 1:
        torch.empty(1 << 40, dtype=torch.uint8, device=data[0][0][0].device)
    return right(data)
