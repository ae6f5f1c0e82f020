"""What a judge asks of a submission's process; pickled on the way there."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Literal

import torch

from kernelbench.executors.executor import Target
from kernelbench.project.model import Lineage, Step
from kernelbench.records.run_record import CallForm, L2Mode, Metric
from kernelbench.worker.shared_data import DataMessage


@dataclass(frozen=True)
class Load:
    """Load a submission; the first is arm 0, the next arm 1."""

    step: Step
    lineage: Lineage
    target: Target
    limit_s: float


@dataclass(frozen=True)
class Prepare:
    """Data for the next call. ``forget``: results of earlier ones that nobody holds any more."""

    message: DataMessage
    forget: tuple[int, ...]


@dataclass(frozen=True)
class Call:
    """Call it on them. ``rehearsal``: nobody asks what it returns or how long it takes."""

    arm: int = 0
    rehearsal: bool = False


@dataclass(frozen=True)
class Trial:
    """Call it in one of the ways of :mod:`kernelbench.measure.stream_trial`.

    The data are a :class:`kernelbench.worker.trial_apart.TrialData`.

    Attributes:
        way: Behind inputs that come late, or on a busy device.
        own_stream: On a stream of its own, or the default one.
        like: Shapes and types of outputs that it allocates itself.
    """

    arm: int
    way: Literal["late inputs", "busy device"]
    own_stream: bool
    like: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()


@dataclass(frozen=True)
class Poison:
    """Fill memory of these shapes and types with random bits, and free it."""

    like: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    seed: int
    device: str = "cpu"


@dataclass(frozen=True)
class Ping:
    """Answer; with a device, after a kernel there that does nothing."""

    device: str = ""


@dataclass(frozen=True)
class Time:
    """Time a series of calls on a GPU.

    The data are input sets: pairs of inputs and poisons. Before it is done it answers with what it
    is at (``at``): a ``phase`` that begins; ready to ``renew`` the values, upon which it is told to
    make :class:`Once` a repetition, or to :class:`Go` on; a ``block`` that is timed, with what its
    last calls returned.

    Attributes:
        seed: Of the order; none that inputs are drawn by.
    """

    metric: Metric
    arms: tuple[int, ...]
    order: tuple[tuple[int, ...], ...]
    warmups: int
    l2: L2Mode
    call: CallForm
    batch: int
    seed: int
    limit_s: float
    message: DataMessage


@dataclass(frozen=True)
class Once:
    """One repetition of an arm on the input set of that index, by itself.

    Attributes:
        rehearsal: Nobody asks what it returns.
    """

    arm: int
    which: int
    rehearsal: bool = False


@dataclass(frozen=True)
class Go:
    """Go on with the series."""


Request = Load | Prepare | Call | Trial | Poison | Ping | Time | Once | Go


def encode_request(nonce: str, request: Request) -> bytes:
    """What :func:`kernelbench.worker.submission.serve` understands."""
    return pickle.dumps((nonce, request), pickle.HIGHEST_PROTOCOL)
