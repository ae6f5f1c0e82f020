"""The compilers of this machine: nvcc for GPUs, g++ or clang++ for the emulator."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem

#: nvcc's own package from PyPI has no `nv/target`, which `cuda_fp16.h` includes.
INSTALL_NVCC = "install the CUDA toolkit, or `pip install nvidia-cuda-nvcc nvidia-cuda-cccl`"

#: The first version of each compiler that has the C++20 of the emulator.
_OLDEST = {"g++": 11, "clang++": 14}

_V3 = frozenset(("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"))
#: The levels of the x86-64 psABI with what they demand, in the words of ``/proc/cpuinfo``.
CPU_LEVELS = {
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": _V3,
}


@dataclass(frozen=True)
class Compiler:
    """A compiler: ``kind`` is ``nvcc``, ``g++`` or ``clang++``."""

    kind: str
    path: Path
    version: str


@functools.cache
def nvcc() -> Compiler | None:
    """The CUDA compiler: on ``PATH``, in ``CUDA_HOME``, in the usual place, or from PyPI."""
    for path in cuda_tools("nvcc"):
        version = _version(path, r"release [\d.]+, V([\d.]+)")
        if version:
            return Compiler("nvcc", path, version)
    return None


def cuda_tools(name: str) -> Iterator[Path]:
    """Where a tool of the CUDA toolkit may be, the preferred place first."""
    found = shutil.which(name)
    if found:
        yield Path(found)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / name
    yield Path("/usr/local/cuda/bin") / name

    for folder in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        # PyPI's packages install below nvidia/cu13, their CUDA 12 forerunners by name.
        yield from sorted(Path(folder).glob(f"nvidia/*/bin/{name}"), reverse=True)


def host_compiler() -> Compiler | None:
    """The C++ compiler: ``$CXX``, else g++, else clang++."""
    return next(iter(host_compilers()), None)


def host_compilers() -> list[Compiler]:
    """Every C++ compiler found, the preferred one first."""
    return [*_host_compilers(os.environ.get("CXX"), os.environ.get("PATH"))]


@functools.cache
def _host_compilers(named: str | None, search_path: str | None) -> tuple[Compiler, ...]:
    found = []
    for name in dict.fromkeys(filter(None, (named, "g++", "clang++"))):
        path = shutil.which(name, path=search_path)
        version = _version(Path(path), r"(\d+\.\d+[\w.]*)") if path else None
        if path and version:
            kind = "clang++" if "clang" in Path(name).name else "g++"
            found.append(Compiler(kind, Path(path), version))
    return tuple(found)


def emulator_compiler() -> Compiler:
    """The C++ compiler for the emulator; EnvironmentProblem without one that has C++20."""
    found = host_compilers()
    if not found:
        raise EnvironmentProblem(
            "the emulator needs a C++ compiler, and there is no g++ or clang++",
            "install one, or name it in CXX",
        )
    for candidate in found:
        if builds_emulator(candidate):
            return candidate
    seen = ", ".join(f"{c.kind} {c.version}" for c in found)
    oldest = " or ".join(f"{kind} {version}" for kind, version in _OLDEST.items())
    raise EnvironmentProblem(
        f"the emulator needs C++20, {oldest} or newer, and finds {seen}",
        "install a newer one, or name it in CXX",
    )


def builds_emulator(candidate: Compiler) -> bool:
    """Whether a compiler is new enough for the emulator (C++20)."""
    return int(candidate.version.split(".")[0]) >= _OLDEST[candidate.kind]


def _version(path: Path, pattern: str) -> str | None:
    try:
        run = subprocess.run(
            [str(path), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(pattern, run.stdout) if run.returncode == 0 else None
    return match[1] if match else None


def cuda_arch_flags(capability: tuple[int, int]) -> list[str]:
    """nvcc flags for exactly one GPU: arch-specific code ("a") from compute capability 9.0 on."""
    return gencode(own_arch(capability))


def own_arch(capability: tuple[int, int]) -> str:
    """The arch with all that a GPU of a compute capability can do: ``sm_89``, ``sm_90a``."""
    return f"sm_{capability[0]}{capability[1]}" + ("a" if capability[0] >= 9 else "")


def gencode(arch: str) -> list[str]:
    """nvcc flags for machine code of one arch, and nothing else."""
    return ["-gencode", f"arch={arch.replace('sm_', 'compute_')},code={arch}"]


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code of an arch runs on a GPU of a compute capability.

    Plain code runs on the same major version with the same minor one or a later, that of a family
    ("f") likewise, arch-specific code ("a") on no other (CUDA programming guide, "binary
    compatibility" and "family-specific features").
    """
    number = int(re.sub(r"\D", "", arch))
    major, minor = divmod(number, 10)
    if arch.endswith("a"):
        return capability == (major, minor)
    return capability[0] == major and capability[1] >= minor


@functools.cache
def nvcc_archs() -> tuple[str, ...]:
    """The archs that nvcc makes machine code for, in order; none without nvcc."""
    compiler = nvcc()
    if compiler is None:
        return ()
    found: set[str] = set()
    # The list has no arch-specific ones (sm_90a), which only the help names.
    for option in ("--list-gpu-code", "--help"):
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            run = subprocess.run(
                [str(compiler.path), option],
                capture_output=True, text=True, timeout=30, check=False,
            )  # fmt: skip
            found.update(re.findall(r"\bsm_\d+[af]?\b", run.stdout))
    return tuple(sorted(found, key=lambda arch: (int(re.sub(r"\D", "", arch)), arch)))


def unknown_arch(arch: str) -> str:
    """Why nvcc cannot build for an arch, in one line; empty if it can, or is not there."""
    compiler, known = nvcc(), nvcc_archs()
    if compiler is None or not known or arch in known:
        return ""
    return f"nvcc {compiler.version} does not build for {arch}, but for {', '.join(known)}"


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_level() -> str:
    """What ``-march`` gets for this CPU: the highest level of x86-64 that it has, or ``native``."""
    has = set(cpu_facts())
    return next((level for level, needed in CPU_LEVELS.items() if has >= needed), "native")


def cpu_facts() -> list[str]:
    """What ``-march=native`` depends on: the CPU's features, in no particular order."""
    found = cpu_info("flags|Features")
    return [platform.machine(), *(sorted(found.split()) or [platform.processor()])]


def cpu_info(field: str) -> str:
    """What ``/proc/cpuinfo`` says of the first core, by a pattern for the field; else nothing."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^(?:{field})\s*:\s*(.+)$", text, re.MULTILINE)
    return " ".join(found[1].split()) if found else ""
