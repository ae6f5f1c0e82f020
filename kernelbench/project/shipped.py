"""What ships with kernelbench: lineages, their building blocks and shapes, in any installation.

In a checkout (``pip install -e``) they are the checkout's own folders; a wheel carries the same
tree below the package, in ``kernelbench/_shipped``.
"""

from __future__ import annotations

import functools
import os
import tomllib
from pathlib import Path

#: Below the package, where a wheel has the tree of the checkout.
_FOLDER = "_shipped"
_FILES = ("pyproject.toml", "shapes.yaml", ".clang-format", "docs/findings")


@functools.cache
def shipped_root() -> Path:
    """The folder with ``pyproject.toml``, ``shapes.yaml``, ``kernels`` and the other lineages."""
    package = Path(__file__).resolve().parents[1]
    carried = package / _FOLDER
    return carried if carried.is_dir() else package.parent


@functools.cache
def shipped_names() -> tuple[str, ...]:
    """What a wheel carries of that folder: files that all lineages need, folders of lineages."""
    table = tomllib.loads((shipped_root() / "pyproject.toml").read_text(encoding="utf-8"))
    folders = [each.partition("/")[0] for each in table["tool"]["kernelbench"]["lineages"]]
    return (*_FILES, *dict.fromkeys(folders))


def shipped_blocks() -> Path:
    """The building blocks that all lineages share: the ptx layer and its backends are there."""
    return shipped_root() / "kernels" / "common"


def user_results() -> Path:
    """Where results go outside any project: ``kernelbench/results`` in the user's data folder.

    That is ``$XDG_DATA_HOME``, else ``~/.local/share``.
    """
    xdg = os.environ.get("XDG_DATA_HOME")
    if xdg and Path(xdg).is_absolute():
        return Path(xdg) / "kernelbench" / "results"
    try:
        return Path.home() / ".local" / "share" / "kernelbench" / "results"
    except RuntimeError:
        import tempfile

        return Path(tempfile.gettempdir()) / "kernelbench" / "results"
