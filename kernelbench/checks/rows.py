"""What is asked of a check, and what comes of it: requests, rows, steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from kernelbench.emulator.branches import Coverage
from kernelbench.emulator.findings import WHICH_STAYS, Finding, Waiting
from kernelbench.emulator.memory_map import MemoryMap

CheckStatus = Literal[
    "clean", "finding", "wrong", "hang", "timeout", "fault", "skipped", "interrupted"
]
#: Statuses that mean the step is not right.
FAILED: tuple[CheckStatus, ...] = ("finding", "wrong", "hang", "timeout", "fault")


#: Why a formal finding is allowed, and one of memory that nothing has written.
_FORMAL = "formal: PTX leaves it unordered, and every implementation orders it"
_ONE_STAYS = "formal: lanes of a warp store by one instruction, and one of the values stays"
NOTED = "main ended well; check whether the value that is read there matters"


def why_formal(finding: Finding) -> str:
    """Why a formal finding is allowed."""
    return _ONE_STAYS if finding.text.endswith(WHICH_STAYS) else _FORMAL


@dataclass(frozen=True)
class Seen:
    """A finding with the schedule that showed it first."""

    finding: Finding
    inputs: str
    sms: int
    index: int
    schedules: int = 1  #: In how many schedules it was seen.
    waits: tuple[Waiting, ...] = ()  #: Who waits for what, if it is a hang.
    calls: str = ""  #: Which call of the sequence showed it first; empty for a call like the first.
    allowed: str = ""  #: Why it may be there; empty if nothing allows it.
    #: Of the run in single schedules that showed it, of a program; -1 for no such run.
    seed: int = -1


@dataclass(frozen=True)
class FileOptions:
    """What files are checked with, beside schedules."""

    arch: int = 90  #: What nvcc and Triton compile for, such as 90.
    #: SMs on which CTAs that wait for each other reside; 0 for those of the arch's GPU.
    gpu_sms: int = 0
    gpus: int = 1  #: GPUs that CUDA programs have.
    task: str = ""  #: Folder of the GPU MODE task that submissions solve; empty if there is none.
    flags: tuple[str, ...] = ()  #: nvcc's, for the sources of programs.
    arguments: tuple[str, ...] = ()  #: What programs and scripts are started with.
    #: Of torch, that scripts import: what ``load`` is called with, as JSON.
    extensions: tuple[str, ...] = ()
    build: str = ""  #: The command that builds these.


@dataclass(frozen=True)
class CheckRow:
    """One step on one shape."""

    step: str
    shape: str
    dims: str
    status: CheckStatus
    schedules: int  #: How many were run.
    asked: int  #: How many were to be, over all classes and SMs.
    seconds: float
    seen: tuple[Seen, ...] = ()
    reason: str = ""  #: What ended it early, in one line; empty if nothing did.
    calls: tuple[str, ...] = ()  #: The calls in sequence that were made after them, each once.
    #: What it rests on, keys of :data:`kernelbench.emulator.assumptions.ASSUMPTIONS` and
    #: ``LAUNCH_ASSUMPTIONS``.
    assumptions: tuple[str, ...] = ()
    #: How many rounds began, by input class, 0 where time was up in the first one; a round is a
    #: schedule on each number of SMs.
    rounds: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StepCheck:
    """Everything about one step."""

    step: str
    source_sha: str
    binary_sha: str | None
    rows: tuple[CheckRow, ...]
    #: Branches of its code over all shapes; None if unknown, and then ``note`` says why.
    coverage: Coverage | None = None
    note: str = ""
    #: Situations that a shape has brought about on some number of SMs.
    reached: tuple[str, ...] = ()
    not_reached: tuple[str, ...] = ()  #: Those that none has.
    #: Identities that its ``step.toml`` allows and that were not found.
    unmatched: tuple[str, ...] = ()
    #: What its kernels have of shared and tensor memory, where debug information has it.
    memory: tuple[MemoryMap, ...] = ()


@dataclass(frozen=True)
class CheckRequest:
    """What is asked of every step."""

    sms: tuple[int, ...]
    schedules: int
    seed: int
    call_limit_s: float
    max_findings: int
    jobs: int = 1  #: Worker processes at the same time.
    sequence: bool = True  #: Whether calls in sequence follow the first schedules of each shape.
    budget_s: float = 0.0  #: Seconds for all shapes of a step, about; 0 for no limit.
    strict: bool = False  #: Whether what rests on an assumption is not right.
    #: Reasons by identity, for findings of any step that may be there.
    allow: dict[str, str] = field(default_factory=dict)
    #: How many rounds to run, by shape and input class, whatever the time; else as many as
    #: ``schedules`` and ``budget_s`` allow.
    rounds: dict[str, dict[str, int]] = field(default_factory=dict)
