"""Returns the first two groups in the wrong order, of equal shape or not."""

from right import custom_kernel as right


def custom_kernel(data):
    outputs = right(data)
    return [outputs[1], outputs[0], *outputs[2:]]
