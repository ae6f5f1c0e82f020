import torch


def custom_kernel(data):
    image, kernel, _ = data
    return torch.nn.functional.conv2d(image, kernel.flip(-1, -2))
