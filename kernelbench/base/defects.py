"""What becomes of an exception that is nobody's but kernelbench's own."""

from __future__ import annotations

import os
from pathlib import Path

from kernelbench.base.errors import HarnessDefect

#: Set to anything, it has tracebacks printed, as ``kernelbench --debug`` does.
DEBUG_VARIABLE = "KERNELBENCH_DEBUG"
_PACKAGE = Path(__file__).resolve().parents[1]


def describe_defect(error: BaseException) -> str:
    """An exception in one line, with the innermost line of kernelbench that it passed."""
    import traceback

    where = ""
    for frame in traceback.extract_tb(error.__traceback__):
        file = Path(frame.filename)
        if file.is_relative_to(_PACKAGE):
            where = f" ({file.relative_to(_PACKAGE.parent)}:{frame.lineno})"
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
    return f"a defect in kernelbench: {text[:300]}{where}"


def defect(reason: str, trace: str) -> HarnessDefect:
    """The error of a defect; its traceback goes to a file that it names, or to stderr if asked."""
    if os.environ.get(DEBUG_VARIABLE):
        import sys

        print(trace, file=sys.stderr)
        return HarnessDefect(reason, "please report it")
    try:
        import tempfile

        with tempfile.NamedTemporaryFile(
            "w", prefix="kernelbench-defect-", suffix=".txt", delete=False, encoding="utf-8"
        ) as file:
            file.write(trace)
    except OSError:
        return HarnessDefect(reason, f"please report it ({DEBUG_VARIABLE}=1 shows its traceback)")
    return HarnessDefect(reason, f"please report it with its traceback, {file.name}")
