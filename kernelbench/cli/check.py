"""``kernelbench check``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, UsageError
from kernelbench.build.compile_commands import sources_of_target
from kernelbench.checks import api, replay
from kernelbench.checks.file_kinds import is_file_to_check
from kernelbench.checks.report import CheckReport
from kernelbench.checks.sarif import sarif_of
from kernelbench.cli import check_view, options
from kernelbench.cli.options import Seconds
from kernelbench.emulator.settings import MAX_SMS
from kernelbench.machine.arch import EMULATED_ARCHES
from kernelbench.runs.settings import MEASURING

_ARGUMENTS = "kernelbench.arguments"
_ELSEWHERE = "A program's arguments go after `--`, other flags of nvcc in --nvcc='…'"


def _numbers(value: str) -> tuple[int, ...]:
    """Positive numbers with commas between, each once, in the order given."""
    try:
        numbers = [int(part) for part in value.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(1 <= number <= MAX_SMS for number in numbers):
        raise click.BadParameter(f"expected numbers from 1 to {MAX_SMS}, found {value!r}")
    return tuple(dict.fromkeys(numbers))


def _allowance(value: str) -> tuple[str, str]:
    """The identity and the reason of ``ID=reason``."""
    identity, _, reason = value.partition("=")
    return identity.strip(), reason.strip()


def _emulated_arch(value: str | int) -> int:
    """90, where ``90``, ``sm_90`` or ``90a`` is something that the emulator stands for."""
    digits = str(value).removeprefix("sm_").rstrip("af")
    if not digits.isdecimal() or int(digits) not in EMULATED_ARCHES:
        known = ", ".join(map(str, EMULATED_ARCHES))
        raise click.BadParameter(
            f"the emulator has no sm_{digits}: it stands for {known}, whose instructions it "
            "knows; choose the nearest that your kernel can be compiled for"
        )
    return int(digits)


class _WithArguments(click.Command):
    """A command whose words behind ``--`` are somebody else's arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep them, and parse the others."""
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[_ARGUMENTS] = tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, args[:at])
        except click.NoSuchOption as error:
            if get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75):
                raise
            raise click.UsageError(f"{error.message} {_ELSEWHERE}", ctx) from None


