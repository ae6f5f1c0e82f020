"""One element is NaN."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    outputs[-1][3, 5, 0] = float("nan")
    return outputs
