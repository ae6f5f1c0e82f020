"""How fast the emulator runs: products and PTX instructions a second of one core, by kernel.

python tools/ptx/speed.py            all kernels; speed.json and the table in docs/evidence-ptx.md
python tools/ptx/speed.py --render   the table from the record

``make bench`` calls it. CPU time of one thread, the fastest of several calls: of the direct build,
of nvcc's PTX, and of both for the checker under one schedule. Instructions are counted in one more
call of the PTX, without the checker, by g++'s counters of its lines. It needs nvcc, g++ and gcov.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]
RECORD, PAGE = HERE / "speed.json", ROOT / "docs" / "evidence-ptx.md"
MARKERS = ("<!-- ptx-speed -->", "<!-- /ptx-speed -->")
KERNELS = (
    ("v07", "u3", "tcgen05, one CTA"),
    ("v22", "u3", "tcgen05, pairs of CTAs"),
    ("m05", "s4", "wgmma, fp8"),
    ("h05", "u3", "wgmma, NVFP4 on Hopper"),
)
CALLS = 5
_LIMIT_S = 900.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--one", nargs=3, metavar=("STEP", "SHAPE", "MODE"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one:
        step, shape, mode = given.one
        made = counted(step, shape) if mode == "count" else timed(step, shape, mode == "check")
        print(json.dumps(made))
        return 0
    if not given.render:
        RECORD.write_text(json.dumps(measured()) + "\n")
    from kernelbench.report.readme_tables import replace_between

    record = json.loads(RECORD.read_text())
    PAGE.write_text(replace_between(PAGE.read_text(), MARKERS, render(record)))
    return 0


def measured() -> dict[str, Any]:
    """All figures; each mode in a process of its own, as one holds a step once."""
    from kernelbench.machine.environment import cpu_name
    from kernelbench.machine.toolchain import emulator_compiler

    compiler = emulator_compiler()
    rows = []
    for step, shape, what in KERNELS:
        row: dict[str, Any] = {"step": step, "shape": shape, "what": what}
        for mode in ("plain", "check", "count"):
            done = subprocess.run(
                [sys.executable, __file__, "--one", step, shape, mode],
                cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT_S, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise SystemExit(f"{step} {shape} {mode}: {done.stderr.strip()[-300:]}")
            row |= json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
    return {
        "command": "python tools/ptx/speed.py",
        "date": datetime.date.today().isoformat(),
        "device": cpu_name(),
        "compiler": f"{compiler.kind} {compiler.version}",
        "load": round(os.getloadavg()[2], 1),
        "calls": CALLS,
        "rows": rows,
    }


def timed(name: str, shape: str, check: bool) -> dict[str, Any]:
    """CPU seconds of a call by the direct build and by PTX, the fastest of several in turn."""
    from ptx_step import PtxStep

    from kernelbench.inspection.cubin import compile_ptx
    from kernelbench.ptx.library import translated

    step = PtxStep(name, check=check)
    case = step.case(shape)
    assert case is not None, f"{name} does not take {shape}"
    source = translated(f"{name}.ptx", compile_ptx(step.step))
    library = step.build(source)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS + 1):
        one = step.call(case)
        with step.replaced(source, library):
            other = step.call(case)
        for call, times in zip((one, other), seconds, strict=True):
            if call.wrong:
                raise SystemExit(f"{name} {shape}: {call.wrong}")
            times.append(call.seconds)
    kind = "checked_s" if check else "plain_s"
    found: dict[str, Any] = {kind: [round(min(times[1:]), 5) for times in seconds]}
    if not check:
        found["flops"] = step.problem.work(case.shape).flops
    return found


def counted(name: str, shape: str) -> dict[str, Any]:
    """How many PTX instructions the threads of a call execute, predicated-off ones included."""
    from ptx_step import PtxStep

    from kernelbench.build import compiler
    from kernelbench.emulator import branches
    from kernelbench.inspection.cubin import compile_ptx
    from kernelbench.kinds.compiled import common_folder
    from kernelbench.machine.toolchain import emulator_compiler
    from kernelbench.ptx.library import load_library, translated

    step = PtxStep(name, check=False)
    case = step.case(shape)
    assert case is not None, f"{name} does not take {shape}"
    source = translated(f"{name}.ptx", compile_ptx(step.step))
    common = common_folder(step.step)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "counted.cpp"
        file.write_text(source.translation.source)
        path = compiler.compile_shared(
            f"{name} (PTX, counted)", [file],
            ("-x", "c++", "-std=c++20", "-g1", "-O1", "-fvisibility=hidden", "-ffp-contract=off",
             "-fno-gnu-unique", "--coverage", "-fprofile-update=atomic"),
            include_dirs=(common, common / "backend" / "emu"), compiler=emulator_compiler(),
            link_flags=(
                "-pthread", "-Wl,-Bsymbolic", "-Wl,-u,__gcov_dump,-u,__gcov_reset", "-lgcov",
            ),
        )  # fmt: skip
        branches.collect_into(Path(folder))
        library = load_library(path)
        with step.replaced(source, library):
            call = step.call(case)
        if call.wrong:
            raise SystemExit(f"{name} {shape}: {call.wrong}")
        branches.write_counters(library)
        lines = branches.executed_lines(Path(folder), path, emulator_compiler())
    instructions = {
        statement.line
        for function in source.module.functions.values()
        for statement in function.statements
        if statement.opcode
    }
    own = next(counts for file, counts in lines.items() if Path(file).name == source.module.name)
    return {"instructions": sum(own.get(line, 0) for line in instructions)}


def render(record: Mapping[str, Any]) -> str:
    """The table of a record."""
    how = (
        f"(`{record['command']}`, {record['date']}, {record['device']}, {record['compiler']}, load "
        f"{record['load']}; the fastest of {record['calls']} calls, one thread)"
    )
    head = (
        "| kernel | GFLOP/s, direct | PTX | checked, direct | checked, PTX "
        "| million PTX instructions | a second, PTX | checked, PTX |"
    )
    lines = [
        how,
        "",
        head,
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in record["rows"]:
        times = [*row["plain_s"], *row["checked_s"]]
        rates = [f"{row['flops'] / seconds / 1e9:.2f}" for seconds in times]
        count = row["instructions"] / 1e6
        speeds = [f"{count / row[kind][1]:.0f} M" for kind in ("plain_s", "checked_s")]
        lines.append(
            f"| {row['step']} on {row['shape']} ({row['what']}) | {' | '.join(rates)} "
            f"| {count:.1f} | {' | '.join(speeds)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
