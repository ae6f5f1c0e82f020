"""Files of users are imported where they lie; nothing is left beside them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def no_bytecode() -> Iterator[None]:
    """Import without a ``__pycache__``.

    It would lie in somebody's folder, and its age is whole seconds: a file that is changed twice in
    one second, to the same size, could be taken for its predecessor.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = before
