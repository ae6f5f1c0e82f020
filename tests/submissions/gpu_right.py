"""Right, and all on the device: it can be captured in a graph."""

import torch
from right import values_of


def unblocked(scales, rows):
    """The scales ``[rows, k / 16, 1]`` from their blocked layout on the device."""
    plain = scales[..., 0].view(torch.uint8).permute(2, 1, 0, 4, 3)
    return plain.flatten(0, 2).flatten(1)[:rows].view(torch.float8_e4m3fn).unsqueeze(-1)


def custom_kernel(data):
    outputs = []
    for (a, b, c), (sfa, sfb) in zip(data[0], data[2], strict=True):
        left = values_of(a, unblocked(sfa, a.shape[0]))
        c[:, :, 0] = left @ values_of(b, unblocked(sfb, b.shape[0])).t()
        outputs.append(c)
    return outputs
