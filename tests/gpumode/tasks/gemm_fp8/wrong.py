import torch


def custom_kernel(data):
    a, b, a_scale, _, c = data
    c.copy_(a.to(torch.float32) @ b.to(torch.float32).T * a_scale[:, None])
    return c
