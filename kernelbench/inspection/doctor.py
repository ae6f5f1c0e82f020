"""What works on this machine, row by row, and what to do about the rest.

Nothing here holds a host name, a user name or the content of an environment variable: the output is
meant to be pasted into a bug report. Paths below the home folder are written with ``~``.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from kernelbench.base import files
from kernelbench.base.errors import TORCH_HINT, EnvironmentProblem, KernelbenchError
from kernelbench.build import cache_listing, compiler
from kernelbench.emulator import branches
from kernelbench.executors import targets
from kernelbench.executors.executor import Executor
from kernelbench.machine import clocks, devices
from kernelbench.machine.toolchain import INSTALL_NVCC, builds_emulator, emulator_compiler
from kernelbench.measure import probes
from kernelbench.project.project_file import Project, find_project
from kernelbench.project.registry import Step, load_lineages

State = Literal["ok", "warn", "missing"]
_TORCH_LIMIT_S = 120.0
_LOW_DISK_BYTES = 2 << 30
#: What pip is asked for, its module, and what is lacking without it.
_PACKAGES = (
    ("pyelftools", "elftools", "findings have no lines; `inspect` and `sanitize` do not work"),
    ("triton==3.6.0", "triton", "no Triton step runs, and no script with Triton's kernels"),
    ("matplotlib", "matplotlib", "`--plot` does not work, and a report has no drawings"),
    ("libclang", "clang", "`lint` does not work"),
    ("clang-format", "clang_format", "`diff` compares sources as they are"),
)
_TORCH_PROBE = (
    "import json, torch; print(json.dumps({'version': str(torch.__version__), "
    "'cuda': torch.version.cuda, 'gpus': torch.cuda.device_count()}))"
)


@dataclass(frozen=True)
class DoctorRow:
    """One finding. ``action`` says what to do, empty where there is nothing to do."""

    name: str
    state: State
    detail: str
    action: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """The JSON contract of ``kernelbench doctor --json``."""

    usable: bool  #: Whether at least one executor works, so that some step can run.
    executors: dict[str, bool]  #: Executor -> whether it works here.
    rows: tuple[DoctorRow, ...]
    schema: Literal["kernelbench.doctor/1"] = "kernelbench.doctor/1"


def examine() -> Diagnosis:
    """Look at everything; takes as long as importing torch in a process of its own."""
    project, steps, project_rows = _project()
    torch_row = check_torch()
    rows = [*_gpu_rows(), *_compiler_rows(), _probes_row()]
    rows += [
        DoctorRow("Python", "ok", platform.python_version()),
        *package_rows(),
        torch_row,
        files_row(),
    ]
    executors, executor_rows = executors_of(steps, torch_row)
    rows += [*executor_rows, *project_rows, _cache_row()]
    if project is not None:
        rows.append(folder_row("results", project.results, "choose another with --results"))
    return Diagnosis(any(executors.values()), executors, tuple(rows))


def home_relative(path: Path) -> str:
    """``path`` with the home folder as ``~``, which keeps user names out of reports."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


# -- GPUs ---------------------------------------------------------------------------------------


def _gpu_rows() -> Iterator[DoctorRow]:
    found = devices.gpus()
    if not found:
        action = "CPU executors need none; timing does: run on a machine with an NVIDIA GPU"
        yield DoctorRow("GPU", "missing", devices.gpu_problem(), action)
        return
    yield DoctorRow("driver", "ok", f"{found[0].driver}, supports CUDA {found[0].cuda_driver}")
    for gpu in found:
        memory = f"{gpu.memory_bytes / (1 << 30):.0f} GiB"
        detail = f"{gpu.name}, {gpu.arch}, {memory}"
        if gpu.mig:
            action = "time on a whole GPU: a MIG instance has other ceilings"
            yield DoctorRow(f"GPU {gpu.index}", "warn", f"{detail}, split by MIG", action)
        else:
            yield DoctorRow(f"GPU {gpu.index}", "ok", detail)
        yield from _clock_rows(gpu.index)


def _clock_rows(index: int) -> Iterator[DoctorRow]:
    try:
        with clocks.ClockSampler(index) as sampler:
            reading = sampler.read()
    except EnvironmentProblem as error:
        yield DoctorRow(f"clocks {index}", "warn", error.message, error.hint or "")
        return
    yield clocks_row(index, reading)
    others = clocks.other_processes(index)
    if others is None:
        yield DoctorRow(f"load {index}", "warn", "NVML does not tell which processes use this GPU")
    elif others:
        action = "times will be noisy: wait, or choose another with --device"
        yield DoctorRow(f"load {index}", "warn", f"{others} process(es) use this GPU", action)
    else:
        yield DoctorRow(f"load {index}", "ok", "no other process uses this GPU")


