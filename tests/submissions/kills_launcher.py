"""Kills the process that started it."""

import os
import signal
import time


def custom_kernel(data):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
