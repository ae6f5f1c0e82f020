"""How a worker reports: messages through a pipe to the command line."""

from __future__ import annotations

import os
from collections.abc import Callable

from kernelbench.measure.outcomes import Whose
from kernelbench.worker.messages import Message, PhaseBegins, Prepared, encode_message


class Reporter:
    """Sends messages to the parent.

    Args:
        send: What takes a message; see :func:`to_pipe`.
        gate: The descriptor of the worker's gate, if it has one.
    """

    def __init__(self, send: Callable[[Message], None], gate: int | None = None) -> None:
        self._send = send
        self._gate = gate

    def __call__(self, message: Message) -> None:
        self._send(message)

    def phase(self, name: str, limit_s: float, whose: Whose = "step") -> None:
        """Announce what begins now, how long it may take, and whose code it runs."""
        self._send(PhaseBegins(name, limit_s, whose))

    def prepared(self) -> None:
        """Say that everything is ready to be timed, and wait for the word.

        Raises:
            SystemExit: If nobody is there any more to give it.
        """
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
