"""``kernelbench check``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, Interrupted, KernelbenchError, UsageError
from kernelbench.base.json_file import write_json
from kernelbench.checks import api, debugger, repeat, replay
from kernelbench.checks.file_kinds import is_file_to_check
from kernelbench.checks.report import CheckReport
from kernelbench.checks.sarif import sarif_of
from kernelbench.cli import check_view, options
from kernelbench.emulator.settings import MAX_SMS, SHARED_BYTES
from kernelbench.machine.toolchain import cpu_count
from kernelbench.runs.settings import MEASURING


class _Numbers(click.ParamType[tuple[int, ...]]):
    """Positive numbers with commas between."""

    name = "numbers"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        """The numbers, each once, in the order given."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = [int(part) for part in str(value).split(",")]
        except ValueError:
            numbers = []
        if not numbers or not all(1 <= number <= MAX_SMS for number in numbers):
            self.fail(f"expected numbers from 1 to {MAX_SMS}, found {value!r}", param, ctx)
        return tuple(dict.fromkeys(numbers))


class _Seconds(click.ParamType[float]):
    """A duration: ``90``, ``90s`` or ``1.5m``; 0 is no limit."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds."""
        if isinstance(value, float):
            return value
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", str(value).strip())
        if match is None:
            self.fail(f"expected a time such as 60s or 5m, found {value!r}", param, ctx)
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


class _Allowance(click.ParamType[tuple[str, str]]):
    """``ID=reason``."""

    name = "allowance"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """The identity and the reason."""
        if isinstance(value, tuple):
            return value
        identity, _, reason = str(value).partition("=")
        return identity.strip(), reason.strip()


