"""Keeps results by 64 bytes of each operand, and gives itself away where values come again.

The check calls it twice on the same values, and so may whoever times it, but not in a timed call.
"""

import collections

from right import custom_kernel as right

seen = collections.Counter()


def custom_kernel(data):
    key = tuple(
        bytes(tensor.untyped_storage()[:64].tolist()) for group in data[0] for tensor in group[:2]
    )
    seen[key] += 1
    if seen[key] > 2:
        raise RuntimeError("these values have come before")
    return right(data)
