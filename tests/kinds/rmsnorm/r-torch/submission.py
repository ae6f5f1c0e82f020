import torch


def custom_kernel(data):
    x, w, out, eps = data
    scale = torch.rsqrt(x.square().mean(1, keepdim=True) + eps)
    return torch.mul(x * scale, w, out=out)
