"""Asks for a pebibyte."""

import torch


def custom_kernel(data):
    return torch.empty(1 << 50, dtype=torch.uint8, device=data[0][0][0].device)
