"""Keeps the device busy for minutes."""

import torch
from gpu_right import custom_kernel as right


def custom_kernel(data):
    torch.cuda._sleep(400_000_000_000)
    return right(data)
