"""Works on the default stream, whatever the current one is."""

import torch
from gpu_right import custom_kernel as right


def custom_kernel(data):
    with torch.cuda.stream(torch.cuda.default_stream()):
        return right(data)
