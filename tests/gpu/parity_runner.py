"""Builds the parity kernels for a GPU and for the emulator, runs cases on both, compares."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelbench import build, emulator

HERE = Path(__file__).resolve().parent
COMMON = HERE.parents[1] / "kernels" / "common"
DRIVER = HERE / "parity_driver.py"
#: A process may run many cases, and the soft executor waits 20 s before it calls a wait a hang.
TIMEOUT_S = 150.0
#: Backend -> compute capability of the machine code.
ARCHES = {"sm90a": (9, 0), "sm100a": (10, 0), "soft": (9, 0)}
FLAGS = (
    "-std=c++20", "-O3", "-Werror", "all-warnings", "-Xptxas", "-warn-spills",
    "-Xcompiler", "-fvisibility=hidden",
)  # fmt: skip
POISON = np.uint32(0xA5A5A5A5)

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Work:
    """A case of a library, its input and the size of its output."""

    case: str
    given: bytes
    out_bytes: int


@dataclass(frozen=True)
class Ran:
    """What a case left: its output, or None and what went wrong."""

    out: Words | None
    error: str


def gpu_library(stem: str, backend: str) -> Path:
    """``stem``.cu for a GPU."""
    return build.compile_shared(
        f"{stem} ({backend})",
        [HERE / f"{stem}.cu"],
        [*build.cuda_arch_flags(ARCHES[backend]), *FLAGS],
        include_dirs=(COMMON, COMMON / "backend" / backend),
        outside=(COMMON / "backend" / "emu",),
    )


def emulator_library(stem: str) -> Path:
    """``stem``.cu for the emulator, without the checker."""
    return emulator.step_library(stem, HERE / f"{stem}.cu", COMMON, check=False)


def run(library: Path, works: Mapping[str, Work], *rounding: str) -> dict[str, Ran]:
    """Cases one after another in a process; after one that fails, the rest in a new process.

    Args:
        library: Of the GPU, or of the emulator if there is a ``rounding``.
        works: By name.
    """
    found: dict[str, Ran] = {}
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        folder = Path(name)
        for key, work in works.items():
            (folder / f"{key}.in").write_bytes(work.given)
        while left := [key for key in works if key not in found]:
            cases = [(key, works[key].case, works[key].out_bytes) for key in left]
            (folder / "cases.json").write_text(json.dumps(cases))
            said = _drive([str(library), str(folder), *rounding])
            for key in left:
                if (folder / f"{key}.out").is_file():
                    out = np.frombuffer((folder / f"{key}.out").read_bytes(), np.uint32)
                    found[key] = Ran(out, "")
                    continue
                error = folder / f"{key}.err"
                found[key] = Ran(None, error.read_text() if error.is_file() else said)
                break
    return found


def _drive(arguments: Sequence[str]) -> str:
    """Run the driver; what it said, for a case that left no line of its own."""
    try:
        done = subprocess.run(
            [sys.executable, str(DRIVER), *arguments],
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=HERE.parents[1],
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"did not end within {TIMEOUT_S:.0f} s"
    return (done.stderr.strip() or f"ended with status {done.returncode}").splitlines()[-1]


def on_gpu(stem: str, backend: str, works: Mapping[str, Work]) -> dict[str, Ran]:
    """The cases on the GPU of this machine."""
    return run(gpu_library(stem, backend), works)


def emulated(stem: str, works: Mapping[str, Work], rounding: str = "fp32") -> dict[str, Ran]:
    """The cases in the emulator; each has run and written something."""
    found = run(emulator_library(stem), works, rounding)
    failed = [f"{key}: {ran.error}" for key, ran in found.items() if ran.out is None]
    silent = [key for key, ran in found.items() if ran.out is not None and not written(ran.out)]
    assert not failed, "in the emulator:\n" + "\n".join(failed)
    assert not silent, f"these write nothing: {silent}"
    return found


def written(out: Words) -> bool:
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


def assert_equal(
    seen: Mapping[str, Ran], wanted: Mapping[str, Words], *, any_nan: bool = False
) -> None:
    """Fail with every case that differs."""
    assert seen.keys() == wanted.keys()
    found = {key: difference(seen[key], wanted[key], any_nan=any_nan) for key in seen}
    wrong = [f"{key}: {what}" for key, what in found.items() if what]
    assert not wrong, f"{len(wrong)} of {len(found)} cases differ:\n" + "\n".join(wrong)


def outputs(ran: Mapping[str, Ran]) -> dict[str, Words]:
    """The outputs of cases that all ran."""
    return {key: found.out for key, found in ran.items() if found.out is not None}
