import torch


def custom_kernel(data):
    image, kernel, spec = data
    n, _, h, w = image.shape
    out, _, r, s = kernel.shape
    columns = torch.nn.functional.unfold(image, (r, s), stride=spec.stride)
    return (kernel.reshape(out, -1) @ columns).reshape(n, out, h - r + 1, w - s + 1)
