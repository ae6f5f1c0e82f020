"""Another revision of the project: a git reference, or a copy that was carried along."""

from __future__ import annotations

import contextlib
import io
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelbench.base.errors import RecordError
from kernelbench.project.project_file import Project, project_at
from kernelbench.project.registry import Lineages, load_lineages

_GIT_LIMIT_S = 120


@contextlib.contextmanager
def lineages_at(where: str, project: Project) -> Iterator[Lineages]:
    """The lineages of a git reference of ``project``'s repository, or of a folder.

    A reference is unpacked into a temporary folder that lives as long as the context. A folder wins
    over a reference of the same name.

    Raises:
        RecordError: If it is neither a folder nor a known reference, or git is missing or fails.
    """
    folder = Path(where).expanduser()
    if folder.is_dir():
        yield load_lineages(project_at(folder), former=True)
        return
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as temporary:
        root = _unpack(where, project.root, Path(temporary))
        yield load_lineages(project_at(root), former=True)


def commit_of(where: str, project: Project) -> str | None:
    """The commit that a reference names, in full; None for a folder or where git has no answer."""
    if Path(where).expanduser().is_dir():
        return None
    try:
        answer = _git(project.root, "rev-parse", "--verify", "--quiet", f"{where}^{{commit}}")
    except RecordError:
        return None
    return answer.decode().strip()


def uncommitted(project: Project) -> bool:
    """Whether the lineages here differ from HEAD, new files included; RecordError without git."""
    folders = [str(folder) for folder in project.lineages]
    return bool(_git(project.root, "status", "--porcelain", "--", *folders))


def _unpack(reference: str, root: Path, into: Path) -> Path:
    if reference.startswith("-"):
        raise RecordError(f"{reference!r} is neither a folder nor a git reference")
    hint = "`git init` and commit the project, or give a folder"
    top = Path(_git(root, "rev-parse", "--show-toplevel", hint=hint).decode().strip())
    try:
        _git(root, "rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
    except RecordError as error:
        raise RecordError(
            f"{reference!r} is neither a folder nor a commit of this repository",
            "fetch it first (a shallow clone in CI lacks it), or give a folder",
        ) from error
    archive = _git(top, "archive", "--format=tar", reference)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            # Links are kept whatever they point at, as a checkout keeps them.
            if hasattr(tarfile, "tar_filter"):
                tar.extractall(into, filter="tar")
            else:  # Python 3.11.3 and older; the archive is git's own
                tar.extractall(into)
    except (tarfile.TarError, OSError) as error:
        raise RecordError(f"cannot unpack {reference!r}: {' '.join(str(error).split())}") from error
    return into / root.resolve().relative_to(top.resolve())


def _git(folder: Path, *arguments: str, hint: str | None = None) -> bytes:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise RecordError("git is not installed", "install it, or give a folder") from error
    except subprocess.TimeoutExpired as error:
        raise RecordError(f"git {arguments[0]} took over {_GIT_LIMIT_S} s") from error
    if answer.returncode != 0:
        text = answer.stderr.decode(errors="replace").strip().splitlines()
        raise RecordError(f"git {arguments[0]} failed: {text[-1] if text else 'no message'}", hint)
    return answer.stdout
