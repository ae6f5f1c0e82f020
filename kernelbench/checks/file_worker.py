"""A process that checks one file: PTX with its launches, a CUDA program, a script, a submission.

``python -m kernelbench.checks.file_worker ASKED ANSWER``: both are JSON files. What a script prints
goes to stderr. A process of its own, since a script may do what it likes, and a kernel may crash.
"""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelbench.base import schema
from kernelbench.base.bytecode import no_bytecode
from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.base.json_file import read_json, write_json
from kernelbench.base.parent_process import end_with_parent
from kernelbench.checks.task_calls import wrong_by_task
from kernelbench.executors.callables import describe_exception
from kernelbench.ptx.cuda_program import CudaProgram
from kernelbench.ptx.launch_file import read_launches, run_launches
from kernelbench.ptx.report import Launched
from kernelbench.ptx.script_session import script_emulation

#: How a file ended: ``usage`` and ``environment`` are errors of the user and of the machine.
FileEnd = Literal["done", "wrong", "fault", "usage", "environment"]


@dataclass(frozen=True)
class FileAsked:
    """What to do.

    Attributes:
        schedules: Of each launch.
        arch: What Triton compiles a script for.
        limit_s: Seconds after which one schedule counts as hung.
        task: Folder of the GPU MODE task that a submission solves; empty for a script.
    """

    file: str
    schedules: int
    seed: int
    sms: int
    arch: int
    limit_s: float
    task: str = ""


@dataclass(frozen=True)
class FileAnswer:
    """What came of it.

    Attributes:
        reason: One line, of an end that is not ``done``; hint: what to do, empty if unknown.
    """

    launches: tuple[Launched, ...]
    end: FileEnd = "done"
    reason: str = ""
    hint: str = ""


def answer_to(asked: FileAsked) -> FileAnswer:
    """Do it, in this process."""
    launches: list[Launched] = []
    file = Path(asked.file)
    try:
        if file.suffix == ".ptx":
            launches += run_launches(
                file, read_launches(file), check=asked.schedules, seed=asked.seed, sms=asked.sms,
                limit_s=asked.limit_s,
            )  # fmt: skip
            return FileAnswer(tuple(launches))
        if file.suffix == ".cu":
            return _program(file, asked, launches)
        return _script(file, asked, launches)
    except KernelbenchError as error:
        end: FileEnd = "usage" if isinstance(error, UsageError) else "environment"
        return FileAnswer(tuple(launches), end, error.message, error.hint or "")


def _program(file: Path, asked: FileAsked, launches: list[Launched]) -> FileAnswer:
    program = CudaProgram(
        file, asked.arch, check=asked.schedules, seed=asked.seed, sms=asked.sms,
        limit_s=asked.limit_s,
    )  # fmt: skip
    launches_of = program.launches
    try:
        status = program.run()
    finally:
        launches += launches_of
    if status:
        return FileAnswer(tuple(launches), "wrong", f"main returned {status}")
    if program.unnoticed:
        return FileAnswer(tuple(launches), "fault", program.unnoticed)
    return FileAnswer(tuple(launches))


def _script(file: Path, asked: FileAsked, launches: list[Launched]) -> FileAnswer:
    sys.argv = [str(file)]
    sys.path.insert(0, str(file.parent.resolve()))
    end: FileEnd = "done"
    reason = ""
    with script_emulation(
        asked.arch, check=asked.schedules, seed=asked.seed, sms=asked.sms, limit_s=asked.limit_s
    ) as session:
        try:
            if asked.task:
                reason = wrong_by_task(file, Path(asked.task), asked.seed)
                end = "wrong" if reason else "done"
            else:
                with no_bytecode():
                    runpy.run_path(str(file), run_name="__main__")
        except KernelbenchError:
            raise
        except SystemExit as error:
            if error.code not in (None, 0):
                end, reason = "fault", f"it left with {error.code}"
        except Exception as error:
            end = "wrong" if isinstance(error, AssertionError) else "fault"
            reason = describe_exception(error, file)
        finally:
            launches += session.launches
    if end == "done" and session.unnoticed:
        end, reason = "fault", session.unnoticed
    return FileAnswer(tuple(launches), end, reason)


def main() -> None:
    """Answer to the file that is named first in the one named second."""
    end_with_parent()
    asked, answer = map(Path, sys.argv[1:])
    request = schema.decode(FileAsked, read_json(asked))
    # What the emulator's own libraries print goes the same way.
    os.dup2(2, 1)
    write_json(answer, answer_to(request))


if __name__ == "__main__":
    main()
