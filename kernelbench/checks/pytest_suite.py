"""A suite of pytest's tests, called in this process, whose kernels are checked."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelbench.base.errors import EnvironmentProblem, KernelbenchError, UsageError
from kernelbench.kinds.callables import describe_exception

_NO_TESTS = 5  # pytest.ExitCode.NO_TESTS_COLLECTED
#: Our own plug-in is here before pytest could rewrite it.
_OURS = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"


class _Failures:
    """A plug-in of pytest's that keeps what tests and their files raise, by their names."""

    def __init__(self) -> None:
        self.raised: dict[str, BaseException] = {}

    def pytest_exception_interact(self, node: Any, call: Any) -> None:
        """Called for each failure that is not expected."""
        self.raised[node.nodeid] = call.excinfo.value


def failure_of_tests(path: Path, arguments: Sequence[str]) -> tuple[bool, str]:
    """Call the tests of a file or of a folder, as ``pytest`` does.

    Args:
        path: The file or folder.
        arguments: Pytest's words, behind the path.

    Returns:
        Whether what failed first is an assertion, and what it is in a line; empty if all passed.

    Raises:
        EnvironmentProblem: Without pytest.
        UsageError: If no test is there.
        KernelbenchError: What a test has asked for and is not there.
    """
    if importlib.util.find_spec("pytest") is None:
        raise EnvironmentProblem(f"{path}: pytest calls its tests, and is not installed")
    import pytest

    # Its own processes would have no emulator; its cache would lie in somebody's folder.
    alone = ["-n0"] if importlib.util.find_spec("xdist") is not None else []
    words = ["-q", "-p", "no:cacheprovider", "-W", _OURS, *alone, str(path), *arguments]
    failures = _Failures()
    code = pytest.main(words, plugins=[failures])
    for error in failures.raised.values():
        if isinstance(error, KernelbenchError):
            raise error
    if code == _NO_TESTS:
        raise UsageError(f"{path}: pytest finds no test")
    if not failures.raised:
        return False, f"pytest left with {int(code)}" if code else ""
    name, first = next(iter(failures.raised.items()))
    others = len(failures.raised) - 1
    more = f", and {others} more failed" if others else ""
    asserted = isinstance(first, (AssertionError, pytest.fail.Exception))
    return asserted, f"{name}: {describe_exception(first, Path(name.partition('::')[0]))}{more}"
