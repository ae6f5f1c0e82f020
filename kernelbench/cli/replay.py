"""``kernelbench replay``."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode
from kernelbench.base.json_file import read_json
from kernelbench.checks import api, debugger, replay
from kernelbench.checks.report import CHECK_SCHEMA
from kernelbench.cli import check_view, options
from kernelbench.cli.check import show_report
from kernelbench.machine.toolchain import cpu_count
from kernelbench.runs.settings import MEASURING


@click.command(
    "replay",
    epilog="\b\nExamples:\n"
    "  kernelbench replay schedules/v07-u1-hang-0123456789.json --times 10\n"
    "  kernelbench replay schedules/v07-u1-hang-0123456789.json --gdb\n"
    "  kernelbench replay results/cpu-…/checks/ID.json.gz",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@options.count_option("--times", "How often to run a schedule.", default=1)
@click.option(
    "--trace",
    "trace_to",
    type=options.output_file,
    metavar="FILE",
    help="Write the schedule for ui.perfetto.dev: a track for each warp and unit.",
)
@click.option("--at", "state", is_flag=True, help="Say what a debugger would at the finding.")
@click.option("--gdb", is_flag=True, help="Run the schedule under gdb, which stops at the finding.")
@options.count_option(
    "--jobs",
    "Of a saved check: shapes to check at the same time.",
    most=256,
    default=cpu_count,
    shown="one per core",
)
@options.timeout_option(MEASURING.timeout_s, "a schedule counts as hung")
@options.json_option
def command(
    file: Path,
    times: int,
    trace_to: str | None,
    state: bool,
    gdb: bool,
    jobs: int,
    timeout_s: float,
    json: options.RecordOutput,
) -> int:
    """Run again the schedule in FILE, which check --minimize wrote, or all that a saved check ran.

    A step that has changed since is refused. Leaves with 3 if the schedule shows its finding, or a
    row of the check is not right. --json writes the report of a check that was run again.
    """
    view = check_view.View(json.people, api.MAX_FINDINGS)
    document = read_json(file)
    if isinstance(document, dict) and document.get("schema") == CHECK_SCHEMA:
        with view:
            report, differences = replay.repeat_check(
                file, jobs=jobs, command=options.command_line(), observer=view
            )
        show_report(view, report, json)
        view.repeated(differences)
        return int(ExitCode.INCORRECT if report.failures else ExitCode.PASS)
    if gdb:
        words = debugger.command_for(file)
        os.execvp(words[0], words)
    look = replay.Look(Path(trace_to) if trace_to else None, state, times)
    with console.Status() as status:
        found = replay.replay_file(file, look, timeout_s, status)
    view.replayed(found)
    view.looked(found, look)
    return int(ExitCode.INCORRECT if found.shown else ExitCode.PASS)
