"""What NVRTC and cuFFT do here: nvcc compiles, and numpy transforms."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path
from typing import Any

from kernelbench.build import compiler
from kernelbench.ptx.hosts.cuda_build import emulated_flags

#: Options of NVRTC's that nvcc lacks, or that say for which GPU it compiles.
_OF_NVRTC = re.compile(
    r"(--gpu-architecture|-arch)\b.*|--?(default-device|device-as-default-execution-space"
    r"|builtin-|device-int128|dlto|dlink-time-opt|pch|create-pch|minimal|time).*"
)


def ptx_of_text(folder: Path, words: bytes, arch: int) -> int:
    """Have nvcc compile what a program gives to NVRTC: ``ptx`` and ``log`` in the folder.

    Args:
        folder: With the text, and headers in ``include``.
        words: The text's name, then NVRTC's options, a line each; what the GPU decides is left out.
        arch: What it is compiled for: 90 for ``sm_90a``.

    Returns:
        nvcc's status.

    Raises:
        EnvironmentProblem: Without nvcc.
    """
    name, *options = words.decode().splitlines()
    options = [word for each in options if not _OF_NVRTC.match(each) for word in each.split()]
    target, _ = emulated_flags(arch)[-1].split(",")
    nvcc = str(compiler.needed_nvcc(name).path)
    command = [nvcc, "-ptx", "-lineinfo", f"-{target}", *options, "-I", "include", "-x", "cu", name]
    ended = subprocess.run([*command, "-o", "ptx"], cwd=folder, capture_output=True, text=True)
    (folder / "log").write_text(ended.stdout + ended.stderr)
    return ended.returncode


def transform(way: int, shape: tuple[int, ...], given: Any, made: Any) -> int:
    """Fourier transforms of packed arrays, without a factor.

    Args:
        way: -1 and 1 of complex numbers, forward and inverse; -2 from real ones, 2 to real ones.
        shape: How many arrays, then the extents of the transform.
        given: Pointer to float64; a complex number is two, and of those of a real transform the
            last axis has half, and one.
        made: Likewise.

    Returns:
        0.
    """
    import numpy as np

    half = (*shape[:-1], shape[-1] // 2 + 1)
    axes = tuple(range(1, len(shape)))

    def numbers(pointer: Any, real: bool, of: tuple[int, ...]) -> Any:
        flat = np.ctypeslib.as_array(pointer, (math.prod(of) * (1 if real else 2),))
        return (flat if real else flat.view(np.complex128)).reshape(of)

    source = numbers(given, way == -2, half if way == 2 else shape)
    result: Any
    if way == -2:
        result = np.fft.rfftn(source, axes=axes)
    elif way == 2:
        result = np.fft.irfftn(source, shape[1:], axes, norm="forward")
    elif way == 1:
        result = np.fft.ifftn(source, axes=axes, norm="forward")
    else:
        result = np.fft.fftn(source, axes=axes)
    numbers(made, way == 2, half if way == -2 else shape)[...] = result
    return 0
