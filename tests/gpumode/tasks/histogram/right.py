import torch


def custom_kernel(data):
    counts = torch.zeros(256, dtype=torch.int64, device=data.device)
    return counts.scatter_add_(0, data.long(), torch.ones_like(data, dtype=torch.int64))