@click.command(
    "check",
    cls=_WithArguments,
    epilog="\b\nExamples:\n"
    "  kernelbench check v07\n"
    "  kernelbench check v01..v07 --schedules 200 --jobs 2\n"
    "  kernelbench check v07 --shape u1 --sms 3 --seed 1234   repeat what was found\n"
    "  kernelbench check v07 --minimize schedules              then replay schedules/FILE\n"
    "  kernelbench check k.ptx                                 launched as k.toml says\n"
    "  kernelbench check a.cu b.cpp -I include -D N=64 -- 1024 a program and its arguments\n"
    "  kernelbench check ./program -- 1024                     what nvcc has built, with PTX\n"
    "  kernelbench check my_script.py --arch 90                its Triton or CuTe DSL kernels\n"
    "  kernelbench check submission.py --task DIR              called by the task's tests",
)
@options.optional_steps_argument
@options.shape_option("Default: a few small ones of the problem's choice.")
@options.count_option(
    "--schedules",
    "Schedules for each shape, input class and number of SMs.",
    shown=f"at most {api.SCHEDULES}; {api.FILE_SCHEDULES} for a file",
)
@click.option(
    "--budget",
    "budget_s",
    type=Seconds(),
    metavar="SECONDS",
    show_default=f"{api.BUDGET_S:g}s, none with --schedules",
    help="Time for each step, about, such as 60s or 5m: all shapes and SMs once, then in rounds.",
)
@click.option(
    "--sms",
    type=_numbers,
    metavar="NUMBERS",
    show_default=f"{','.join(map(str, api.SMS))}; {api.FILE_SMS[0]} for a file",
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
    help="Also make calls in which values, addresses and shapes change, and two without a wait.",
)
@options.seed_option("inputs and schedules")
@click.option(
    "--arch",
    type=_emulated_arch,
    default=90,
    metavar="|".join(map(str, EMULATED_ARCHES)),
    help="What Triton and nvcc compile the kernels of a file for.",
)
@options.count_option(
    "--gpus", "GPUs of the kind that a CUDA program has.", most=api.MOST_GPUS, default=1
)
@click.option("-I", "headers", multiple=True, metavar="DIR", help="As nvcc's; repeatable.")
@click.option("-D", "macros", multiple=True, metavar="NAME[=VALUE]", help="As nvcc's; repeatable.")
@click.option("-L", "folders", multiple=True, metavar="DIR", help="As nvcc's; repeatable.")
@click.option("-l", "libraries", multiple=True, metavar="NAME", help="As nvcc's; repeatable.")
@click.option("-Xcompiler", "of_host", multiple=True, metavar="FLAG", help="As nvcc's; repeatable.")
@click.option(
    "--nvcc",
    "others",
    multiple=True,
    metavar="FLAGS",
    help="Other flags of nvcc for a program, such as '-std=c++20 --use_fast_math'.",
)
@click.option(
    "--build",
    metavar="COMMAND",
    help="Build with this command ('make foo'), and check what its nvcc links, or STEP: ./foo, or "
    "a script that imports the extensions of a setup.py.",
)
@click.option(
    "--compile-commands",
    "database",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Take sources and flags from a compile_commands.json, as CMake writes it.",
)
@click.option(
    "--target",
    metavar="NAMES",
    default="",
    help="Whose sources, with --compile-commands; with commas between.",
)
@options.count_option("--jobs", "Shapes to check at the same time.", most=256, shown="one per core")
@options.count_option(
    "--max-findings", "Different findings to keep and show per shape.", default=api.MAX_FINDINGS
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse what rests on an assumption of the emulator beyond PTX's text.",
)
@click.option(
    "--allow",
    type=_allowance,
    multiple=True,
    metavar="ID=REASON",
    help="Let a finding be, by its identity; repeatable.",
)
@options.task_option
@options.timeout_option(MEASURING.timeout_s, "one schedule counts as hung")
@options.rounding_option
@click.option(
    "--minimize",
    "minimize_to",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Write the shortest schedule that shows each finding into this folder (steps only).",
)
@click.option(
    "--trace",
    "trace_to",
    type=options.output_file,
    metavar="FILE",
    help="Write the first finding's schedule for ui.perfetto.dev, by warp and unit (steps only).",
)
@click.option(
    "--at",
    "state",
    is_flag=True,
    help="Say what a debugger would at the first finding: barriers, operations (steps only).",
)
@click.option(
    "--sarif",
    "sarif_to",
    type=options.output_file,
    metavar="PATH|-",
    help="Also write the findings as SARIF 2.1.0, for code scanning; '-' is stdout.",
)
@click.option(
    "--output-format",
    "layout",
    type=click.Choice((*check_view.LAYOUTS, "json", "sarif")),
    default="full",
    show_default=True,
    help="Blocks with excerpts; a line for each finding; annotations of GitHub Actions; or what "
    "--json - or --sarif - print.",
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
    json: options.RecordOutput,
    layout: str,
    **asked: Any,
) -> int:
    """Look for hangs, races and misused barriers in each compiled STEP, on the CPU.

    Runs the step in the emulator under many seeded schedules and compares the bits of every
    result; then makes calls in sequence, of which each keeps something of the one before. A shape
    ends at the first wrong result or finding that ends a launch. Leaves with 3 if anything was
    found, with 5 if every shape was skipped. Also says which branches of the step no schedule has
    taken.

    A STEP may also be a PTX file, launched as the TOML file beside it says, a CUDA program (its
    sources, or what nvcc has built of them with PTX, as ./program), or a script: its Triton and
    CuTe DSL kernels and those of its torch extensions (load_inline) run on the CPU, each launch
    under several schedules. A file or folder of tests is called by pytest. Words behind -- are
    the program's, or pytest's. A submission is called by the tests
    of the task in its folder, or in that of --task.
    """
    asked["task"] = asked["task"] or ""
    asked["flags"] = _flags_of_nvcc(asked)
    asked["arguments"] = click.get_current_context().meta[_ARGUMENTS]
    asked["allow"] = dict(asked["allow"])
    after = _After(**{each.name: asked.pop(each.name) for each in fields(_After)})
    json = options.RecordOutput(json.path or ("-" if layout == "json" else None))
    sarif_to = after.sarif_to or ("-" if layout == "sarif" else None)
    if json.path == sarif_to == "-":
        raise UsageError("JSON and SARIF cannot both go to stdout", "write one to a file")
    steps = _with_sources_of_target(steps, asked)
    if not steps and not asked["build"]:
        raise UsageError("no STEP or file given", "`kernelbench list` shows the steps")
    files = {Path(name).name: Path(name) for name in steps if is_file_to_check(name)}
    after.refuse_beside(files)
    to = console.err if sarif_to == "-" else json.people
    shown = layout if layout in check_view.LAYOUTS else "full"
    view = check_view.View(to, asked["max_findings"], layout=shown)
    with options.showing_partial(CheckReport, lambda left: show_report(view, left, json)), view:
        report = api.check(
            steps, shapes, save=not no_save, command=options.command_line(), observer=view,
            **asked,
        )  # fmt: skip
    show_report(view, report, json)
    if sarif_to is not None:
        options.write_json_output(sarif_to, sarif_of(report, files))
    after.look_closer(view, report, steps, asked["timeout_s"])
    if report.failures:
        return int(ExitCode.INCORRECT)
    return int(options.code_of_skipped(len(report.skipped), len(report.rows()), fail_on))


