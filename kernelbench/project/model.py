"""What a lineage and a step are: the values that the registry hands out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

StepStatus = Literal["planned", "works", "failed", "fixed"]
#: ``step``: device code in the ptx layer, for every executor. ``cuda``: ordinary CUDA C++, built by
#: nvcc. ``triton``: a Python file with ``custom_kernel`` whose kernels are compiled where it runs
#: (Triton, CuTe DSL). ``ptx``: PTX of any compiler, with its launches or another step's host path.
#: ``python``: any other file with ``custom_kernel``.
Kind = Literal["step", "python", "triton", "cuda", "ptx"]

#: What messages call a step of a kind.
KIND_WORDS: dict[Kind, str] = {
    "step": "a compiled step",
    "python": "a Python step",
    "triton": "a Triton step",
    "cuda": "a CUDA step",
    "ptx": "a PTX step",
}

#: ``planned``: described, not written. ``works``: the lineage's own step. ``failed``: an experiment
#: kept as it failed, for what it teaches. ``fixed``: such an experiment with its fault repaired.
STATUSES: tuple[StepStatus, ...] = ("planned", "works", "failed", "fixed")
#: What reported figures are of and in, as files name it, and in words.
METRIC_NAMES = {"call": "call time", "device": "device time", "end-to-end": "end to end"}
UNITS = {"us": "µs", "TFLOPS": "TFLOPS"}
ALLOWED = ("spill", "warning")
#: What a finding of the checker is known by (:mod:`kernelbench.emulator.identity`).
IDENTITY = re.compile(r"[a-z]+(-[a-z]+)*-[0-9a-f]{10}")


@dataclass(frozen=True)
class Reported:
    """Figures that the source of a lineage gives for a step; never measured here."""

    device: str  #: The device they were measured on, e.g. ``NVIDIA B200``.
    metric: str  #: ``call``, ``device`` or ``end-to-end``.
    unit: str  #: ``us`` (microseconds, less is better) or ``TFLOPS`` (more is better).
    values: dict[str, float]  #: Figure by shape name.
    source: str = ""  #: The publication.
    note: str = ""  #: What a reader of the figures must know; empty where there is nothing.

    @property
    def caption(self) -> str:
        """Metric, unit, device and source, and that nobody measured the figures here."""
        source = f" by {self.source}" if self.source else ""
        return (
            f"reported on {self.device}{source} ({METRIC_NAMES[self.metric]}, "
            f"{UNITS[self.unit]}), not measured here"
        )


@dataclass(frozen=True)
class Repair:
    """A fault of the source's step that ours does not repeat."""

    name: str
    reason: str


@dataclass(frozen=True)
class Allowance:
    """What the compilers or the checker may say of a step without a test failing."""

    what: str  #: ``spill``, ``warning`` or the identity of a finding.
    reason: str


@dataclass(frozen=True)
class Step:
    """One step of a lineage, or a foreign submission."""

    name: str  #: The folder's name, unique over all lineages; a submission's file stem.
    lineage: str  #: Name of the lineage; empty for a submission.
    problem: str
    parent: str | None  #: The step that this one changes; None for a root.
    title: str
    technique: str  #: What changes, in one line.
    hypothesis: str  #: What should get faster (or not) because of it, and why.
    #: The GPU that its code is for: ``sm_100a``, ``sm_89``, ...; ``any``: the one at hand.
    arch: str
    status: StepStatus
    kind: Kind
    path: Path  #: The step's folder; for a submission, the folder of its file.
    entry: Path | None  #: The file that is built or imported; None while planned.
    #: Tile, stages, warps, grid and the like, for people and tables.
    config: dict[str, Any] = field(default_factory=dict)
    #: What inputs the step takes, e.g. ``nk = "fixed"``: one N and K for all groups.
    limits: dict[str, Any] = field(default_factory=dict)
    repaired: tuple[Repair, ...] = ()
    allowances: tuple[Allowance, ...] = ()
    reported: Reported | None = None
    submission: bool = False  #: Whether it is a single file from outside any lineage.
    #: The folder between the lineage's and the step's (``variants``); empty for most.
    subfolder: str = ""
    #: The step whose files this one has where its own folder lacks them; see
    #: :mod:`kernelbench.project.source_files`. It may have a base, too.
    base: Step | None = None
    #: Options of nvcc beside those that every build has, one or two words each.
    gpu_flags: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  #: What it cannot run without: ``gpu``, and Python modules by name.
    function: str = ""  #: Of a CUDA step, the C++ function that a call calls.
    #: What that is called with, as Python expressions of ``data``; None for the tensors and numbers
    #: of ``data``, in order.
    arguments: tuple[str, ...] | None = None

    @property
    def lineage_path(self) -> Path:
        """The lineage's folder; its building blocks are in ``common`` below it."""
        return self.path.parent.parent if self.subfolder else self.path.parent

    @property
    def experiment(self) -> bool:
        """Whether it stands beside the main line: a variant, or an experiment that failed."""
        return bool(self.subfolder) or self.status in ("failed", "fixed")

    @property
    def compiled(self) -> bool:
        """Whether it is device code in the ptx layer, which every executor has a compiler for."""
        return self.kind == "step"

    @property
    def built(self) -> bool:
        """Whether a compiler makes a library of it before it runs."""
        return self.kind in ("step", "cuda", "ptx")

    @property
    def host(self) -> Step | None:
        """Of a PTX step, the compiled step whose host path launches its kernels, if any."""
        host = self.base
        while host is not None and host.kind == "ptx":
            host = host.base
        return host if self.kind == "ptx" else None

    @property
    def in_cute_dsl(self) -> bool:
        """Whether a Triton step's kernels are written in the CuTe DSL, and not in Triton."""
        return "cutlass" in self.needs

    @property
    def in_words(self) -> str:
        """``v00 is a Python step``, for messages."""
        return f"{self.name} is {KIND_WORDS[self.kind]}"

    def figures(self, shapes: Sequence[str]) -> list[str]:
        """The reported figures, one per shape; ``–`` where there is none."""
        values = self.reported.values if self.reported else {}
        return [str(values[shape]) if shape in values else "–" for shape in shapes]


def reported_shapes(steps: Iterable[Step]) -> list[str]:
    """The shapes that any step has a reported figure for, in order of appearance."""
    values = (step.reported.values for step in steps if step.reported)
    return list(dict.fromkeys(itertools.chain.from_iterable(values)))


def captions(steps: Iterable[Step]) -> list[str]:
    """What the reported figures of steps are, each caption once."""
    return list(dict.fromkeys(step.reported.caption for step in steps if step.reported))


@dataclass(frozen=True)
class Lineage:
    """A chain of steps that solve one problem."""

    name: str
    title: str
    #: Where its :class:`~kernelbench.project.problem.Problem` is: ``package.module:NAME``,
    #: ``path/to/file.py:NAME`` relative to ``path``, or the name of one that another package
    #: brings.
    problem: str
    source: str  #: The publication that reported figures come from; may be empty.
    reference: str  #: Name of the step that is listed first whatever its name; may be empty.
    path: Path  #: The lineage's folder.
    peers_of: str = ""  #: Name of the lineage whose competitors these steps are; empty for a chain.
    #: A shipped lineage whose ``common`` its steps use, if it has none itself.
    building_blocks: str = ""
    best: str = ""  #: Name of the step that ``NAME-best`` stands for; may be empty.
