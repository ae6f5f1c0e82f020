"""What a comparison can begin before its own modules are imported, which takes a second."""

from kernelbench.worker.launcher import begin_ahead

__all__ = ["begin_ahead"]
