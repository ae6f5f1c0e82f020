"""``kernelbench list``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kernelbench.cli import options
from kernelbench.project.registry import STATUSES

if TYPE_CHECKING:
    from kernelbench.lineages import listing
    from kernelbench.problems.task_folder import TaskContext


@click.command("list")
@options.optional_steps_argument
@click.option("--lineage", metavar="NAME", help="Only this lineage.")
@click.option("--status", type=click.Choice(STATUSES), help="Only steps in this status.")
@click.option("--all", "every", is_flag=True, help="Variants and failed experiments, too.")
@options.task_option
@options.json_option
def command(
    steps: tuple[str, ...],
    lineage: str | None,
    status: str | None,
    every: bool,
    task: str | None,
    json: options.RecordOutput,
) -> None:
    """Show the lineages, their steps, and which of them this machine can run.

    STEP is a step's name, a range (v01..v07), a lineage's name, which is its main line, or a folder
    of steps. Default: the main lines of the project; outside any project, of what ships. The record
    of --json has every step.

    Figures are those of each lineage's source, on the device that the table names; what was
    measured here is shown by `kernelbench show`.

    \b
    Examples:
      kernelbench list
      kernelbench list --all
      kernelbench list v20..v23 kernels/failed
      kernelbench list --lineage moe --status failed
      kernelbench list --task path/to/gpu-mode-task
      kernelbench list --json -
    """
    from kernelbench.lineages import listing
    from kernelbench.project.context import Context

    if task is None:
        lineages = Context.find().lineages
    else:
        from kernelbench.problems.task_folder import task_context

        of_task = task_context(task)
        if not json.alone:
            _print_task(of_task)
        lineages = of_task.lineages
    chosen = listing.select_steps(lineages, steps, lineage, status)
    if json.path is not None:
        json.write(listing.list_record(chosen))
    if not json.alone and task is None:
        beside = [step for step in chosen if step.experiment]
        if every or steps or status or len(beside) == len(chosen):
            beside = []
        _render(listing.views(lineages, [step for step in chosen if step not in beside]))
        shipped = lineages.shipped.lineages if lineages.with_shipped else ()
        _say_besides(len(beside), [] if steps or lineage else [each.name for each in shipped])


def _say_besides(experiments: int, shipped: list[str]) -> None:
    """What is more than the main lines, and not what most look for."""
    from kernelbench.base.console import out

    if experiments:
        out.print(f"beside the main lines: {experiments} variants and experiments, see --all")
    if shipped:
        shown = f"`kernelbench list {shipped[0]}` shows one"
        out.print(f"also here, shipped with kernelbench: {', '.join(shipped)}; {shown}")


def _render(views: list[listing.LineageView]) -> None:
    from kernelbench.base.console import Text, fitted, out, styled

    if not views:
        out.print("no step fits")
    for view in views:
        out.print(Text.assemble((view.name, "bold"), f"  {view.title}"))
        reported = [f"reported\n{shape} {view.unit}".rstrip() for shape in view.shapes]
        table = fitted(
            [
                {
                    "step": step.name,
                    "what changes": step.title,
                    "parent": step.parent or "–",
                    "status": styled(step.status),
                    "kind": step.kind,
                    "arch": step.arch,
                    "here": here,
                    **dict(zip(reported, figures, strict=True)),
                }
                for step, here, figures in view.rows
            ],
            right=reported,
            prose="what changes",
            spare=[["kind"], ["parent"], ["arch"], ["here"], ["status"], reported],
        )
        table.show()
        if not set(reported) & set(table.left_out):
            for caption in view.captions:
                out.print(f"{', '.join(view.shapes)}: {caption}")
            for name, note in view.notes:
                out.print(f"{name}: {note}")
        if view.blocked:
            out.print("`kernelbench doctor` says why a step does not run here.")
        out.print()


def _print_task(context: TaskContext) -> None:
    """Print a task with its shapes and steps."""
    from kernelbench.base import console

    task = context.task
    facts = [
        f"ranking_by {task.ranking_by}",
        f"timeouts {task.test_timeout_s:g} s (tests), {task.benchmark_timeout_s:g} s (benchmarks)",
    ]
    if task.gpus:
        facts.append(f"leaderboard for {', '.join(task.gpus)}")
    title = console.Text.assemble((task.name, "bold"), f"  GPU MODE task · {' · '.join(facts)}")
    console.out.print(title)
    if task.description:
        console.out.say(f"  {task.description.splitlines()[0]}")
    head = "arguments of generate_input"
    console.show([{"shape": shape.name, head: shape.describe()} for shape in task.shapes])
    names = ", ".join(step.name for step in context.lineages.steps)
    console.out.say(f"  steps: {names}; or any file with custom_kernel(data)")
    for note in task.notes:
        console.out.say(f"  {note}", "dim")
