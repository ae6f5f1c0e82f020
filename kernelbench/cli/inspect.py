"""``kernelbench inspect``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from kernelbench.cli import options
from kernelbench.machine.toolchain import INSTALL_NVCC, unknown_arch

if TYPE_CHECKING:
    from kernelbench.inspection.resources import Build, Code, Inspection

_CONSTANTS = (
    ("tile", ("tile_m", "tile_n", "tile_k")),
    ("stages", ("stages",)),
    ("accumulators", ("accumulators",)),
    ("cluster", ("cluster",)),
    ("TMEM columns", ("tmem_columns",)),
)


def _arch(value: str) -> str:
    """The name of an arch, if it has the form of one, or all that a step is built for."""
    if value != "all" and not re.fullmatch(r"sm_\d+[af]?", value):
        raise click.BadParameter(f"expected sm_90a, sm_89, ... or all, found {value!r}")
    return value


@click.command(
    "inspect",
    epilog="\b\nExamples:\n"
    "  kernelbench inspect v07\n"
    "  kernelbench inspect v01..v07 --arch sm_100a --json -\n"
    "  kernelbench inspect v07 --arch sm_100a --sass | less\n"
    "  kernelbench inspect my-triton --arch sm_80 --shape D",
)
@options.steps_argument
@click.option(
    "--arch",
    type=_arch,
    metavar="SM_NN|ALL",
    default="all",
    help="What to build for; of an sm_100a step, sm_90a is what gpu-soft runs.",
)
@click.option("--shape", metavar="NAME", help="What a Triton step is called with, to compile it.")
@click.option("--sass", is_flag=True, help="Also print the machine code, disassembled.")
@click.option("--ptx", is_flag=True, help="Also print the PTX.")
@options.json_option
def command(
    steps: tuple[str, ...],
    arch: str,
    shape: str | None,
    sass: bool,
    ptx: bool,
    json: options.RecordOutput,
) -> None:
    """Print what each STEP's kernels take: registers, spills, memory, CTAs per SM.

    It asks the compilers and the step's own constants, no GPU. CTAs per SM are those that can run
    at once; one that waits for tensor memory does not. A Triton step is called once, to see what
    Triton compiles for it; without a GPU nothing is launched. Steps of arch `any` are compiled for
    the GPU at hand, without one for sm_90a.
    """
    from kernelbench.base import console
    from kernelbench.base.errors import EnvironmentProblem, UsageError
    from kernelbench.build import compiler
    from kernelbench.inspection import by_kind, resources
    from kernelbench.project.context import Context

    if arch != "all" and (problem := unknown_arch(arch)):
        raise UsageError(problem)
    context = Context.find()
    chosen, left_out = by_kind.select_kernels(context.lineages.select(steps))
    for line in left_out:
        console.warn(f"left out: {line}")
    fitting = [step for step in chosen if by_kind.built_for(step, arch)]
    if not fitting:
        names = ", ".join(step.name for step in chosen)
        raise UsageError(f"{names}: not built for {arch}", "leave out --arch")
    found = []
    with console.Status() as status:
        status("building " + ", ".join(step.name for step in fitting))
        for inspected in by_kind.inspect_all(fitting, arch, context, shape, sass=sass, ptx=ptx):
            found.append(inspected)
            status(f"built {len(found)} of {len(fitting)}")
    nvcc = compiler.nvcc()
    version = nvcc.version if nvcc else None
    json.write(resources.InspectRecord(resources.SCHEMA, version, tuple(found)))
    if not json.alone:
        for inspected in found:
            if inspected.empty:
                continue  # the error says all that there is
            by = f"nvcc {nvcc.version}" if nvcc else "no nvcc: constants only"
            _render(inspected, inspected.compiled_by or by)
    missing = [*dict.fromkeys(line for inspected in found for line in inspected.missing)]
    if nvcc is None and any(step.built for step in fitting):
        missing.append(
            "no nvcc on PATH, in CUDA_HOME or in the Python environment: constants only; "
            + INSTALL_NVCC
        )
    for line in missing[:-1]:
        console.warn(line)
    if missing:
        raise EnvironmentProblem(missing[-1])


def _render(found: Inspection, compiler: str) -> None:
    from kernelbench.base.console import Text, out, show

    out.print(Text.assemble((found.step, "bold"), f"  {found.title} · {compiler}"))
    columns = [(build, code) for build in found.builds for code in build.code]
    # Blanks keep the kernels of one build apart.
    heads = [build.label + " " * i for i, (build, _) in enumerate(columns)] or [" "]
    lines = _code_rows(columns) if columns else []
    for label, names in _CONSTANTS if found.kind == "step" else ():
        lines.append((label, [_constant(found, names)] * len(heads)))
    show([{"": label, **dict(zip(heads, cells, strict=True))} for label, cells in lines])
    if found.undescribed:
        out.say(f"  ?: {found.undescribed}")
    for build in found.builds:
        for name in build.spilling:
            out.say(f"  {build.label}: {name}, which is called, spills")
        for line in build.warnings:
            out.say(f"  {build.label}: {line}")
    for allowance in found.allowances:
        out.say(f"  {allowance.what} allowed: {allowance.reason}")
    for build in found.builds:
        for kind, text in (("PTX", build.ptx), ("SASS", build.sass)):
            if text is not None:
                click.echo(f"\n{found.step} {build.label} {kind}:\n{text.strip()}")
    out.print()


def _constant(found: Inspection, names: tuple[str, ...]) -> str:
    if found.constants is None:
        return "?"
    values = [found.constants[name] for name in names]
    return "×".join(map(str, values)) if any(values) else "–"


def _code_rows(columns: list[tuple[Build, Code]]) -> list[tuple[str, list[str]]]:
    codes = [code for _, code in columns]
    spills = [f"{code.spill_store_bytes} B, {code.spill_load_bytes} B" for code in codes]
    piped = any(code.stages is not None for code in codes)
    return [
        ("kernel", [code.kernel for code in codes]),
        ("CTAs per SM", [_ctas(code) for code in codes]),
        ("threads", [_known(code.threads) for code in codes]),
        *([("warps", [_known((code.threads or 0) // 32) for code in codes])] if piped else []),
        *([("stages", [_known(code.stages) for code in codes])] if piped else []),
        ("registers", [str(code.registers) for code in codes]),
        ("spill stores, loads", spills),
        ("stack frame", [f"{code.stack_bytes} B" for code in codes]),
        ("static shared memory", [f"{code.static_shared_bytes} B" for code in codes]),
        ("dynamic shared memory", [_known(code.dynamic_shared_bytes, " B") for code in codes]),
        ("named barriers", [str(code.barriers) for code in codes]),
        ("machine code", [f"{code.code_bytes} B" for code in codes]),
    ]


def _ctas(code: Code) -> str:
    if code.ctas_per_sm is None:
        return "?"
    return f"{code.ctas_per_sm}, by {' and '.join(code.limited_by)}"


def _known(value: int | None, unit: str = "") -> str:
    return "?" if value is None else f"{value}{unit}"
