"""Right as often as the check of one class calls it, then wrong in one element."""

from gpu_right import custom_kernel as right

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    outputs = right(data)
    if calls > 5:
        outputs[0][0, 0, 0] += 1
    return outputs
