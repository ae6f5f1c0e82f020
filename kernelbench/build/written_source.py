"""Sources that are written here for a compiler, in the cache."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kernelbench.base.cache_folder import cache_dir, writing
from kernelbench.base.files import write_text
from kernelbench.project import overlay


def written_source(name: str, text: str) -> Path:
    """A file of a name with a text; its folder's name depends on the text only.

    Raises:
        EnvironmentProblem: If the cache cannot be written.
    """
    root = cache_dir()
    file = root / overlay.FOLDER / hashlib.sha256(text.encode()).hexdigest()[:32] / name
    if not file.is_file():
        with writing(root):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, text)
    return file
