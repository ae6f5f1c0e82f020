"""What a worker is asked to do. No torch here: the command line builds these."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from kernelbench.base.errors import UsageError
from kernelbench.emulator.decisions import Decision
from kernelbench.executors.targets import Target
from kernelbench.project.model import Lineage, Step
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import CallForm, L2Mode

#: Environment variable: ``apart`` has submissions on a GPU judged from another process.
JUDGE_ON_GPU = "KERNELBENCH_GPU_JUDGE"


@dataclass(frozen=True)
class Arm:
    """A step as a worker loads it."""

    step: Step  #: The step; its ``entry`` is the file with ``custom_kernel``.
    #: Extra device time that calibration adds to each call, or None for none. With 0 the call still
    #: carries the extra kernel, so that two arms differ in its duration only.
    plant_us: float | None = None


@dataclass(frozen=True)
class Timing:
    """How to time; see ``measure/timing.py``."""

    reps: int
    warmups: int
    l2: L2Mode
    call: CallForm
    metrics: tuple[Metric, ...]
    budget_s: float  #: Bound on the timed part per shape on a CPU.
    #: Device replays in one event pair, over rotated input sets; above 1 only for kernels so short
    #: that the timer's resolution shows.
    batch: int = 1


@dataclass(frozen=True)
class RunJob:
    """Check one step on some shapes, then time it."""

    arm: Arm
    lineage: Lineage  #: The lineage that names the problem (a submission borrows one).
    shapes: tuple[Any, ...]
    classes: tuple[str, ...]  #: Input classes to check; the first is timed if it passes.
    target: Target  #: Executor and device.
    seed: int
    timing: Timing | None
    call_limit_s: float  #: Longest that a phase running the step's own code may take.
    own_stream: bool  #: Whether the step must be right on a stream of its own.
    references: str = ""  #: Folder of the references that several steps share, or empty.


@dataclass(frozen=True)
class CompareJob:
    """Time two arms interleaved (ABBA), or one after the other (``sequential``), in one process."""

    base: Arm
    cand: Arm
    lineage: Lineage
    shape: Any
    #: Input classes that both arms are checked on; the first one is timed.
    classes: tuple[str, ...]
    target: Target
    seed: int
    timing: Timing
    #: ``blocks``, ``quads``: The protocol's size: ``blocks × quads × 2`` repetitions an arm.
    blocks: int
    quads: int
    check: bool  #: Check both arms first.
    call_limit_s: float
    own_stream: bool
    repeats: int = 1  #: Comparisons to make in this process, one after another.
    sequential: bool = False
    #: For calibration: extra device time of the second arm, one comparison each, in place of
    #: ``repeats``.
    plants_us: tuple[float, ...] = ()
    #: Which part of these checks (from 0) of how many is this worker's.
    share: tuple[int, int] = (0, 1)
    #: Whether to wait for the word before anything is timed, and before the end.
    gated: bool = False


#: Of a class, in place of a number of rounds; the last is less than half of one.
HALF_A_ROUND, NO_ROUND, LEAST_OF_A_ROUND = 0, -1, -2


@dataclass(frozen=True)
class CheckJob:
    """Run one compiled step on the emulator's checker under many schedules."""

    step: Step
    lineage: Lineage
    shapes: tuple[Any, ...]
    classes: tuple[str, ...]  #: Input classes, each with all schedules.
    target: Target  #: The emulator, whose number of SMs each launch chooses from ``sms``.
    sms: tuple[int, ...]
    schedules: int  #: How many for each shape, class and number of SMs.
    seed: int
    call_limit_s: float
    max_findings: int  #: How many different findings a launch keeps.
    counters: str  #: Folder for the counts of branches; empty for none.
    os_threads: int  #: OS threads of the emulation; 0 for one per core.
    #: Whether also to make the calls of :mod:`kernelbench.worker.call_sequence`.
    sequence: bool = False
    other_shape: Any = None  #: A second shape for them; None if there is none.
    sequence_sms: int = 1  #: The number of SMs of the calls in sequence.
    #: Seconds after which no further round of schedules begins, for each shape and class; 0 for no
    #: limit.
    budget_s: float = 0.0
    #: How many rounds of each class to run instead, whatever the time, or one of the above; empty
    #: for as many as there is time for.
    rounds: tuple[int, ...] = ()


@dataclass(frozen=True)
class ReplayJob:
    """Run one schedule of a step again, or look for the shortest one that shows the same."""

    check: CheckJob  #: The shape, class and number of SMs, one of each, and the check's seed.
    index: int  #: Which schedule of the check it was.
    calls: str  #: Which call of its sequence, or empty.
    identity: str  #: What the schedule has shown: a finding's identity, or ``wrong``.
    #: Those of the schedule; None: the seed draws them.
    decisions: tuple[Decision, ...] | None = None
    times: int = 1  #: How often to run it.
    fewest_s: float = 0.0  #: Seconds to look for fewer decisions; 0: the schedule is run as it is.
    trace: str = ""  #: File for the trace of the last run; empty for none.
    state: bool = False  #: Whether to tell the state at the finding, of the last run.

    @property
    def lineage(self) -> Lineage:
        """Its problem is loaded before the job is read."""
        return self.check.lineage


@dataclass(frozen=True)
class CeilingsJob:
    """Measure a GPU's ceilings for the roofline."""

    device_index: int


def processes_apart(job: object) -> int:
    """How many processes of their own a job's submissions take, and one more that idles.

    Submissions in Python on a CPU are judged from another process, and on a GPU all of them, if
    :data:`JUDGE_ON_GPU` asks for it. In a comparison both arms are, so that their times compare:
    each in its own on a CPU, both in one on a GPU, where one queue takes the arms by turns. 0 where
    there is none.

    Raises:
        UsageError: If the variable says something else.
    """
    match job:
        case RunJob():
            arms = [job.arm]
        case CompareJob():
            arms = [job.base, job.cand]
        case _:
            return 0
    if not any(arm.step.submission for arm in arms):
        return 0
    if any(arm.plant_us is not None for arm in arms):
        return 0  # a calibration: what is planted is queued by the timer's own process
    match getattr(job.target.executor, "isolation", ""):
        case "always":
            return len(arms) + 1
        case "on request":
            return 2 if _apart_on_gpu() else 0
    return 0


def _apart_on_gpu() -> bool:
    asked = os.environ.get(JUDGE_ON_GPU, "")
    if asked not in ("", "apart"):
        raise UsageError(
            f"{JUDGE_ON_GPU}={asked}: expected 'apart', or nothing",
            "see who judges a submission, in docs/gpu-mode.md",
        )
    return asked == "apart"


Job = RunJob | CompareJob | CheckJob | ReplayJob | CeilingsJob
