import torch


def custom_kernel(data):
    x, weight = data
    x = x.float()
    scale = torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    return (x * scale * weight.float()).bfloat16()
