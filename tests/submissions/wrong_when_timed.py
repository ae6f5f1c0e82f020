"""Right as often as the check calls it, then wrong."""

from right import custom_kernel as right

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    outputs = right(data)
    if calls > 3:
        outputs[0][0, 0, 0] += 1
    return outputs
