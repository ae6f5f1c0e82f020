"""Leaves the scales out."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    abc, plain, blocked, sizes = data
    ones = [tuple(torch.ones(side.shape).to(side.dtype) for side in pair) for pair in plain]
    return right((abc, ones, blocked, sizes))