def clocks_row(index: int, reading: clocks.ClockReading) -> DoctorRow:
    """The row for a clock reading: a warning where the GPU is held back."""
    figures = (
        ("SM", reading.sm_mhz, "MHz"),
        ("memory", reading.mem_mhz, "MHz"),
        ("temperature", reading.temperature_c, "°C"),
        ("power", reading.power_w, "W"),
    )
    parts = [f"{name} {value:.0f} {unit}" for name, value, unit in figures if value is not None]
    if reading.pstate is not None:
        parts.append(f"P{reading.pstate}")
    reasons = ", ".join(reading.throttle_reasons)
    parts.append(f"clock held by: {reasons}" if reasons else "not throttled")
    if reading.slowed:
        action = "let it cool, or lower the load; every timed block records its clock"
        return DoctorRow(f"clocks {index}", "warn", "; ".join(parts), action)
    return DoctorRow(f"clocks {index}", "ok", "; ".join(parts))


# -- software -----------------------------------------------------------------------------------


def _compiler_rows() -> Iterator[DoctorRow]:
    nvcc = compiler.nvcc()
    if nvcc is not None:
        yield DoctorRow("nvcc", "ok", f"{nvcc.version}, {home_relative(nvcc.path)}")
    else:
        action = f"{INSTALL_NVCC}; Python steps need none"
        yield DoctorRow("nvcc", "missing", "not on PATH, in CUDA_HOME or from PyPI", action)
    found = {each.kind: each for each in reversed(compiler.host_compilers())}
    for kind in ("g++", "clang++"):
        if kind not in found:
            action = "install g++ (Debian, Ubuntu: apt-get)"
            enough = f"not needed: {next(iter(found), '')} is enough"
            yield DoctorRow(kind, "missing", "not on PATH", enough if found else action)
            continue
        detail = f"{found[kind].version}, {home_relative(found[kind].path)}"
        if builds_emulator(found[kind]):
            yield DoctorRow(kind, "ok", detail)
        else:
            action = "the emulator needs a newer one"
            yield DoctorRow(kind, "warn", f"{detail}: no C++20", action)
    if "g++" in found:
        gcov = branches.tool_for(found["g++"])
        if gcov is not None:
            yield DoctorRow("gcov", "ok", home_relative(Path(gcov)))
        else:
            action = "only `check` uses it, for branches that no schedule took"
            yield DoctorRow("gcov", "missing", "neither beside g++ nor on PATH", action)


def _probes_row() -> DoctorRow:
    """Whether the device probes compile; they are not run, which would need a CUDA context."""
    found = devices.gpus()
    if not found:
        return DoctorRow("probes", "missing", "no GPU to build them for")
    try:
        probes.compile_probes(found[0].capability)
    except EnvironmentProblem as error:
        action = error.hint or "clocks come from NVML instead, spins from torch"
        return DoctorRow("probes", "warn", error.message, action)
    return DoctorRow("probes", "ok", f"built for {found[0].arch}")