@click.command(
    "check",
    epilog="\b\nExamples:\n"
    "  kernelbench check v07\n"
    "  kernelbench check v01..v07 --schedules 200 --jobs 2\n"
    "  kernelbench check v07 --shape u1 --sms 3 --seed 1234   repeat what was found\n"
    "  kernelbench check v07 --minimize schedules              then --replay schedules/FILE\n"
    "  kernelbench check --repeat results/cpu-…/checks/ID.json.gz\n"
    "  kernelbench check k.ptx                                 launched as k.toml says\n"
    "  kernelbench check my_script.py --arch 90                its Triton or CuTe DSL kernels\n"
    "  kernelbench check submission.py --task DIR              called by the task's tests",
)
@options.optional_steps_argument
@options.check_shape_option
@click.option(
    "--schedules",
    type=click.IntRange(min=1),
    default=None,
    show_default=f"at most {api.SCHEDULES}",
    help="Schedules for each shape, input class and number of SMs.",
)
@click.option(
    "--budget",
    "budget_s",
    type=_Seconds(),
    default=None,
    metavar="SECONDS",
    show_default=f"{api.BUDGET_S:g}s, none with --schedules",
    help="Time for each step, about, such as 60s or 5m: all shapes and SMs once, then in rounds.",
)
@click.option(
    "--sms",
    type=_Numbers(),
    default=",".join(map(str, api.SMS)),
    show_default=True,
    help="Numbers of SMs to emulate, with commas between.",
)
@click.option(
    "--inputs",
    multiple=True,
    metavar="CLASS|all",
    help="Input class, repeatable. Default: the problem's first.",
)
@click.option(
    "--sequence/--no-sequence",
    default=True,
    show_default=True,
    help="Also make calls in which values, addresses and shapes change, and two without a wait.",
)
@options.seed_option("inputs and schedules")
@click.option(
    "--arch",
    type=click.Choice(tuple(map(str, SHARED_BYTES))),
    default="90",
    show_default=True,
    callback=lambda _context, _parameter, value: int(value),
    help="What Triton and nvcc compile the kernels of a file for.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    default=cpu_count,
    show_default="one per core",
    help="Shapes to check at the same time.",
)
@click.option(
    "--max-findings",
    type=click.IntRange(min=1),
    default=api.MAX_FINDINGS,
    show_default=True,
    help="Different findings to keep and show per shape.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse what rests on an assumption of the emulator beyond PTX's text.",
)
@click.option(
    "--allow",
    type=_Allowance(),
    multiple=True,
    metavar="ID=REASON",
    help="Let a finding be, by its identity; repeatable.",
)
@options.task_option
@options.timeout_option(MEASURING.timeout_s, "one schedule counts as hung")
@options.rounding_option
@click.option(
    "--repeat",
    "repeat_file",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="RECORD",
    help="Run again exactly what a saved check ran; takes no STEP.",
)
@click.option(
    "--minimize",
    "minimize_to",
    type=click.Path(file_okay=False),
    default=None,
    metavar="FOLDER",
    help="Write the shortest schedule that shows each finding into this folder.",
)
@click.option(
    "--replay",
    "replay_from",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="FILE",
    help="Run such a schedule, as often as --schedules says (once); takes no STEP.",
)
@click.option(
    "--trace",
    "trace_to",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="FILE",
    help="Write the first finding's schedule for ui.perfetto.dev: a track for each warp and unit.",
)
@click.option(
    "--at",
    "state",
    is_flag=True,
    help="Say what a debugger would at the first finding: barriers, last operations.",
)
@click.option(
    "--gdb", is_flag=True, help="With --replay: run it under gdb, which stops at the finding."
)
@click.option(
    "--sarif",
    "sarif_to",
    type=click.Path(dir_okay=False),
    default=None,
    metavar="FILE",
    help="Also write the findings as SARIF 2.1.0, for code scanning.",
)
@click.option("--no-save", is_flag=True, help="Do not write to the results folder.")
@options.results_option
@options.fail_on_option("skipped")
@options.json_option
def command(
    steps: tuple[str, ...],
    shapes: tuple[str, ...],
    no_save: bool,
    fail_on: tuple[str, ...],
    json_path: str | None,
    **asked: Any,
) -> int:
    """Look for hangs, races and misused barriers in each compiled STEP, on the CPU.

    Runs the step in the emulator under many seeded schedules and compares the bits of every
    result; then makes calls in sequence, of which each keeps something of the one before. A shape
    ends at the first wrong result or finding that ends a launch. Leaves with 3 if anything was
    found, with 5 if every shape was skipped. Also says which branches of the step no schedule has
    taken.

    A STEP may also be a PTX file, launched as the TOML file beside it says, a CUDA program, or a
    script: its Triton and CuTe DSL kernels and those of its torch extensions (load_inline) run on
    the CPU, each launch under several schedules. A submission is called by the tests of the task in
    its folder, or in that of --task.
    """
    asked["timeout_s"] = asked.pop("timeout")
    more = _More(**{each.name: asked.pop(each.name) for each in fields(_More)})
    for path in (json_path, more.trace_to, more.sarif_to):
        options.require_writable(path)
    view = check_view.View(console.err if json_path == "-" else console.out, asked["max_findings"])
    if more.from_file:
        if steps or shapes:
            raise UsageError("--repeat and --replay take step and shape from their file, name none")
        return _from_file(view, more, asked, json_path)
    files = any(map(is_file_to_check, steps))
    _refuse(more, steps, files)
    if files:
        return _files(view, steps, more, asked, json_path)
    asked["allow"] = dict(asked["allow"])
    try:
        with console.Status() as status:
            report = api.check(
                steps,
                shapes,
                save=not no_save,
                command=options.command_line(),
                on_plan=view.head,
                on_progress=status,
                on_saved=view.keep_path,
                on_warning=console.warn,
                **asked,
            )
    except (KernelbenchError, Interrupted) as error:
        if isinstance(error.partial, CheckReport):
            _show(view, error.partial, json_path)
        raise
    _show(view, report, json_path)
    _look_closer(view, report, more, asked["timeout_s"])
    if report.failures:
        return int(ExitCode.INCORRECT)
    return int(options.code_of_skipped(len(report.skipped), len(report.rows()), fail_on))


