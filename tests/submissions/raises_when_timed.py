"""Right as often as the check calls it, then raises."""

from right import custom_kernel as right

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    if calls > 9:
        raise RuntimeError(f"call {calls}")
    return right(data)
