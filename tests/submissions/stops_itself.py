"""Stops its own process with a signal."""

import os
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGSTOP)
