"""Reading YAML files whose mistakes are told by file and line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import yaml

from kernelbench.base.errors import UsageError
from kernelbench.base.files import user_text


@contextlib.contextmanager
def yaml_nodes(path: Path) -> Iterator[tuple[yaml.Node | None, yaml.SafeLoader]]:
    """The root of a file, None if that is empty, and the loader that makes values of nodes.

    Raises:
        UsageError: If the file cannot be read, and here or in the block for what is no YAML:
            ``FILE:LINE: …``.
    """
    loader = yaml.SafeLoader(user_text(path))
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
