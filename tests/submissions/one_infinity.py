"""One element is infinite."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    outputs[0][0, 0, 0] = float("inf")
    return outputs
