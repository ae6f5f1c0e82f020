"""Frames between a judge and the process of a submission, with file descriptors beside them.

What goes to the submission is pickled; what comes back is JSON and is never more than data.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
from collections.abc import Sequence

_HEADER = struct.Struct("<Q")
_CREDENTIALS = struct.Struct("3i")
#: The kernel takes no more descriptors in one message (SCM_MAX_FD).
MAX_DESCRIPTORS = 253
#: A result is metadata of tensors and a few plain values.
MAX_REPLY_BYTES = 16 << 20


class Closed(Exception):
    """The other side is gone."""


class Forged(Exception):
    """What came is not from the other side, or not what it says; one line."""


def send_frame(link: socket.socket, payload: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send one frame.

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
        Forged: If the frame is another's or too long.
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
            raise Forged(f"process {pid} answered in place of {sender}")
        (size,) = _HEADER.unpack(head)
        if limit is not None and size > limit:
            raise Forged(f"the answer has {size} bytes")
        payload = bytearray(size)
        view = memoryview(payload)
        while view:
            got = link.recv_into(view)
            if not got:
                raise Closed("the socket is closed")
            view = view[got:]
    except (OSError, Closed, Forged) as error:
        for descriptor in descriptors:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        if isinstance(error, OSError):
            raise Closed(str(error)) from error
        raise
    return bytes(payload), descriptors
