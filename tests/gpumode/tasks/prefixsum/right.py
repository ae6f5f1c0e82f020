import torch


def custom_kernel(data):
    data, output = data
    return torch.cumsum(data, dim=0, out=output)
