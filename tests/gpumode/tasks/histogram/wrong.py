import torch


def custom_kernel(data):
    return torch.bincount(data, minlength=256).clamp(max=255)
