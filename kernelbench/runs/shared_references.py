"""The folder in which the steps of one run share references."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence

from kernelbench.runs.runner import StepRun


@contextlib.contextmanager
def shared_folder(runs: Sequence[StepRun]) -> Iterator[str]:
    """A folder for what these runs can share; empty if that is nothing. It goes with the block."""
    sharing = [run for run in runs if run.target.gpu is None and not run.step.submission]
    if len(sharing) < 2:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="kernelbench-references-") as folder:
        yield folder
