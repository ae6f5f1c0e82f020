"""Right, and says so if it can look into the process that judges it, or into its files."""

import ctypes
import os
from pathlib import Path

from right import custom_kernel as right

_PTRACE_ATTACH, _PTRACE_DETACH = 16, 17
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Piece(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def ways():
    judge = os.getppid()
    for _ in range(2):  # the judge, then the launcher
        for name, flags in (("mem", os.O_RDWR), ("mem", os.O_RDONLY), ("environ", os.O_RDONLY)):
            try:
                os.close(os.open(f"/proc/{judge}/{name}", flags))
                yield f"{name} of {judge}"
            except OSError:
                pass
        try:
            if [file.stat() for file in Path(f"/proc/{judge}/fd").iterdir()]:
                yield f"files of {judge}"
        except OSError:
            pass
        if libc.ptrace(_PTRACE_ATTACH, judge, None, None) == 0:
            os.waitpid(judge, 0)
            libc.ptrace(_PTRACE_DETACH, judge, None, None)
            yield f"ptrace of {judge}"
        here = ctypes.create_string_buffer(8)
        mine = Piece(ctypes.addressof(here), 8)
        theirs = Piece(id(None), 8)  # forked: its None is where mine is
        if libc.process_vm_readv(judge, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) == 8:
            yield f"memory of {judge}"
        judge = int(Path(f"/proc/{judge}/stat").read_text().rpartition(")")[2].split()[1])


def custom_kernel(data):
    reached = list(ways())
    if reached:
        raise RuntimeError(f"reached {', '.join(reached)}")
    return right(data)
