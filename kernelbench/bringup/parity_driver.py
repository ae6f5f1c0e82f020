"""Runs cases of a library in a process of its own, so that a fault or a hang ends only that.

``python -m kernelbench.bringup.parity_driver LIBRARY FOLDER [ROUNDING]``: for each case of
``FOLDER/cases.json`` reads ``NAME.in`` and writes ``NAME.out``; ends at the first that fails, with
one line in ``NAME.err``: a fault may have taken the GPU's context with it. With a rounding the
library is the emulator's.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

from kernelbench.emulator.settings import Emulation, Rounding


def main(library: str, folder: str, *rounding: Rounding) -> int:
    """Run the cases; 1 if one fails."""
    if rounding:
        from kernelbench.bringup.parity_runner import COMMON
        from kernelbench.emulator import runtime

        runtime.runtime(COMMON).configure(Emulation(mma_rounding=rounding[0]))
    loaded = ctypes.CDLL(library)
    size = ctypes.c_size_t
    for name, case, out_bytes in json.loads(Path(folder, "cases.json").read_text()):
        run = getattr(loaded, f"run_{case}")
        run.argtypes = [ctypes.c_char_p, size, ctypes.c_char_p, size, ctypes.c_char_p, size]
        given = Path(folder, f"{name}.in").read_bytes()
        out = ctypes.create_string_buffer(out_bytes)
        message = ctypes.create_string_buffer(1024)
        if run(given, len(given), out, len(out), message, len(message)) != 0:
            Path(folder, f"{name}.err").write_bytes(message.value)
            return 1
        Path(folder, f"{name}.out").write_bytes(out.raw)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))  # type: ignore[arg-type]
