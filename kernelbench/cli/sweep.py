"""``kernelbench sweep``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from kernelbench.base import console
from kernelbench.campaign import api
from kernelbench.campaign.campaign_file import OptionFault
from kernelbench.campaign.engine import PieceFault, SweepReport, duration_text
from kernelbench.cli import options

#: Options that are the campaign's to give, or that belong to a terminal.
_NOT_IN_A_FILE = {
    "shape", "results", "json", "no-save", "device", "jobs", "task", "fail-on", "repeat", "replay",
    "minimize", "trace", "at", "gdb", "sarif", "explain",
}  # fmt: skip
_SHOWN = 20


@click.command(
    "sweep",
    epilog="\b\nExamples:\n"
    "  kernelbench sweep moe.yaml --dry-run                 what there is to do, and how long\n"
    "  kernelbench sweep moe.yaml                           a worker for each GPU, or each core\n"
    "  kernelbench sweep moe.yaml --workers 0               in this process, without Dask\n"
    "  kernelbench sweep moe.yaml --scheduler tcp://10.0.0.1:8786",
)
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Of a Dask cluster that is there already; default: one of this machine.",
)
@options.count_option(
    "--workers",
    "Processes on this machine; 0: one piece after another, without Dask.",
    least=0,
    shown="one for each GPU, or for each core",
)
@options.results_option
@click.option("--dry-run", is_flag=True, help="Say what there is to do, and run nothing.")
@options.json_option
def command(file: str, dry_run: bool, json: options.RecordOutput, **asked: Any) -> int:
    """Run the campaign that FILE describes: many runs, comparisons or checks, side by side.

    What is done is kept piece by piece: a sweep that is stopped, by whatever, goes on where it was
    when it is started again. Leaves with 5 if pieces are missing at the end, with 3 if a step is
    not right, or a mutant was not found.
    """
    view = _View(json.people)

    def show(report: SweepReport) -> None:
        view.ended(report)
        json.write(report)

    with options.showing_partial(SweepReport, show), view:
        report = api.sweep(
            file, options=arguments_of, dry_run=dry_run, on_fault=view.fault, observer=view,
            **asked,
        )  # fmt: skip
    if dry_run:
        json.write(report)
        return 0
    show(report)
    return int(api.exit_code_of(report))


def arguments_of(name: str, given: Mapping[str, Any]) -> Sequence[str]:
    """A command's arguments for options by name; OptionFault for an option or value it refuses."""
    found: click.Command = importlib.import_module(f"kernelbench.cli.{name}").command
    known: dict[str, tuple[click.Option, str]] = {}
    for option in found.params:
        if isinstance(option, click.Option):
            known |= {flag.lstrip("-"): (option, flag) for flag in option.opts}
    known = {each: known[each] for each in known if each not in _NOT_IN_A_FILE}
    arguments: list[str] = []
    for option_name, value in given.items():
        if option_name not in known:
            raise OptionFault(
                option_name, f"{name} has no option {option_name!r}: expected {', '.join(known)}"
            )
        option, flag = known[option_name]
        words = _words(option, flag, option_name, value)
        steps = ["a", "b"] if name == "ab" else ["a"]
        try:
            # A command keeps the help option that its first context names.
            found.make_context(name, [*steps, *words], help_option_names=["-h", "--help"])
        except click.ClickException as error:
            raise OptionFault(option_name, error.format_message().rstrip(".")) from None
        arguments += words
    return arguments


def _words(option: click.Option, flag: str, name: str, value: Any) -> list[str]:
    if option.is_flag:
        if type(value) is not bool:
            raise OptionFault(name, f"{name}: expected true or false, found {value!r}")
        if value:
            return [flag]
        return [option.secondary_opts[0]] if option.secondary_opts else []
    values = value if isinstance(value, list) else [value]
    if isinstance(value, dict) or not values or (len(values) > 1 and not option.multiple):
        raise OptionFault(name, f"{name}: expected one value, found {value!r}")
    return [word for each in values for word in (flag, str(each))]


class _View(console.Watching):
    """What a sweep prints."""

    def __init__(self, to: console.Console) -> None:
        self._to = to

    def planned(self, report: SweepReport) -> None:
        """Say how many pieces are left, and about how long they take."""
        left = report.pieces - report.recorded
        self._line(
            f"{report.name}: {report.pieces:,} pieces, {report.recorded:,} recorded already, "
            f"{left:,} to do"
        )
        for reason, number in report.left_out.items():
            self._line(f"  left out, {number:,} shapes: {reason}")
        if left and report.estimate_s is not None:
            at = f"with {report.workers} workers" if report.workers else "one after another"
            self._line(f"  about {duration_text(report.estimate_s)} {at}")
        elif left:
            self._line("  nothing like them was measured yet: no estimate")

    def fault(self, fault: PieceFault) -> None:
        """A piece that a worker did not do."""
        console.warn(f"{fault.host} ({fault.worker}) did not do `{fault.piece}`: {fault.why}")

    def ended(self, report: SweepReport) -> None:
        """Say what was done, what is wrong and what is missing."""
        for title, lines in (
            ("not right", report.wrong),
            ("mutant not found", report.mutants_missed),
            ("missing", [f"{each.piece}: {each.why}" for each in report.missing]),
        ):
            for line in lines[:_SHOWN]:
                self._line(f"{title}: {line}")
            if len(lines) > _SHOWN:
                self._line(f"{title}: and {len(lines) - _SHOWN:,} more (--json has all)")
        if mutants := report.mutants_found + len(report.mutants_missed):
            self._line(f"mutants: {report.mutants_found:,} of {mutants:,} found")
        if report.not_run:
            self._line(f"not run, for want of workers: {report.not_run:,} pieces")
        self._line(
            f"{report.name}: {report.done:,} done now, {report.recorded:,} before, "
            f"{len(report.missing) + report.not_run:,} missing, {len(report.wrong):,} not right, "
            f"{len(report.faults):,} faults of workers, {duration_text(report.seconds)}"
        )

    def _line(self, text: str) -> None:
        self._to.say(text)
