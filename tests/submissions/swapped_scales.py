"""Takes each row's scales of the next block of sixteen."""

import torch
from right import custom_kernel as right


def custom_kernel(data):
    abc, plain, blocked, sizes = data
    wrong = [(sfa.roll(1, dims=1), sfb) for sfa, sfb in bytes_of(plain)]
    return right((abc, as_scales(wrong), blocked, sizes))


def bytes_of(scales):
    return [tuple(side.view(torch.uint8) for side in pair) for pair in scales]


def as_scales(scales):
    return [tuple(side.view(torch.float8_e4m3fn) for side in pair) for pair in scales]
