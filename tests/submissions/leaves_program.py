"""Right, but leaves a program running in the background."""

import os

from right import custom_kernel as right

started = []


def custom_kernel(data):
    if not started:
        started.append(os.system("sleep 120 &"))
    return right(data)
