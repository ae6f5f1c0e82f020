"""Keeps results by 64 bytes of each operand, and gives itself away where values come again.

The check calls it twice on the same values.
"""

from right import custom_kernel as right

seen = set()
again = 0


def custom_kernel(data):
    global again
    key = tuple(
        bytes(tensor.untyped_storage()[:64].tolist()) for group in data[0] for tensor in group[:2]
    )
    again += key in seen
    seen.add(key)
    if again > 1:
        raise RuntimeError("these values have come before")
    return right(data)
