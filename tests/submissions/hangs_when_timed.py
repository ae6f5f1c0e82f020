"""Right eleven times, then never returns."""

from right import custom_kernel as right

calls = 0


def custom_kernel(data):
    global calls
    calls += 1
    while calls > 11:
        pass
    return right(data)
