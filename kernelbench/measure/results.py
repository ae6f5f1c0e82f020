"""What measuring a step gives: the values that travel from a worker to a record. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kernelbench.base.errors import (
    EnvironmentProblem,
    FaultyReferenceError,
    HarnessDefect,
    KernelbenchError,
    MachineFault,
    ProblemError,
)
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.records.metrics import Metric, sample_key
from kernelbench.records.run_record import ResultStatus

#: Whose code runs in a phase of a worker: a step's, or what an unjudged row's status names.
FaultOrigin = Literal["step", "problem", "reference", "machine", "harness"]


def status_of(error: KernelbenchError) -> ResultStatus:
    """Who is at fault for an error that ended what a worker did, as the status of a row."""
    match error:
        case FaultyReferenceError():
            return "reference"
        case HarnessDefect():
            return "harness"
        case EnvironmentProblem():
            return "machine"
        case _:
            return "problem"


def error_of(status: ResultStatus, reason: str) -> KernelbenchError:
    """The error that an unjudged row's status and reason stand for; see :func:`status_of`."""
    kinds: dict[ResultStatus, type[KernelbenchError]] = {
        "reference": FaultyReferenceError, "harness": HarnessDefect, "machine": MachineFault,
    }  # fmt: skip
    return kinds.get(status, ProblemError)(reason)


@dataclass(frozen=True)
class CheckResult:
    """Outcome of the check of one step on one shape and class of inputs."""

    status: ResultStatus
    exact: bool | None = None
    max_abs_err: float | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    #: What the emulator found, if it found something.
    report: EmulatorReport | None = None
    rel_rms_err: float | None = None


@dataclass
class TimedBlock:
    """Samples of one block, in the order measured."""

    #: ``arm``, ``input_set``, ``values``: Per repetition, in the metric's unit; rounded to a
    #: ten-thousandth.
    arm: list[int]
    input_set: list[int]
    values: list[float]
    sm_mhz: float | None = None  #: SM clock between the block's edges, or None.
    throttle: tuple[str, ...] = ()  #: Names of throttle reasons seen at its end.

    def __post_init__(self) -> None:
        self.values = [round(t, 4) for t in self.values]

    def of(self, arm: int) -> list[float]:
        """The samples of one arm, in order."""
        return [t for a, t in zip(self.arm, self.values, strict=True) if a == arm]

    def to_json(self, metric: Metric) -> dict[str, Any]:
        """The block as files of samples have it."""
        return {
            "arm": self.arm,
            "input": self.input_set,
            sample_key(metric): self.values,
            "sm_mhz": self.sm_mhz,
            "throttle": list(self.throttle),
        }
