"""What a judge asks of a submission's process, in frames with file descriptors beside them.

What goes to the submission is pickled; what comes back is JSON and is never more than data.
"""

from __future__ import annotations

import array
import contextlib
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from kernelbench.executors.executor import Target
from kernelbench.isolation.shared_data import DataMessage
from kernelbench.measure.stream_ordering_check import StreamOrderingCheck
from kernelbench.problems.pytree import rebuilt, tensor_leaves
from kernelbench.project.model import Lineage, Step
from kernelbench.project.problem import Inputs, Kernel
from kernelbench.records.metrics import Metric
from kernelbench.records.run_record import CallForm, L2Mode

_HEADER = struct.Struct("<Q")
_CREDENTIALS = struct.Struct("3i")
#: The kernel takes no more descriptors in one message (SCM_MAX_FD).
MAX_DESCRIPTORS = 253
#: A result is metadata of tensors and a few plain values.
MAX_REPLY_BYTES = 16 << 20


class Closed(Exception):
    """The peer has closed the connection."""


class PeerMismatch(Exception):
    """A frame is not from the expected process, or is too long; the message is one line."""


def send_frame(link: socket.socket, payload: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send one frame: its length as a little-endian uint64, the payload, descriptors beside it.

    Raises:
        Closed: If nobody is there.
    """
    whole = _HEADER.pack(len(payload)) + payload
    try:
        sent = socket.send_fds(link, [whole], descriptors)
        if sent < len(whole):
            link.sendall(memoryview(whole)[sent:])
    except OSError as error:
        raise Closed(str(error)) from error


def receive_frame(
    link: socket.socket, limit: int | None = None, sender: int | None = None
) -> tuple[bytes, list[int]]:
    """One frame and the descriptors that came with it, which are the caller's to close.

    Args:
        limit: Longest payload in bytes.
        sender: The process that it has to come from, as the kernel says; the socket has
            ``SO_PASSCRED``.

    Raises:
        Closed: If nobody is there.
        PeerMismatch: If the frame is another's or too long.
    """
    space = socket.CMSG_SPACE(4 * MAX_DESCRIPTORS) + socket.CMSG_SPACE(_CREDENTIALS.size)
    descriptors: list[int] = []
    try:
        head, ancillary, _, _ = link.recvmsg(_HEADER.size, space)
        pid = None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(data[: len(data) - len(data) % found.itemsize])
                descriptors += found
            elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                pid = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0]
        if len(head) < _HEADER.size:
            raise Closed("the socket is closed")
        if sender is not None and pid != sender:
            raise PeerMismatch(f"process {pid} answered in place of {sender}")
        (size,) = _HEADER.unpack(head)
        if limit is not None and size > limit:
            raise PeerMismatch(f"the answer has {size} bytes")
        payload = bytearray(size)
        view = memoryview(payload)
        while view:
            got = link.recv_into(view)
            if not got:
                raise Closed("the socket is closed")
            view = view[got:]
    except (OSError, Closed, PeerMismatch) as error:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if isinstance(error, OSError):
            raise Closed(str(error)) from error
        raise
    return bytes(payload), descriptors


def close(descriptors: Sequence[int]) -> None:
    """Close these descriptors."""
    for descriptor in descriptors:
        os.close(descriptor)


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
    """Call it in one of the ways of :mod:`kernelbench.measure.stream_ordering_check`.

    The data are a :class:`kernelbench.isolation.requests.TrialData`.

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
    """Answer as after a call that computes nothing.

    Attributes:
        device: The GPU on which a kernel runs that does nothing; none if empty.
        read: Bytes of inputs that are read first.
        returned: Bytes in host memory that are handed over.
    """

    device: str = ""
    read: int = 0
    returned: int = 0


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
    """What :func:`kernelbench.isolation.sandbox_child.serve` understands."""
    return pickle.dumps((nonce, request), pickle.HIGHEST_PROTOCOL)


@dataclass(frozen=True)
class TrialData:
    """What a trial needs; see :class:`.StreamOrderingCheck`."""

    current: Inputs
    stale: Inputs
    poison: torch.Tensor


def run_trial(kernel: Kernel, data: TrialData, request: Trial, device: torch.device) -> Any:
    """What the call returned; on a busy device with the early copies of the outputs.

    Copies of outputs that the step allocates itself are in the result's form, in host memory.
    """
    trial = StreamOrderingCheck(kernel, device, data.current, data.stale, data.poison)
    stream = torch.cuda.Stream(device) if request.own_stream else torch.cuda.default_stream(device)
    if request.way == "late inputs":
        return trial.on_late_inputs(stream)
    like = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in request.like]
    result, snapshot, copies = trial.on_busy_device(
        stream, like, lambda found: matching(found, like)
    )
    copy_of = dict(zip(map(id, matching(result, like)), copies, strict=True))
    early = rebuilt(result, lambda _, leaf: copy_of.get(id(leaf), leaf))
    return {"result": result, "snapshot": snapshot, "early": early}


def matching(result: Any, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in a result that have these shapes and types, in this order.

    Raises:
        ValueError: If they are not there.
    """
    left = [tensor for _, tensor in tensor_leaves(result)]
    found = []
    for one in like:
        which = next((t for t in left if t.shape == one.shape and t.dtype == one.dtype), None)
        if which is None:
            raise ValueError("returned other tensors than in the call before")
        left = [t for t in left if t is not which]
        found.append(which)
    return found
