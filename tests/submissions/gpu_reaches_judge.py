"""Right, and says so if it can map memory of the process that judges it on the GPU."""

import os
from pathlib import Path

from gpu_right import custom_kernel as right


def ways():
    judge = os.getppid()
    try:
        if [file.stat() for file in Path(f"/proc/{judge}/fd").iterdir()]:
            yield f"files of {judge}"
    except OSError:
        pass
    try:
        os.close(os.pidfd_open(judge))
        number = 438  # pidfd_getfd
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(number, os.pidfd_open(judge), 10, 0) >= 0:
            yield f"a file of {judge}"
    except OSError:
        pass


def custom_kernel(data):
    reached = list(ways())
    if reached:
        raise RuntimeError(f"reached {', '.join(reached)}")
    return right(data)
