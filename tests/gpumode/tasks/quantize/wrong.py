import torch


def custom_kernel(data):
    x, quantized, scale = data
    scale.fill_(float(x.abs().max()) / 127)
    torch.round(x / scale[:, None], out=quantized)
    return quantized, scale
