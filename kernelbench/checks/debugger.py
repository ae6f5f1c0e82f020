"""A schedule under gdb: ``kernelbench replay FILE --gdb``.

``python -m kernelbench.checks.debugger FILE`` runs the schedule in this very process, which gdb
holds; the command line becomes gdb.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.checks.replay import Look, job_of, planned_file
from kernelbench.kinds.compiled import symbol_folders

_LIMIT_S = 86400.0  # a person looks
_SETUP = (
    "set breakpoint pending on",
    "set print thread-events off",
    # The runtime's own: the end of a launch that lasts too long, and what becomes a finding.
    "handle SIGURG nostop noprint pass",
    "handle SIGSEGV nostop noprint pass",
    "break kb::emu::trace_finding",
    "run",
)


def command_for(file: Path) -> list[str]:
    """gdb's command line.

    Raises:
        RecordError: If the file is no schedule.
        UsageError: If its step is gone or has changed since.
        EnvironmentProblem: If there is no gdb.
    """
    _, run = planned_file(file)
    gdb = shutil.which("gdb")
    if gdb is None:
        raise EnvironmentProblem("gdb is not installed", "apt install gdb, or dnf install gdb")
    sources = [f"set substitute-path {name} {at}" for name, at in symbol_folders(run.step).items()]
    setup = [part for line in (*sources, *_SETUP) for part in ("-ex", line)]
    module = "kernelbench.checks.debugger"
    return [gdb, "-q", "-nx", *setup, "--args", sys.executable, "-m", module, str(file.resolve())]


def main() -> None:
    """Run the schedule; gdb stops at each finding that is new."""
    from kernelbench.emulator import runtime
    from kernelbench.worker.messages import Reporter
    from kernelbench.worker.replays import run_replay

    runtime.WITHOUT_LOCALS.clear()
    file, run = planned_file(Path(sys.argv[1]))
    job = job_of(run, file, _LIMIT_S, Look(state=True))
    run_replay(job, Reporter(lambda _message: None))


if __name__ == "__main__":
    main()
