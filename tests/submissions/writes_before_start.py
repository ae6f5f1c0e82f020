"""Writes one element before the start of an output."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    first = outputs[0]
    first.as_strided((1,), (1,), first.storage_offset() - 1)[0] = 0
    return outputs
