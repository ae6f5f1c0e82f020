"""Returns the outputs without their last dimension."""

from right import custom_kernel as right


def custom_kernel(data):
    return [c[:, :, 0] for c in right(data)]
