"""Leaves the last row of every group unwritten."""

from right import products


def custom_kernel(data):
    outputs = []
    for c, product in products(data):
        c[:-1, :, 0] = product[:-1]
        outputs.append(c)
    return outputs
