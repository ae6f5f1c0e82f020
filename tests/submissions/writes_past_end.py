"""Writes one element past the end of an output."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    last = outputs[-1]
    last.as_strided((last.numel() + 1,), (1,), last.storage_offset())[-1] = 0
    return outputs
