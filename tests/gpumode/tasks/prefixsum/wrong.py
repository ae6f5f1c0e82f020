import torch


def custom_kernel(data):
    data, output = data
    output[...] = torch.cumsum(data, dim=0) - data
    return output
