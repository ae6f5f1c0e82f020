"""The messages from a worker to the command line: what they are, and the one form they travel in.

A message is one JSON object a line. :func:`encode_message` and :func:`decode_message` are the only
places that know it; everything else sees dataclasses. No torch here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from kernelbench.base import schema
from kernelbench.base.errors import KernelbenchError, internal_error
from kernelbench.emulator.decisions import Decision
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.measure.results import CheckResult, FaultOrigin, TimedBlock, error_of
from kernelbench.measure.speed_of_light import Ceilings
from kernelbench.project.problem import Work
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import Environment, ReadFloor, ResultStatus

ArmName = Literal["base", "cand"]


@dataclass(frozen=True)
class PhaseBegins:
    """What begins now, and how many seconds it may take before the watchdog ends the worker."""

    name: str
    limit_s: float
    whose: FaultOrigin = "step"


@dataclass(frozen=True)
class JobFailed:
    """Something other than a step ended the job: ``status`` says what."""

    status: ResultStatus
    reason: str  #: One line.
    traceback: str = ""  #: Of a defect in kernelbench; else empty.

    def as_error(self) -> KernelbenchError:
        """What to raise where the job was all that was asked for."""
        if self.traceback:
            return internal_error(self.reason, self.traceback)
        return error_of(self.status, self.reason)


@dataclass(frozen=True)
class EnvironmentRead:
    """The machine, as the worker found it."""

    environment: Environment


@dataclass(frozen=True)
class ShapeBegins:
    """The job has come to a shape; what follows is about it."""

    shape: str


@dataclass(frozen=True)
class ClassChecked:
    """One class of inputs was checked."""

    shape: str
    inputs: str
    result: CheckResult


@dataclass(frozen=True)
class ArmChecked:
    """An arm of a comparison is right on a class of inputs."""

    arm: ArmName
    inputs: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ArmFailed:
    """An arm of a comparison cannot be loaded, or is not right; the job ends."""

    arm: ArmName
    status: ResultStatus
    reason: str


@dataclass(frozen=True)
class WorkCounted:
    """FLOPs and bytes of one call on the timed inputs."""

    shape: str
    work: Work


@dataclass(frozen=True)
class BlockTimed:
    """The raw samples of one block; ``round``: of which comparison in this process."""

    shape: str
    metric: Metric
    block: TimedBlock
    round: int = 0


@dataclass(frozen=True)
class MetricMeasured:
    """A metric is complete and its timed outputs are right."""

    shape: str
    metric: Metric
    method: str
    notes: tuple[str, ...]
    busy_s: float  #: Seconds in which something was timed or flushed.
    round: int = 0


@dataclass(frozen=True)
class TimingFailed:
    """A timed output was wrong, or the step raised while it was timed; the shape ends."""

    shape: str
    status: ResultStatus
    reason: str


@dataclass(frozen=True)
class FloorRead:
    """The bytes that the step must read were read; ``note`` says why if they were not."""

    shape: str
    floor: ReadFloor | None
    note: str


@dataclass(frozen=True)
class DelayInjected:
    """A planted delay as it was found to be, in microseconds."""

    found_us: float


@dataclass(frozen=True)
class StepNotLoaded:
    """A step that is to be checked cannot be built or loaded."""

    reason: str


@dataclass(frozen=True)
class ScheduleRun:
    """One schedule of the emulator ended; ``reason``: why it is not right, or empty."""

    shape: str
    inputs: str
    sms: int
    index: int
    reason: str
    report: EmulatorReport
    calls: str = ""  #: Which call of the sequence it was; empty for a call like the first.


@dataclass(frozen=True)
class ScheduleShortened:
    """The fewest decisions that were found whose schedule shows the same."""

    #: None if the schedule did not show it again, apart from the check.
    decisions: tuple[Decision, ...] | None
    made: int  #: How many were made in the schedule as the seed drew it.
    kept: int  #: How many of them were not the usual ones.
    trials: int  #: Schedules that were run.


@dataclass(frozen=True)
class StateTold:
    """The state at a finding, line by line; empty if the finding was not made."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class CeilingsMeasured:
    """The ceilings of a GPU."""

    ceilings: Ceilings


@dataclass(frozen=True)
class Prepared:
    """Everything is ready to be timed; the worker waits at its gate."""


@dataclass(frozen=True)
class JobDone:
    """The job is finished; nothing follows."""


Message = (
    PhaseBegins
    | JobFailed
    | EnvironmentRead
    | ShapeBegins
    | ClassChecked
    | ArmChecked
    | ArmFailed
    | WorkCounted
    | BlockTimed
    | MetricMeasured
    | TimingFailed
    | FloorRead
    | DelayInjected
    | StepNotLoaded
    | ScheduleRun
    | ScheduleShortened
    | StateTold
    | CeilingsMeasured
    | Prepared
    | JobDone
)

_KINDS = {kind.__name__: kind for kind in get_args(Message)}


def encode_message(message: Message) -> bytes:
    """The line of a message, its newline included."""
    value = {"kind": type(message).__name__, **schema.encode(message)}
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def decode_message(line: bytes) -> Message:
    """The message of a line; SchemaError if it is none: a step has written into the pipe."""
    try:
        value = json.loads(line)
        kind = _KINDS[value.pop("kind")]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise schema.SchemaError(f"not a message: {line[:80]!r}") from error
    found: Message = schema.decode(kind, value)
    return found


class Reporter:
    """Sends messages to the parent (:func:`to_pipe`); ``gate`` is the worker's, if it has one."""

    def __init__(self, send: Callable[[Message], None], gate: int | None = None) -> None:
        self._send = send
        self._gate = gate

    def __call__(self, message: Message) -> None:
        self._send(message)

    def phase(self, name: str, limit_s: float, whose: FaultOrigin = "step") -> None:
        """Announce what begins now, how long it may take, and whose code it runs."""
        self._send(PhaseBegins(name, limit_s, whose))

    def prepared(self) -> None:
        """Say that all is ready to be timed, and wait; SystemExit if nobody is there any more."""
        self._send(Prepared())
        if not self.wait():
            raise SystemExit("nobody waits for this session")

    def wait(self) -> bool:
        """Wait at the gate; whether it was opened, and not taken away."""
        return self._gate is None or bool(os.read(self._gate, 1))


def to_pipe(descriptor: int, gate: int | None = None) -> Reporter:
    """A reporter that writes to the pipe of a launcher."""

    def send(message: Message) -> None:
        data = encode_message(message)
        while data:
            data = data[os.write(descriptor, data) :]

    return Reporter(send, gate)
