"""Right, but changes the process's defaults while it is loaded."""

import random

import torch
from right import custom_kernel as right

torch.set_default_dtype(torch.float16)
torch.set_num_threads(3)
torch.set_grad_enabled(True)
torch.manual_seed(0)
random.seed(0)


def custom_kernel(data):
    return right(data)
