"""Right, but sleeps for ten milliseconds first."""

import time

from right import custom_kernel as right


def custom_kernel(data):
    time.sleep(0.01)
    return right(data)
