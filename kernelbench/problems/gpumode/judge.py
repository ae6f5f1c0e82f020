"""A task's verdict, and who is to blame for it.

``check_implementation`` returns, in the collection's tasks, a pair ``(right, message)``, a message
that is empty for a right result, or a bare boolean. All of them are understood, and nothing else.
"""

from __future__ import annotations

import builtins
import math
import sys
import time
from types import ModuleType
from typing import Any

import numpy as np
import torch

_MAX_MESSAGE = 300
_WATCHED: tuple[ModuleType | type, ...] = (
    torch, torch.Tensor, torch.nn.functional, torch.linalg, torch.testing, torch.cuda,
    torch.special, torch.fft, np, builtins, time, math,
)  # fmt: skip


def understood(returned: Any) -> tuple[bool, str]:
    """Whether the result is right, and the task's message in one line; TypeError for no verdict."""
    if isinstance(returned, tuple | list) and len(returned) == 2 and _is_bool(returned[0]):
        return bool(returned[0]), _line(returned[1])
    if _is_bool(returned):
        return bool(returned), ""
    if isinstance(returned, str):
        return not returned, _line(returned)
    if isinstance(returned, list) and all(isinstance(line, str) for line in returned):
        return not returned, _line("; ".join(returned))
    if returned is None:  # the older evaluations take any message that is not true for a pass
        return True, ""
    raise TypeError(
        f"check_implementation returned {type(returned).__name__}: "
        "expected (bool, str), str or bool"
    )


def _is_bool(value: Any) -> bool:
    single = isinstance(value, torch.Tensor) and value.dtype is torch.bool and value.numel() == 1
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_") or single


def _line(text: Any) -> str:
    lines = "; ".join(map(str, text)) if isinstance(text, list | tuple) else str(text or "")
    joined = " ".join(lines.replace("\\n", "; ").split())
    return joined if len(joined) <= _MAX_MESSAGE else joined[: _MAX_MESSAGE - 3] + "..."


class Guard:
    """Remembers what torch, numpy, ``time`` and the builtins are before a submission is loaded.

    A submission in the same process could replace what judges or measures it. Names that are added,
    and what a package replaces in itself, are none of its business.
    """

    def __init__(self) -> None:
        self._before = [(owner, _names(owner)) for owner in _WATCHED]
        #: The first thing that was found replaced, e.g. ``torch.allclose``; or empty.
        self.replaced = ""

    def undo(self) -> None:
        """Put back what was replaced: the task's own code runs on the real thing."""
        for owner, before in self._before:
            now = _names(owner)
            for name, old in before.items():
                new = now.get(name)
                if new is not old and callable(old) and not _at_home(new, owner):
                    self.replaced = self.replaced or f"{owner.__name__}.{name}"
                    setattr(owner, name, old)


def _names(owner: ModuleType | type) -> dict[str, Any]:
    """What an attribute of ``owner`` is, by name; for a class also those of its bases.

    Who silences ``print`` cheats nobody.
    """
    found: dict[str, Any] = {}
    for base in reversed(owner.__mro__) if isinstance(owner, type) else [owner]:
        found.update(vars(base))
    found.pop("print", None)
    return found


def _at_home(value: Any, owner: ModuleType | type) -> bool:
    """Whether a function comes from the package that it is found in."""
    package = (owner.__module__ if isinstance(owner, type) else owner.__name__).partition(".")[0]
    code = getattr(value, "__code__", None)
    home = getattr(sys.modules.get(package), "__path__", None)
    if code is not None:
        return home is not None and str(code.co_filename).startswith(str(home[0]))
    return str(getattr(value, "__module__", "")).partition(".")[0] == package
