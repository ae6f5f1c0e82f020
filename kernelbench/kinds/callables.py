"""Load a step's Python callable from its file.

Steps and submissions are ordinary files that define ``custom_kernel(data)``. Files written for GPU
MODE import ``task`` and ``utils``; modules of these names with what submissions use of them
are on the path while the file is loaded.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from kernelbench.base.bytecode import no_bytecode

ENTRY_POINT = "custom_kernel"
_COMPAT = Path(__file__).parent / "compat"
#: What colours text in a terminal: some packages have it in their errors.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
#: Folders of the steps loaded so far, the latest first.
_folders: list[str] = []


class RaisedElsewhere(Exception):
    """A step raised in another process; the message is what was described there, in one line."""


class LoadError(Exception):
    """The file cannot be imported or defines no entry point; the message is one line."""


def load_callable(path: Path) -> Callable[[Any], Any]:
    """Import ``path`` as a module of its own; its ``custom_kernel``, or LoadError."""
    if not path.is_file():
        raise LoadError(f"no such file: {path}")
    import hashlib

    name = "kernelbench_step_" + hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _search_first(str(path.parent.resolve()))
    before = set(sys.modules)
    try:
        with no_bytecode():
            spec.loader.exec_module(module)
    except Exception as error:
        raise LoadError(
            f"importing {path.name} raised {describe_exception(error, path)}"
        ) from error
    for other in set(sys.modules) - before:
        # Another revision of the step has modules of the same names, and must get its own.
        if (
            path.parent.resolve()
            in Path(getattr(sys.modules[other], "__file__", None) or "").parents
        ):
            del sys.modules[other]
    entry = getattr(module, ENTRY_POINT, None)
    if not callable(entry):
        raise LoadError(f"{path.name} defines no {ENTRY_POINT}(data)")
    return cast("Callable[[Any], Any]", entry)


def notes_of(kernel: Callable[[Any], Any]) -> tuple[str, ...]:
    """What a step's callable says of how it ran its last call: lines in its ``notes``, if any."""
    notes = getattr(kernel, "notes", ())
    return tuple(map(str, notes)) if isinstance(notes, list | tuple) else ()


def untimed_setup_of(kernel: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    """What a peer's callable wants done with the data before it is timed: its ``untimed_setup``.

    For peers that take operands in another format than the problem's. ``kernel(data)`` may then
    rely on the last ``untimed_setup(data)`` for these values. Its former name is ``beforehand``.
    """
    found = getattr(kernel, "untimed_setup", getattr(kernel, "beforehand", None))
    return cast("Callable[[Any], Any]", found) if callable(found) else None


def with_untimed_setup(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The callable with its untimed set-up in front of each call."""
    setup = untimed_setup_of(kernel)
    if setup is None:
        return kernel

    def whole(data: Any) -> Any:
        setup(data)
        return kernel(data)

    return whole


def _search_first(folder: str) -> None:
    """Put a step's folder before those of other steps, behind everything that was installed."""
    if folder in _folders:
        _folders.remove(folder)
    _folders.insert(0, folder)
    ours = [*_folders, str(_COMPAT)]
    sys.path[:] = [entry for entry in sys.path if entry not in ours] + ours


def describe_exception(error: BaseException, path: Path | None = None) -> str:
    """``Type: message (file:line)`` in one line, the line being the innermost one in ``path``."""
    if isinstance(error, RaisedElsewhere):
        return str(error)
    where = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if path is not None and Path(frame.f_code.co_filename).name == path.name:
            where = f" ({path.name}:{line})"
    text = " ".join(_COLOUR.sub("", str(error)).split())
    if len(text) > 300:
        text = text[:297] + "..."
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"
