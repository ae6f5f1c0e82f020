"""Right, but leaves a process behind."""

import os
import time

from right import custom_kernel as right

started = []


def custom_kernel(data):
    if not started:
        child = os.fork()
        if child == 0:
            time.sleep(120)
            os._exit(0)
        started.append(child)
    return right(data)
