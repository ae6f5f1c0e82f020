"""Whether results can be written, asked before hours of measuring and not after them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.base.files import existing_part
from kernelbench.records.run_record import device_slug


def require_writable_results(
    folder: Path, devices: Sequence[str] = (), hint: str = "choose another with --results"
) -> None:
    """Refuse a results folder in which records could not be made.

    A file is made for a moment in what exists of the way to ``folder`` and to the runs of each
    device: permissions alone do not tell, since root has them all, in /proc and on a full disk too.

    Args:
        devices: Names of the devices that are to be measured.

    Raises:
        EnvironmentProblem: Naming the part that is not a writable folder.
    """
    places = [folder, *(folder / device_slug(device) / "runs" for device in devices)]
    for place in dict.fromkeys(existing_part(place) for place in places):
        if not _takes_files(place):
            raise EnvironmentProblem(
                f"cannot write results to {folder}: {place} is not a writable folder", hint
            )


def _takes_files(folder: Path) -> bool:
    if not os.access(folder, os.W_OK | os.X_OK):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as stream:
            stream.write(b"x")
    except OSError:
        return False
    return True
