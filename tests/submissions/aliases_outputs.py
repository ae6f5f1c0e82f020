"""Returns outputs that lie in each other's memory."""

from right import products


def custom_kernel(data):
    outputs = [product.unsqueeze(-1) for _, product in products(data)]
    longest = max(outputs, key=len)
    return [longest[: len(output)] for output in outputs]