def _flags_of_nvcc(asked: dict[str, Any]) -> tuple[str, ...]:
    """What the options of nvcc were given, as nvcc takes it; they are taken away."""
    attached = {"headers": "-I", "macros": "-D", "folders": "-L", "libraries": "-l"}
    flags = [f"{option}{value}" for name, option in attached.items() for value in asked.pop(name)]
    flags += [word for value in asked.pop("of_host") for word in ("-Xcompiler", value)]
    return (*flags, *(word for value in asked.pop("others") for word in shlex.split(value)))


def _with_sources_of_target(steps: tuple[str, ...], asked: dict[str, Any]) -> tuple[str, ...]:
    """What is checked, with the sources of ``--target``; their flags go before those given."""
    database, target = asked.pop("database"), asked.pop("target")
    if database is None:
        if target:
            raise UsageError("--target names no file to look in", "give --compile-commands FILE")
        return steps
    sources, flags = sources_of_target(Path(database), target)
    asked["flags"] = (*flags, *asked["flags"])
    return (*steps, *(each for each in sources if each not in steps))


@dataclass(frozen=True)
class _After:
    """What the command line makes of a report's findings, beside :func:`kernelbench.check`."""

    minimize_to: str | None
    trace_to: str | None
    sarif_to: str | None
    state: bool

    def refuse_beside(self, files: Iterable[str]) -> None:
        """Refuse what looks at schedules of steps, where files are checked."""
        given = {"--minimize": self.minimize_to, "--trace": self.trace_to, "--at": self.state}
        for file in files:
            for option, value in given.items():
                if value:
                    raise UsageError(f"{option} belongs to steps: {file} is a file")

    def look_closer(
        self, view: check_view.View, report: CheckReport, steps: tuple[str, ...], timeout_s: float
    ) -> None:
        """Make schedules shorter, and look at the first finding's."""
        look = replay.Look(Path(self.trace_to) if self.trace_to else None, self.state)
        with console.Status() as status:
            if self.minimize_to is not None:
                folder = Path(self.minimize_to)
                for found in replay.shorten_findings(report, steps, folder, timeout_s, status):
                    view.shortened(found)
            if look.trace or look.state:
                seen = replay.look_at_report(report, steps, look, timeout_s, status)
                view.looked(seen, look)


def show_report(view: check_view.View, report: CheckReport, json: options.RecordOutput) -> None:
    """Print a report, and write it as JSON if that is asked for."""
    view.results(report.steps, report.unmatched)
    json.write(report)
