"""The code of a campaign as one archive: what workers run is the client's, not what they have."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import kernelbench
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.project.project_file import Project
from kernelbench.project.shipped import shipped_names, shipped_root

#: Folders of the archive: for the import path, for the project, and for what results say already.
CODE, PROJECT, RESULTS = "code", "project", "results"

_LEFT_OUT = frozenset({"__pycache__", "node_modules"})
#: Of a project's root: what was built from it.
_BUILT = ("build", "dist")
_MOST_BYTES = 256 << 20
_ENDINGS_LEFT_OUT = (".pyc", ".whl", ".egg-info")


@dataclass(frozen=True)
class CodeArchive:
    """A zip file in memory."""

    data: bytes
    sha: str  #: Hash (hex) of all that is in it.
    code_sha: str  #: Hash of kernelbench alone: its package, and what all steps are built with.
    root: str  #: Folder within it that commands run in.


def pack_code(project: Project, results: Path) -> CodeArchive:
    """Pack kernelbench, the project, and those results that a command looks at.

    Of a project, what is hidden, environments and what was built stay behind; of the results, all
    but calibrations and tables.

    Raises:
        EnvironmentProblem: If a file cannot be read, or the project is too large to send around.
    """
    package = Path(kernelbench.__file__).resolve().parent
    shipped = f"{CODE}/kernelbench/_shipped"
    blocks = f"{shipped}/kernels/common/"
    alone = project.nowhere or project.root.resolve() == shipped_root().resolve()
    files = dict(_files(package, f"{CODE}/kernelbench"))
    for name in shipped_names():
        files |= dict(_files(shipped_root() / name, f"{shipped}/{name}"))
    if not alone:
        root = project.root.resolve()
        but = {project.results.resolve(), *(root / name for name in _BUILT)}
        files |= dict(_files(root, PROJECT, but))
    for pattern in ("*/calibration/*.json", "*/table.csv", "*/table.md"):
        for file in results.glob(pattern):
            files[f"{RESULTS}/{file.relative_to(results).as_posix()}"] = file
    buffer = io.BytesIO()
    whole, tool, total = hashlib.sha256(), hashlib.sha256(), 0
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            try:
                content = file.read_bytes()
            except OSError as error:
                why = error.strerror or error
                raise EnvironmentProblem(f"cannot read {file}: {why}") from error
            total += len(content)
            if total > _MOST_BYTES:
                raise EnvironmentProblem(
                    f"{project.root} has more than {_MOST_BYTES >> 20} MiB to send to workers",
                    "keep data and outputs in a hidden folder, or outside the project",
                )
            piece = f"{name} {len(content)}\n".encode() + content
            whole.update(piece)
            beside = name.startswith(f"{shipped}/") and not name.startswith(blocks)
            if name.startswith(f"{CODE}/") and not beside and not name.endswith(".md"):
                tool.update(piece)
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    where = shipped if alone else PROJECT
    return CodeArchive(buffer.getvalue(), whole.hexdigest(), tool.hexdigest(), where)


def _files(place: Path, name: str, but: Collection[Path] = ()) -> Iterator[tuple[str, Path]]:
    if place.is_file():
        yield name, place
        return
    for folder, inner, files in os.walk(place):
        here = Path(folder)
        inner[:] = [
            each
            for each in inner
            if not each.startswith(".")
            and each not in _LEFT_OUT
            and not each.endswith(_ENDINGS_LEFT_OUT)
            and here / each not in but
            and not (here / each / "pyvenv.cfg").is_file()
        ]
        for each in files:
            path = here / each
            left_out = each.startswith(".") or each.endswith(_ENDINGS_LEFT_OUT)
            if path.is_file() and not left_out:
                yield f"{name}/{path.relative_to(place).as_posix()}", path
