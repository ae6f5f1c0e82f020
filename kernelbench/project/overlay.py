"""One folder that has all files of a step, also where they come from several folders.

A step's files are its own and those of its bases. ``#include "..."`` looks beside the including
file, so that a build needs them side by side: as links, in the cache.
What compilers and debug information say of a link is turned back into the file behind it.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.errors import UsageError
from kernelbench.base.files import write_text
from kernelbench.project.model import Step
from kernelbench.project.source_files import sources_of

#: Below the cache folder.
FOLDER = "sources"


def written_source(name: str, text: str) -> Path:
    """A file of a name with a text; its folder's name depends on the text only.

    Raises:
        EnvironmentProblem: If the cache cannot be written.
    """
    import hashlib  # `list` comes by here, and does not need it

    root = cache_dir()
    file = root / FOLDER / hashlib.sha256(text.encode()).hexdigest()[:32] / name
    if not file.is_file():
        with writing(root):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
    return file


def folder_of(step: Step) -> Path:
    """The folder with all files of a step, one of links if it has a base; or EnvironmentProblem."""
    return step.path if step.base is None else composed(sources_of(step))


def entry_of(step: Step) -> Path:
    """The file to build or import, beside the step's other files; UsageError if it is missing."""
    if step.entry is None or not step.entry.is_file():
        raise UsageError(f"{step.name}: {step.entry} is missing")
    if step.base is None:
        return step.entry
    for name, file in sources_of(step).items():
        if file == step.entry:
            return folder_of(step) / name
    raise UsageError(f"{step.name}: {step.entry} is no source file by its name")


def composed(sources: dict[str, Path]) -> Path:
    """A folder of links to files, the same for the same links; it raises as :func:`folder_of`."""
    import hashlib
    import tempfile

    digest = hashlib.sha256()
    for name, file in sources.items():
        for part in (name.encode(), str(file).encode()):
            digest.update(b"%d " % len(part) + part)
    root = cache_dir()
    folder = root / FOLDER / digest.hexdigest()[:32]
    if folder.is_dir():
        return folder
    with writing(root):
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_broken(folder.parent)
        temporary = Path(tempfile.mkdtemp(prefix="tmp-", dir=root))
        try:
            temporary.chmod(0o755)
            for name, file in sources.items():
                link = temporary / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
            try:
                temporary.rename(folder)
            except OSError:
                # Another process may have made it meanwhile: its links are the same.
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _remove_broken(parent: Path) -> None:
    """Remove folders whose files are gone, as after a comparison with another revision."""
    for folder in parent.iterdir():
        with contextlib.suppress(OSError):
            if any(link.is_symlink() and not link.exists() for link in folder.rglob("*")):
                shutil.rmtree(folder, ignore_errors=True)


def real_file(file: Path) -> Path:
    """The file behind a link of ours; any other path as it is."""
    return file.readlink() if file.is_symlink() and FOLDER in file.parts else file


def with_real_files(text: str) -> str:
    """What a tool has printed, with files in place of our links to them."""
    links = re.compile(re.escape(f"{cache_dir() / FOLDER}/") + r"[0-9a-f]{32}/[\w./+-]*[\w]")
    return links.sub(lambda match: str(real_file(Path(match[0]))), text)
