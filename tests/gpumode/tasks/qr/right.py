import torch


def custom_kernel(data):
    return tuple(torch.stack(parts) for parts in zip(*(torch.geqrf(a) for a in data), strict=True))
