"""Files that are written whole or not at all, and the text of those that a user wrote.

A file is written to a temporary name in the same folder, flushed to disk and renamed, so a reader
(or a power cut, a full disk, Ctrl-C) sees the old file or the new one, never half of one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, UsageError

#: A full disk, a quota, a limit on the size of files.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def from_here(path: Path) -> str:
    """A path as a user reads it: from the working folder if it is below that, else as it is."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _umask() -> int:
    """The process's umask; there is no way to read it but to set it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def existing_part(folder: Path) -> Path:
    """``folder``, or the nearest folder above it that exists."""
    return next(place for place in (folder, *folder.parents) if os.access(place, os.F_OK))


def is_writable_folder(folder: Path) -> bool:
    """Whether ``folder`` is there and files can be made in it."""
    return os.access(folder, os.W_OK | os.X_OK) and folder.is_dir()


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[Any]:
    """Open a binary file that replaces ``path`` only if the block succeeds.

    A device or a pipe is written as it is: a rename would put a file in its place.

    Raises:
        EnvironmentProblem: If the folder or file cannot be written (disk full, permissions).
    """
    import tempfile  # which most commands never take

    temporary: str | None = None
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
        temporary = None
    except OSError as error:
        advice = "free space or write elsewhere" if error.errno in NO_ROOM else "write elsewhere"
        raise EnvironmentProblem(
            f"cannot write {path}: {error.strerror or error}", f"{advice}; nothing was half-written"
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def user_text(path: Path) -> str:
    """The text of a user's file; UsageError if it cannot be read or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 text (byte {error.start})") from None


def write_text(path: Path, text: str) -> None:
    """Write ``text`` atomically in UTF-8."""
    with atomic_write(path) as stream:
        stream.write(text.encode())


def write_folder(target: Path, files: Mapping[str, str | Path]) -> None:
    """Write a folder of texts and copies of files, or write them into it, whole or not at all.

    Raises:
        EnvironmentProblem: If it cannot be written. Folders that were made for it go again.
    """
    import tempfile

    new = [folder for folder in target.parents if not folder.exists()]
    made: list[Path] = []
    place = target if target.exists() else target.parent  # perhaps the current folder, which stays
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kernelbench-", dir=place) as temporary:
            whole = Path(temporary, "whole")
            for name, content in files.items():
                (whole / name).parent.mkdir(parents=True, exist_ok=True)
                if isinstance(content, Path):
                    shutil.copyfile(content, whole / name)
                else:
                    (whole / name).write_text(content, encoding="utf-8")
            inside = place == target
            for path in [*whole.iterdir()] if inside else [whole]:
                made.append(path.rename(target / path.name if inside else target))
    except BaseException as error:
        for path in made:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        for folder in new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise EnvironmentProblem(
                f"cannot write {target}: {error.strerror or error}", "nothing was half-written"
            ) from error
        raise