@dataclass(frozen=True)
class _More:
    """What the command line has beside :func:`kernelbench.check`."""

    repeat_file: str | None
    replay_from: str | None
    minimize_to: str | None
    trace_to: str | None
    sarif_to: str | None
    state: bool
    gdb: bool
    arch: int
    task: str | None

    @property
    def from_file(self) -> bool:
        """Whether a file says what to run."""
        return self.repeat_file is not None or self.replay_from is not None

    def look(self, times: int) -> replay.Look:
        """What to see of a schedule."""
        return replay.Look(Path(self.trace_to) if self.trace_to else None, self.state, times)


def _refuse(more: _More, steps: tuple[str, ...], files: bool) -> None:
    """Say which options do not go together."""
    if more.gdb:
        raise UsageError(
            "--gdb goes with --replay FILE", "`check STEP --minimize FOLDER` writes such files"
        )
    if not steps:
        raise UsageError("no STEP given", "`kernelbench list` shows them")
    if more.task is not None and not files:
        raise UsageError(
            "--task goes with submissions that launch kernels of their own",
            "`kernelbench run STEP --task DIR` checks the results of any",
        )


def _from_file(
    view: check_view.View, more: _More, asked: dict[str, Any], json_path: str | None
) -> int:
    if more.repeat_file is not None:
        return _repeat(view, Path(more.repeat_file), asked["jobs"], json_path)
    file = Path(more.replay_from or "")
    if more.gdb:
        command = debugger.command_for(file)
        os.execvp(command[0], command)
    look = more.look(asked["schedules"] or 1)
    with console.Status() as status:
        found = replay.replay_file(file, look, asked["timeout_s"], status)
    view.replayed(found)
    view.looked(found, look)
    return int(ExitCode.INCORRECT if found.shown else ExitCode.PASS)


def _files(
    view: check_view.View,
    names: tuple[str, ...],
    more: _More,
    asked: dict[str, Any],
    json_path: str | None,
) -> int:
    from kernelbench.cli import check_files

    try:
        report = check_files.checked(
            names, view, asked | {"arch": more.arch, "task": more.task or ""}
        )
    except Interrupted as error:
        if isinstance(error.partial, CheckReport):
            _show(view, error.partial, json_path)
        raise
    _show(view, report, json_path)
    if more.sarif_to is not None:
        paths = {Path(name).name: Path(name) for name in names}
        write_json(Path(more.sarif_to), sarif_of(report, paths))
    return int(ExitCode.INCORRECT if report.failures else ExitCode.PASS)


def _look_closer(view: check_view.View, report: CheckReport, more: _More, timeout_s: float) -> None:
    """What is made of a report's findings."""
    if more.sarif_to is not None:
        write_json(Path(more.sarif_to), sarif_of(report))
    look = more.look(1)
    with console.Status() as status:
        if more.minimize_to is not None:
            for found in replay.shorten_findings(report, Path(more.minimize_to), timeout_s, status):
                view.shortened(found)
        if look.trace or look.state:
            view.looked(replay.look_at_report(report, look, timeout_s, status), look)


def _repeat(view: check_view.View, file: Path, jobs: int, json_path: str | None) -> int:
    with console.Status() as status:
        report, differences = repeat.repeat_check(
            file,
            jobs=jobs,
            command=options.command_line(),
            on_plan=view.head,
            on_progress=status,
        )
    _show(view, report, json_path)
    view.repeated(differences)
    return int(ExitCode.INCORRECT if report.failures else ExitCode.PASS)


def _show(view: check_view.View, report: CheckReport, json_path: str | None) -> None:
    view.results(report.steps, report.unmatched)
    if json_path is not None:
        options.write_json_output(json_path, report)
