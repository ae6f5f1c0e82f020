import torch


def custom_kernel(data):
    a, b, a_scale, b_scale, c = data
    product = a.to(torch.float32) @ b.to(torch.float32).T
    c.copy_(product * a_scale[:, None] * b_scale[None, :])
    return c
