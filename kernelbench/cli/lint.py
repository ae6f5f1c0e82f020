"""``kernelbench lint``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelbench.base.errors import ExitCode
from kernelbench.cli import options

if TYPE_CHECKING:
    from kernelbench.inspection.offsets import OffsetFinding


@click.command("lint", epilog="\b\nExamples:\n  kernelbench lint m08\n  kernelbench lint v01..v07")
@options.steps_argument
def command(steps: tuple[str, ...]) -> int:
    """Look in each compiled STEP for offsets that only large shapes make wrong.

    It reads the code with libclang and runs nothing. Found is a product of three sizes or more that
    is computed in 32 bits and then widened, added to a pointer or used as a pointer's subscript.
    Leaves with 3 if anything was found.
    """
    from kernelbench.base import console
    from kernelbench.base.console import Text, out
    from kernelbench.inspection import offsets
    from kernelbench.inspection.by_kind import choose_steps
    from kernelbench.project.context import Context

    chosen, left_out = choose_steps(
        Context.find().lineages.select(steps),
        lambda step: step.compiled,
        lambda step: f"{step.in_words}; lint reads steps of kind `step`",
    )
    for line in left_out:
        console.warn(f"left out: {line}")
    any_found = False
    with console.Status() as status:
        for step in chosen:
            status(f"{step.name}: reading")
            found = offsets.find_offsets(step)
            any_found = any_found or bool(found)
            none = "no 32-bit product of three sizes"
            summary = f"32-bit products: {len(found)}" if found else none
            style = "bold red" if found else "bold green"
            out.print(Text.assemble((f"{step.name}  ", "bold"), (summary, style)))
            for each in found:
                out.say(f"  {_described(each)}")
    return int(ExitCode.INCORRECT if any_found else ExitCode.PASS)


def _described(found: OffsetFinding) -> str:
    from kernelbench.project.error_attribution import shown_path

    where = f" in line {found.used_line}" if found.used_line is not None else ""
    return (
        f"{shown_path(found.file)}:{found.line}: {found.product}: {found.factors} factors in "
        f"{found.bits} bits, {found.use}{where}; {found.remedy}"
    )
