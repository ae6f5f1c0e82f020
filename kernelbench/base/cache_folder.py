"""The folder that holds what kernelbench makes on this machine, and failures to write there."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem

CACHE_VARIABLE = "KERNELBENCH_CACHE"


def cache_dir() -> Path:
    """``$KERNELBENCH_CACHE``, else ``kernelbench`` below the XDG cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "kernelbench"
    try:
        return Path.home() / ".cache" / "kernelbench"
    except RuntimeError:
        import tempfile

        return Path(tempfile.gettempdir()) / "kernelbench-cache"


@contextlib.contextmanager
def writing(root: Path) -> Iterator[None]:
    """Turn failures to write below the cache folder into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(root) from error
        raise EnvironmentProblem(
            f"cannot write the cache folder {root}: {error.strerror or error}",
            f"point {CACHE_VARIABLE} at a folder that you can write",
        ) from error


def disk_full(root: Path) -> EnvironmentProblem:
    """The error for a full disk under the cache folder."""
    return EnvironmentProblem(
        f"the disk that holds the cache folder {root} is full",
        f"`kernelbench cache clear`, or point {CACHE_VARIABLE} elsewhere",
    )
