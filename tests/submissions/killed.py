"""Is killed, as the kernel kills a process that takes too much memory."""

import os
import signal


def custom_kernel(data):
    os.kill(os.getpid(), signal.SIGKILL)
