"""How a worker reports: messages, one JSON object a line, through a pipe to the command line."""

from __future__ import annotations

import json
import os
from typing import Any


class Reporter:
    """Writes messages, one JSON object a line, to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, kind: str, **fields: Any) -> None:
        data = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._descriptor, data) :]

    def phase(self, name: str, limit_s: float) -> None:
        """Announce what begins now and how long it may take."""
        self("phase", name=name, limit_s=limit_s)
