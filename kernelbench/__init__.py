"""kernelbench: check, time and compare the steps of an optimization lineage of GPU kernels.

The library is four functions, :func:`run`, :func:`ab`, :func:`check` and :func:`load`, what they
return, the errors that they raise, :class:`Observer`, which is told what goes on meanwhile,
:class:`TensorProblem`, which a problem of one's own is written as, and :func:`triton_emulation`,
for Triton's kernels without a GPU. Nothing of it is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernelbench.base.version import __version__

if TYPE_CHECKING:
    from kernelbench.base.errors import (
        EnvironmentProblem,
        IncorrectError,
        Interrupted,
        KernelbenchError,
        RecordError,
        UsageError,
    )
    from kernelbench.base.observer import Observer
    from kernelbench.checks.api import check
    from kernelbench.checks.report import CheckReport
    from kernelbench.compare.api import ab
    from kernelbench.compare.comparer import ArmFailure
    from kernelbench.compare.comparison import Comparison, NotTimed
    from kernelbench.emulator.settings import Emulation
    from kernelbench.executors.api import load
    from kernelbench.problems.tensor.problem import TensorProblem
    from kernelbench.project.problem import Work
    from kernelbench.ptx.hosts.triton_session import triton_emulation
    from kernelbench.records.run_record import Result, RunRecord
    from kernelbench.runs.api import run

__all__ = [
    "ArmFailure", "CheckReport", "Comparison", "Emulation", "EnvironmentProblem", "IncorrectError",
    "Interrupted", "KernelbenchError", "NotTimed", "Observer", "RecordError", "Result", "RunRecord",
    "TensorProblem", "UsageError", "Work", "__version__", "ab", "check", "load", "run",
    "triton_emulation",
]  # fmt: skip

#: Where each name is; a test holds it and the imports for type checkers together.
_MODULES = {
    "ArmFailure": "compare.comparer",
    "CheckReport": "checks.report",
    "Comparison": "compare.comparison",
    "Emulation": "emulator.settings",
    "EnvironmentProblem": "base.errors",
    "IncorrectError": "base.errors",
    "Interrupted": "base.errors",
    "KernelbenchError": "base.errors",
    "NotTimed": "compare.comparison",
    "Observer": "base.observer",
    "RecordError": "base.errors",
    "Result": "records.run_record",
    "RunRecord": "records.run_record",
    "TensorProblem": "problems.tensor.problem",
    "UsageError": "base.errors",
    "Work": "project.problem",
    "ab": "compare.api",
    "check": "checks.api",
    "load": "executors.api",
    "run": "runs.api",
    "triton_emulation": "ptx.hosts.triton_session",
}


if not TYPE_CHECKING:
    # Type checkers read the imports above; to them this would be a module with any name.

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
