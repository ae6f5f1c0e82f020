"""Builds the parity kernels for a GPU and for the emulator, runs cases on both, compares.

The sources are in ``parity``: each launches small kernels of the ptx layer that leave every
bit of their result in memory.
"""

from __future__ import annotations

import ctypes
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelbench.base.child_process import run_in_child
from kernelbench.base.errors import EnvironmentProblem, IncorrectError
from kernelbench.build import compiler
from kernelbench.emulator import runtime
from kernelbench.emulator.settings import Emulation, Rounding
from kernelbench.machine.arch import SOFT_ARCHES, STEP_ARCHES
from kernelbench.project.shipped import shipped_blocks

SOURCES = Path(__file__).resolve().parent / "parity"
COMMON = shipped_blocks()
#: A process may run many cases, and the soft executor waits 20 s before it calls a wait a hang.
TIMEOUT_S = 150.0
#: Processes that may time out one after another before the rest is given up.
MAX_TIMEOUTS = 2
#: Backend -> compute capability of the machine code.
ARCHES = {
    **{name.replace("_", ""): arch.capability for name, arch in STEP_ARCHES.items()},
    "soft": STEP_ARCHES[SOFT_ARCHES["sm_100a"]].capability,
}
FLAGS = (
    "-std=c++20", "-O3", "-Werror", "all-warnings", "-Xptxas", "-warn-spills",
    "-Xcompiler", "-fvisibility=hidden",
)  # fmt: skip
POISON = np.uint32(0xA5A5A5A5)

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class ParityCase:
    """A case of a library, its input and the size of its output."""

    case: str
    given: bytes
    out_bytes: int


@dataclass(frozen=True)
class Ran:
    """What a case left: its output, or None and what went wrong."""

    out: Words | None
    error: str
    timed_out: bool = False  #: Whether it was ended because it took too long.
    started: bool = True  #: Whether it was run at all.


def gpu_library(stem: str, backend: str) -> Path:
    """``stem``.cu for a GPU; EnvironmentProblem if it cannot be built."""
    _require_common()
    return compiler.compile_shared(
        f"{stem} ({backend})",
        [SOURCES / f"{stem}.cu"],
        [*compiler.cuda_arch_flags(ARCHES[backend]), *FLAGS],
        include_dirs=(COMMON, COMMON / "backend" / backend),
    )


def emulator_library(stem: str) -> Path:
    """``stem``.cu for the emulator, unchecked; EnvironmentProblem if it cannot be built."""
    _require_common()
    return runtime.step_library(stem, SOURCES / f"{stem}.cu", COMMON, check=False)


def _require_common() -> None:
    if not COMMON.is_dir():
        raise EnvironmentProblem(f"the ptx layer is not at {COMMON}", "install kernelbench again")


def run_parity(
    library: Path, works: Mapping[str, ParityCase], *rounding: Rounding, limit_s: float = TIMEOUT_S
) -> dict[str, Ran]:
    """Cases one after another in a process; after one that fails, the rest in a new process.

    Args:
        library: Of the GPU, or of the emulator if there is a ``rounding``.
        works: By name.
        limit_s: Longest that one process may take.
    """
    found: dict[str, Ran] = {}
    timeouts = 0
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        for key, work in works.items():
            (folder / f"{key}.in").write_bytes(work.given)
        while left := [key for key in works if key not in found]:
            if timeouts == MAX_TIMEOUTS:
                why = f"not run: {timeouts} processes before it did not end"
                return found | {key: Ran(None, why, started=False) for key in left}
            cases = [(key, works[key].case, works[key].out_bytes) for key in left]
            (folder / "cases.json").write_text(json.dumps(cases))
            ended = run_in_child(_run_cases, [str(library), str(folder), *rounding], str, limit_s)
            timeouts = timeouts + 1 if ended.timed_out else 0
            said = ended.last_line or f"ended with status {ended.code}"
            if ended.timed_out:
                said = f"did not end within {limit_s:g} s"
            for key in left:
                if not (folder / f"{key}.out").is_file():
                    found[key] = Ran(None, ended.value or said, ended.timed_out)
                    break
                out = np.frombuffer((folder / f"{key}.out").read_bytes(), np.uint32)
                found[key] = Ran(out, "")
    return found


def _run_cases(library: str, folder: str, *rounding: Rounding) -> str:
    """Run the cases of ``cases.json``, each from ``NAME.in`` to ``NAME.out``, in this process.

    It ends at the first that fails: a fault may have taken the GPU's context with it.

    Returns:
        What the failing case says; empty if none fails.
    """
    if rounding:
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
            return message.value.decode(errors="replace")
        Path(folder, f"{name}.out").write_bytes(out.raw)
    return ""


def on_gpu(
    stem: str, backend: str, works: Mapping[str, ParityCase], *, limit_s: float = TIMEOUT_S
) -> dict[str, Ran]:
    """The cases on the first GPU that CUDA shows."""
    return run_parity(gpu_library(stem, backend), works, limit_s=limit_s)


def emulated(
    stem: str,
    works: Mapping[str, ParityCase],
    rounding: Rounding = "fp32",
    *,
    limit_s: float = TIMEOUT_S,
) -> dict[str, Words]:
    """What the cases leave in the emulator.

    Raises:
        IncorrectError: If one fails or writes nothing.
    """
    found = run_parity(emulator_library(stem), works, rounding, limit_s=limit_s)
    failed = [f"{key}: {ran.error}" for key, ran in found.items() if ran.out is None]
    if failed:
        raise IncorrectError(f"in the emulator {len(failed)} of {len(found)} fail: {failed[0]}")
    outputs = {key: ran.out for key, ran in found.items() if ran.out is not None}
    if silent := [key for key, out in outputs.items() if not written(out)]:
        raise IncorrectError(f"in the emulator these write nothing: {', '.join(silent)}")
    return outputs


def written(out: Words) -> bool:
    """Whether anything of an output was written."""
    return bool(np.any(out != POISON))


def one_nan(words: Words) -> Words:
    """The words as floats with every NaN the same, for results whose NaN has no fixed bits."""
    return np.where(np.isnan(words.view(np.float32)), np.uint32(0x7FFFFFFF), words)


def difference(seen: Ran, wanted: Words, *, any_nan: bool = False) -> str:
    """How an output differs from what it must be; empty if it is equal to the bit."""
    if seen.out is None:
        return seen.error
    out = seen.out
    if out.size != wanted.size:
        return f"{out.size} words, not {wanted.size}"
    if any_nan:
        out, wanted = one_nan(out), one_nan(wanted)
    differ = np.flatnonzero(out != wanted)
    if differ.size == 0:
        return ""
    shown = ", ".join(f"[{i}] {out[i]:#010x}, not {wanted[i]:#010x}" for i in differ[:4])
    return f"{differ.size} of {out.size} words: {shown}"
