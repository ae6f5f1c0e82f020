import torch


def custom_kernel(data):
    x, quantized, scale = data
    torch.div(x.abs().amax(dim=-1), 127, out=scale)
    torch.round(x * (1 / scale)[:, None], out=quantized)
    return quantized, scale
