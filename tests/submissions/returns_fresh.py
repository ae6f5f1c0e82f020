"""Returns tensors of its own and leaves C alone, which is allowed."""

from right import products


def custom_kernel(data):
    return [product.unsqueeze(-1) for _, product in products(data)]
