"""How many instructions of a GPU each block of a step's code stands for.

Steps run from their own source, built for the CPU. What that build computes, a GPU computes, too:
counted are the instructions of its disassembly that are no moves, jumps or calls.
"""

from __future__ import annotations

import functools
import re
import subprocess
from typing import Any

import numpy as np

from kernelbench.base.errors import EnvironmentProblem

_HOOK = "<__sanitizer_cov_trace_pc@plt>"
#: What a GPU keeps in registers, has no instruction for, or has in another one, as a product in
#: the sum that takes it; loads and stores are in records of accesses. Of x86-64 and of AArch64.
_NONE = re.compile(
    r"mov(?!msk)|mulss|pxor|push|pop|nop|j|ret|leave|c[wlq]t|xchg|cs|endbr|data16|ud2|hlt|"
    r"f?mov|ld[rpu]|st[rpu]|adrp|b$|b\.|br|cb|tb"
)
#: Instructions that nvcc 13.0 makes of one of x86-64, and of a call of libm; the rest are one.
_SEVERAL = {"div": 18, "idiv": 18, "divss": 10, "divsd": 10, "sqrtss": 8}
_LIBM, _LIBM_INSTRUCTIONS = re.compile(r"<(exp|tanh|log|sqrt|pow|ldexp)\w*@plt>"), 15
_LINE = re.compile(r"^ +([0-9a-f]+):\t(\S+)\s*(.*)")
#: Where instructions are emulated, and the marks of those that no record stands for.
_EMULATED, _ONE = "/backend/emu/", ("fnop", "yield")


@functools.cache
def instructions_by_block(module: str) -> bytes:
    """By offset in a library, two bytes each: the instructions of the block that begins there.

    Raises:
        EnvironmentProblem: Without objdump.
    """
    try:
        listing = subprocess.run(
            ["objdump", "-dl", "--no-show-raw-insn", module],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentProblem(
            "--predict: objdump, which counts instructions, does not run", "install binutils"
        ) from error
    return blocks_of(listing).tobytes()


def blocks_of(listing: str) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """What :func:`instructions_by_block` makes of objdump's text."""
    found: dict[int, int] = {}
    block, begins, emulated = -1, False, False
    for line in listing.splitlines():
        if line.startswith("/"):
            emulated = _EMULATED in line
        if line.endswith(">:"):
            block = -1
        if (match := _LINE.match(line)) is None:
            continue
        at, name, operands = match.groups()
        if begins:
            block = int(at, 16)
            found[block] = 0
        begins = _HOOK in operands
        if block in found and not begins and (not emulated or name in _ONE):
            found[block] += _instructions(name, operands)
    weights = np.zeros(max(found, default=-1) + 1, np.uint16)
    for at, count in found.items():
        weights[at] = min(count, 0xFFFF)
    return weights


def _instructions(name: str, operands: str) -> int:
    if name in ("call", "bl"):
        if _LIBM.search(operands):
            return _LIBM_INSTRUCTIONS
        # Hooks, and primitives, which have records.
        return int("kb3emu" not in operands and "__" not in operands)
    if _NONE.match(name) or (name == "lea" and operands.endswith("%rdi")):
        return 0
    if name == "xor" and len(set(operands.split(","))) == 1:
        return 0
    return _SEVERAL.get(name, 1)
