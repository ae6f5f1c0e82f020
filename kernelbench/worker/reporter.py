"""How a worker reports: messages through a pipe to the command line."""

from __future__ import annotations

import os
from collections.abc import Callable

from kernelbench.measure.outcomes import Whose
from kernelbench.worker.messages import Message, PhaseBegins, encode_message


class Reporter:
    """Sends messages to the parent.

    Args:
        send: What takes a message; see :func:`to_pipe`.
    """

    def __init__(self, send: Callable[[Message], None]) -> None:
        self._send = send

    def __call__(self, message: Message) -> None:
        self._send(message)

    def phase(self, name: str, limit_s: float, whose: Whose = "step") -> None:
        """Announce what begins now, how long it may take, and whose code it runs."""
        self._send(PhaseBegins(name, limit_s, whose))


def to_pipe(descriptor: int) -> Reporter:
    """A reporter that writes to the pipe of a launcher."""

    def send(message: Message) -> None:
        data = encode_message(message)
        while data:
            data = data[os.write(descriptor, data) :]

    return Reporter(send)
