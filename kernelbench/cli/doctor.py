"""``kernelbench doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelbench.base.errors import ExitCode
from kernelbench.cli.options import json_option, require_writable, write_json_output

if TYPE_CHECKING:
    from kernelbench.inspection import doctor


@click.command("doctor")
@json_option
def command(json_path: str | None) -> int:
    """Say what works on this machine, and why the rest does not.

    Changes nothing but may build the device probes into the cache. Leaves with exit code 5 only
    if no executor works, so that no step at all can run.

    \b
    Examples:
      kernelbench doctor
      kernelbench doctor --json doctor.json
    """
    from kernelbench.inspection import doctor

    require_writable(json_path)
    found = doctor.examine()
    if json_path is not None:
        write_json_output(json_path, found)
    if json_path != "-":
        _render(found.rows)
        working = [name for name, works in found.executors.items() if works]
        click.echo()
        click.echo(
            f"steps can run here with: {', '.join(working)}"
            if working
            else "nothing can run here: no executor works"
        )
    return int(ExitCode.PASS if found.usable else ExitCode.ENVIRONMENT)


def _render(rows: tuple[doctor.DoctorRow, ...]) -> None:
    from kernelbench.base.console import Text, make_table, out

    styles = {"ok": "green", "warn": "yellow", "missing": "red"}
    table = make_table([("", "left"), ("state", "left"), ("found", "left"), ("do", "left")])
    for row in rows:
        state = Text(row.state, style=styles[row.state])
        table.add_row(row.name, state, Text(row.detail), Text(row.action))
    out.print(table)
