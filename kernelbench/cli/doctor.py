"""``kernelbench doctor``."""

from __future__ import annotations

import click

from kernelbench.base.console import Text, show
from kernelbench.base.errors import ExitCode
from kernelbench.cli.options import RecordOutput, json_option

_STYLES = {
    "ok": "green",
    "warn": "yellow",
    "missing": "red",
    "fault": "bold red",
    "not tried": "dim",
}


@click.command("doctor")
@click.option(
    "--problem",
    metavar="NAME",
    help="Try every hook of a problem instead: of a lineage, an installed one, or FILE.py:NAME.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="SHAPE",
    help="With --problem: try this shape, by name or as FIELD=VALUE:…; repeatable.",
)
@json_option
def command(problem: str | None, shapes: tuple[str, ...], json: RecordOutput) -> int:
    """Say what works on this machine, and why the rest does not.

    Changes nothing but may build the device probes into the cache. Leaves with exit code 5 only
    if no executor works, so that no step at all can run. With --problem it tries the problem's
    hooks, without a step, and leaves with exit code 2 if one is at fault.

    \b
    Examples:
      kernelbench doctor
      kernelbench doctor --json doctor.json
      kernelbench doctor --problem group_gemm --shape u0
      kernelbench doctor --problem problem.py:RMSNorm --shape rows=64:columns=512
    """
    from kernelbench.inspection import doctor

    if problem is not None:
        return _examine_problem(problem, shapes, json)
    if shapes:
        raise click.UsageError("--shape goes with --problem NAME")
    found = doctor.examine()
    json.write(found)
    if not json.alone:
        show(
            [
                {"": row.name, "state": _state(row.state), "found": row.detail, "do": row.action}
                for row in found.rows
            ]
        )
        working = [name for name, works in found.executors.items() if works]
        click.echo()
        click.echo(
            f"steps can run here with: {', '.join(working)}"
            if working
            else "no step can run here: no executor works; .cu and .ptx files need none"
        )
    return int(ExitCode.PASS if found.usable else ExitCode.ENVIRONMENT)


def _examine_problem(name: str, shapes: tuple[str, ...], json: RecordOutput) -> int:
    from kernelbench.inspection import problem_doctor

    found = problem_doctor.examine_problem(name, shapes)
    json.write(found)
    if not json.alone:
        show(
            [
                {found.problem: row.hook, "state": _state(row.state), "found": row.detail}
                for row in found.rows
            ]
        )
        tried = f"tried on {found.device} with {', '.join(found.shapes)}"
        left = f"; left out, as they take long: {', '.join(found.left_out)}"
        click.echo(f"\n{tried}{left if found.left_out else ''}")
        at_fault = [row.hook for row in found.rows if row.state == "fault"]
        click.echo(f"at fault: {', '.join(at_fault)}" if at_fault else "every hook does its part")
    return int(ExitCode.PASS if found.usable else ExitCode.USAGE)


def _state(state: str) -> Text:
    return Text(state, style=_STYLES[state])
