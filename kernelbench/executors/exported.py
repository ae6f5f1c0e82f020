"""Exported compiled steps that come back: what such a file says of itself, and running it here.

On a GPU of its own arch the file runs as anybody's does: it builds itself. Elsewhere the source in
it is built for what stands for that GPU, with the other backend's files in it.
"""

from __future__ import annotations

import ast
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.build.flatten import Folders, with_backend
from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors import targets
from kernelbench.executors.emulated import EMULATOR
from kernelbench.executors.gpu import GPU, SOFT_GPU, find_gpu
from kernelbench.kinds.compiled import backend_folders
from kernelbench.machine.arch import STEP_ARCHES
from kernelbench.project.model import Step
from kernelbench.project.overlay import written_source
from kernelbench.project.registry import Lineages
from kernelbench.project.step_files import NAME

#: What breaks up a word in the source, and the name that files give it.
BROKEN_BY, MARK = "¦", "MARK"
#: By the executor that builds an exported step's source, the backend.
_STAND_INS = {SOFT_GPU.name: "soft", EMULATOR.name: "emu"}


@dataclass(frozen=True)
class ExportedStep:
    """What an exported file says of its step, in the constant ``STEP``."""

    name: str
    lineage: str
    arch: str
    config: dict[str, Any]
    limits: dict[str, Any]
    source: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The constant: all but the source, which is ``SOURCE``."""
        fields = dataclasses.asdict(self)
        del fields["source"]
        return fields


def read_exported(file: Path) -> ExportedStep | None:
    """What a file exports, read without running it; None if it is no exported compiled step."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    texts: dict[str, str] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=("STEP" | "SOURCE" | "MARK") as name)]):
                texts[name] = ast.unparse(node.value)
    try:
        mark = ast.literal_eval(texts[MARK])
        step = ast.literal_eval(texts["STEP"].replace(mark, ""))
        source = ast.literal_eval(texts["SOURCE"]).replace(mark, "").removeprefix("\n")
        found = ExportedStep(**step, source=source)
        fits = NAME.fullmatch(found.name) and isinstance(found.config | found.limits, dict)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
    return found if fits and isinstance(found.arch, str) else None


def as_runnable(
    step: Step,
    lineages: Lineages,
    executor: str,
    device: int,
    emulation: Emulation = DEFAULT_EMULATION,
) -> Step:
    """A submission as the executor takes it that is asked for: itself, but for an exported file.

    Args:
        executor: Name, or ``auto``.

    Raises:
        KernelbenchError: If it is an exported file that this machine cannot run so, or one of a
            lineage that is not here and that takes more than a GPU of its arch.
    """
    found = read_exported(step.entry) if step.submission and step.entry else None
    if found is None:
        return step
    known = any(lineage.name == found.lineage for lineage in lineages.all_lineages)
    if not known and executor in ("auto", GPU.name) and _fits(found, device):
        return dataclasses.replace(step, limits=found.limits)
    lineage = lineages.lineage(found.lineage)
    compiled = dataclasses.replace(
        step,
        lineage=lineage.name,
        problem=lineage.problem,
        arch=found.arch,
        kind="step",
        # Where the building blocks are that the stand-in for a GPU needs beside.
        path=lineage.path / found.name,
        config=found.config,
        limits=found.limits,
    )
    name = targets.resolve(compiled, executor, device, emulation).executor.name
    if name not in _STAND_INS:
        return dataclasses.replace(step, problem=lineage.name, limits=compiled.limits)
    folders = backend_folders(compiled, _STAND_INS[name])
    return dataclasses.replace(compiled, entry=_rebuilt(found, folders))


def _fits(found: ExportedStep, device: int) -> bool:
    gpu, _ = find_gpu(device)
    known = STEP_ARCHES.get(found.arch)
    return gpu is not None and known is not None and gpu.capability == known.capability


def _rebuilt(found: ExportedStep, folders: Folders) -> Path:
    """The source of an exported file for another backend, as a file in the cache."""
    try:
        text = with_backend(found.source, folders)
    except UsageError as error:
        raise UsageError(f"the source in the file of {found.name} is damaged: {error}") from error
    return written_source(f"{found.name}.cu", text)
