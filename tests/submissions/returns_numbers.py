"""Returns numbers in place of tensors."""

from right import custom_kernel as right


def custom_kernel(data):
    return [0.0 for _ in right(data)]
