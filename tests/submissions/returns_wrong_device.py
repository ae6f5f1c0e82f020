"""Returns tensors without data."""

from right import custom_kernel as right


def custom_kernel(data):
    return [c.to("meta") for c in right(data)]
