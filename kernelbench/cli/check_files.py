"""``kernelbench check`` of files that are no steps: PTX, and scripts with Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from kernelbench.base import console
from kernelbench.base.errors import UsageError
from kernelbench.checks import files
from kernelbench.checks.file_kinds import is_file_to_check
from kernelbench.checks.report import CheckReport
from kernelbench.cli import check_view, options

#: Options that belong to steps, by parameter.
_OF_STEPS = {
    "shapes": "--shape", "inputs": "--inputs", "budget_s": "--budget", "strict": "--strict",
    "minimize_to": "--minimize", "trace_to": "--trace", "state": "--at", "gdb": "--gdb",
    "mma_rounding": "--mma-rounding", "jobs": "--jobs", "sequence": "--no-sequence",
}  # fmt: skip


def checked(names: Sequence[str], view: check_view.View, asked: dict[str, Any]) -> CheckReport:
    """Check files, as far as the command line says how.

    Raises:
        UsageError: For a step among them, and for an option that belongs to steps.
    """
    for name in names:
        if not is_file_to_check(name):
            raise UsageError(f"{name} is a step, and others are files", "check them one by one")
    given = _given()
    for parameter, option in _OF_STEPS.items():
        if parameter in given:
            raise UsageError(f"{option} belongs to steps: {names[0]} is a file")
    sms = asked["sms"] if "sms" in given else ()
    if len(sms) > 1:
        raise UsageError("--sms: one number for a file", "a script asks once how many there are")
    shown = [Path(name).name for name in names]
    with console.Status() as status:
        return files.check_files(
            names,
            schedules=asked["schedules"],
            seed=asked["seed"],
            sms=sms[0] if sms else None,
            arch=asked["arch"],
            max_findings=asked["max_findings"],
            allow=dict(asked["allow"]),
            timeout_s=asked["timeout_s"],
            task=asked["task"],
            command=options.command_line(),
            on_progress=status,
            on_request=lambda request: view.file_head(shown, request),
        )


def _given() -> set[str]:
    """The parameters that the user has typed."""
    context = click.get_current_context()
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
