"""A GPU MODE task on the terminal: what it asks for, its tests and benchmarks, what runs of it."""

from __future__ import annotations

from kernelbench.base import console
from kernelbench.problems.gpumode import TaskContext


def print_task(context: TaskContext) -> None:
    """Print a task with its shapes and steps."""
    task = context.task
    facts = [
        f"ranking_by {task.ranking_by}",
        f"timeouts {task.test_timeout_s:g} s (tests), {task.benchmark_timeout_s:g} s (benchmarks)",
    ]
    if task.gpus:
        facts.append(f"leaderboard for {', '.join(task.gpus)}")
    head = console.Text.assemble((task.name, "bold"), f"  GPU MODE task · {' · '.join(facts)}")
    console.out.print(head, soft_wrap=True)
    if task.description:
        console.out.print(console.Text(f"  {task.description.splitlines()[0]}"), soft_wrap=True)
    table = console.make_table([("shape", "left"), ("arguments of generate_input", "left")])
    for shape in task.shapes:
        table.add_row(shape.name, console.escape(shape.describe()))
    console.out.print(table)
    names = ", ".join(step.name for step in context.lineages.steps)
    console.out.print(console.Text(f"  steps: {names}; or any file with custom_kernel(data)"))
    for note in task.notes:
        console.out.print(console.Text(f"  {note}", style="dim"), soft_wrap=True)