def package_rows() -> Iterator[DoctorRow]:
    """What only some commands take; none of it is imported."""
    for requirement, module, without in _PACKAGES:
        package = requirement.partition("=")[0]
        if importlib.util.find_spec(module) is None and shutil.which(package) is None:
            detail = f"not installed: {without}"
            yield DoctorRow(package, "warn", detail, f"`pip install {requirement}`")
            continue
        try:
            yield DoctorRow(package, "ok", importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            yield DoctorRow(package, "ok", "installed")


def files_row() -> DoctorRow:
    """What checks files, which takes neither an executor nor torch."""
    try:
        emulator_compiler()
    except EnvironmentProblem as error:
        return DoctorRow("emulator of files", "missing", error.message, error.hint or "")
    if compiler.nvcc() is None:
        return DoctorRow("emulator of files", "warn", "checks .ptx files; .cu files take nvcc")
    return DoctorRow("emulator of files", "ok", "checks .ptx and .cu files")


def check_torch(
    command: Sequence[str] = (sys.executable, "-c", _TORCH_PROBE), limit_s: float = _TORCH_LIMIT_S
) -> DoctorRow:
    """Import torch in a process of its own, so that a broken one is a row and not a crash."""
    if devices.torch_info() is None:
        detail = "not installed: steps, scripts and submissions take it"
        return DoctorRow("torch", "missing", detail, TORCH_HINT)
    action = "reinstall torch"
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return DoctorRow("torch", "missing", f"importing it took over {limit_s:g} s", action)
    except OSError as error:
        return DoctorRow("torch", "missing", f"Python cannot be started: {error.strerror}", action)
    facts = None
    with contextlib.suppress(ValueError, IndexError):
        facts = json.loads(run.stdout.strip().splitlines()[-1]) if run.returncode == 0 else None
    if facts is None:
        said = run.stderr.strip().splitlines()
        why = said[-1] if said else f"it ended with status {run.returncode}"
        return DoctorRow("torch", "missing", f"importing it fails: {why}", action)
    detail = f"{facts['version']}, " + (
        f"CUDA {facts['cuda']}, sees {facts['gpus']} GPU(s)" if facts["cuda"] else "CPU build"
    )
    if devices.gpus() and not facts["gpus"]:
        action = "it does not see the GPU: install a CUDA build of torch"
        return DoctorRow("torch", "warn", detail, action)
    return DoctorRow("torch", "ok", detail)


# -- executors ----------------------------------------------------------------------------------


def executors_of(
    steps: Sequence[Step], torch_row: DoctorRow
) -> tuple[dict[str, bool], list[DoctorRow]]:
    """Which executors can run at least one of ``steps`` here, and why the others cannot."""
    works: dict[str, bool] = {}
    rows = []
    for executor in targets.executors():
        good = [s for s in steps if _availability(s, executor)[0]]
        # Inputs and references are torch's, those of compiled steps too.
        state: State = "ok" if good and torch_row.state != "missing" else "missing"
        if state == "ok":
            names = ", ".join(s.name for s in good[:4]) + (", …" if len(good) > 4 else "")
            detail = f"{_availability(good[0], executor)[1]}; runs {len(good)} step(s): {names}"
        else:
            needs = f"steps need torch: {torch_row.detail}"
            detail = needs if good else _why_not(steps, executor)
        works[executor.name] = state == "ok"
        rows.append(DoctorRow(f"executor {executor.name}", state, detail))
    return works, rows


def _availability(step: Step, executor: Executor) -> tuple[bool, str]:
    return next(
        (works, why) for name, works, why in targets.executors_for(step) if name == executor.name
    )


def _why_not(steps: Sequence[Step], executor: Executor) -> str:
    """The reason for the steps that the executor is for, written or not."""
    meant = [s for s in steps if not executor.refusal(s)]
    if not meant:
        return "no step of this project is meant for it"
    # As if it were written: what the machine lacks is more use than that the step is planned.
    reason = _availability(replace(meant[0], status="works"), executor)[1]
    if all(s.status == "planned" for s in meant):
        return f"{reason}; and no step for it is written yet ({len(meant)} planned)"
    return reason


# -- folders ------------------------------------------------------------------------------------


def _project() -> tuple[Project | None, tuple[Step, ...], list[DoctorRow]]:
    try:
        project = find_project()
        steps = load_lineages(project).steps
    except KernelbenchError as error:
        return None, (), [DoctorRow("project", "missing", error.message, error.hint or "")]
    planned = sum(step.status == "planned" for step in steps)
    detail = f"{len(steps)} steps, {planned} of them planned, in {home_relative(project.root)}"
    if project.nowhere:
        detail = f"none here; {len(steps)} steps ship with kernelbench"
        return project, steps, [DoctorRow("project", "ok", detail, "`kernelbench init` makes one")]
    return project, steps, [DoctorRow("project", "ok", detail)]


def _cache_row() -> DoctorRow:
    folder = compiler.cache_dir()
    row = folder_row("cache", folder, f"point {compiler.CACHE_VARIABLE} at another folder")
    entries = cache_listing.cache_entries()
    size = sum(entry.bytes for entry in entries) / 1e6
    return replace(row, detail=f"{row.detail}; {len(entries)} artefact(s), {size:.1f} MB")


def folder_row(
    name: str,
    folder: Path,
    action: str,
    usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage,
) -> DoctorRow:
    """Whether ``folder``, or the nearest folder above it that exists, can be written and has room.

    Args:
        usage: Total, used and free bytes of the disk that holds a folder.
    """
    shown = home_relative(folder)
    existing = files.existing_part(folder)
    if not files.is_writable_folder(existing):
        return DoctorRow(name, "missing", f"{shown} cannot be written", action)
    try:
        free = usage(existing)[2]
    except OSError as error:
        return DoctorRow(name, "warn", f"{shown}: free space unknown ({error.strerror})", action)
    detail = f"{shown}, writable, {free / 1e9:.0f} GB free"
    if free < _LOW_DISK_BYTES:
        return DoctorRow(name, "warn", detail, f"free space, or {action}")
    return DoctorRow(name, "ok", detail)
