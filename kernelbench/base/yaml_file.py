"""Reading YAML files whose mistakes are told by file and line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from kernelbench.base.errors import UsageError

__all__ = ["yaml_nodes"]


@contextlib.contextmanager
def yaml_nodes(path: Path, called: str) -> Iterator[tuple[yaml.Node | None, yaml.SafeLoader]]:
    """The root of a file, None if that is empty, and the loader that makes values of nodes.

    Args:
        path: The file.
        called: What the file is, for the error where it cannot be read: ``the shapes file``.

    Raises:
        UsageError: If the file cannot be read, and here or in the block for what is no YAML:
            ``FILE:LINE: …``.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read {called} {path}: {reason}") from None
    loader = yaml.SafeLoader(text)
    try:
        yield loader.get_single_node(), loader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise UsageError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{path}:1: not valid YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()
