"""Reads an address that is not its own, where the first group has one row; else right."""

import torch
from gpu_right import custom_kernel as right


def custom_kernel(data):
    if data[3][0][0] == 1:
        device = data[0][0][0].device
        storage = torch._C._construct_storage_from_data_pointer(0x1000, device, 1 << 20)
        nowhere = torch.empty(0, dtype=torch.uint8, device=device).set_(storage, 0, (1 << 20,))
        nowhere.sum()
    return right(data)
