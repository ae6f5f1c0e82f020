"""``kernelbench import``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("import")
@click.argument("source", metavar="DIR|definition.json")
@click.option(
    "-o",
    "--output",
    metavar="PROJECT",
    help="The project's folder, which must not exist (default: named after what is imported).",
)
def command(source: str, output: str | None) -> None:
    """Make a project of a FlashInfer-Trace dataset or a SOL-ExecBench problem.

    A definition becomes a problem with a lineage, each of its workloads a shape, its reference and
    each Python or Triton solution a step. Other solutions are listed with the reason. Everything is
    validated before anything is written.

    \b
    Examples:
      kernelbench import path/to/flashinfer-trace -o trace
      kernelbench import path/to/sol-execbench/problem
      kernelbench import definitions/rmsnorm/rmsnorm_h4096.json
    """
    from kernelbench.base import console
    from kernelbench.base.files import from_here
    from kernelbench.problems.flashinfer import import_project

    imported = import_project(Path(source), Path(output) if output else None)
    for name, (workloads, solutions) in imported.definitions.items():
        console.out.print(
            f"{console.escape(name)}: {workloads} workloads as shapes, "
            f"the reference and {solutions} solutions as steps"
        )
    for skipped in imported.skipped:
        console.out.print(
            f"skipped {console.escape(skipped.name)}: {console.escape(skipped.reason)}"
        )
    if imported.figures:
        console.out.print(f"{imported.figures} reported figures, of the dataset's traces")
    console.out.print(f"wrote {console.escape(from_here(imported.target))}")
