"""Own steps by nvcc's PTX beside the direct build: bits, findings, time. Writes a table.

python tools/ptx/ptx_equality.py    all steps; equality.json.gz, docs/evidence-ptx.md
python tools/ptx/ptx_equality.py --steps v07,m05    these only; other rows stay
python tools/ptx/ptx_equality.py --failed           the failed experiments, likewise
python tools/ptx/ptx_equality.py -j 8 --record FILE   8 steps at a time; FILE is gone on from
python tools/ptx/ptx_equality.py --merge FILE         what such a file has, into the record
python tools/ptx/ptx_equality.py --render             the table from the record

It needs nvcc and g++, and each step runs in a process of its own. Times are CPU time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jobs

from kernelbench.base.json_file import read_json, write_gzip
from kernelbench.report.readme_tables import replace_between

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RECORD, PAGE = HERE / "equality.json.gz", ROOT / "docs" / "evidence-ptx.md"
MARKERS = ("<!-- ptx-equality -->", "<!-- /ptx-equality -->")
STEPS = (
    *(f"v{number:02}" for number in range(1, 24)),
    *(f"m{number:02}" for number in range(17)),
    *(f"h{number:02}" for number in range(1, 8)),  # h00 is Python
)
_GEMM_SHAPES = ("u1", "u2", "u3", "t3", "D")
SHAPES = {"v": _GEMM_SHAPES, "h": _GEMM_SHAPES}
_MOE_SHAPES = ("s0", "s1", "s2", "s3", "s4", "s5", "s6", "qwen35-m16")
#: Of ``kernels/failed``: what the checker finds in the direct build.
FAILED = (
    "nofence", "v5-1", "v5-iter-2", "v5-iter-static", "v5-static-overlap", "v6-2-multicast", "v6-3",
    "v6-splitk", "v6-tmem-circ", "v8-1", "v8-pair",
)  # fmt: skip
_FAILED_SHAPE, _FAILED_CLASS, _FAILED_SMS = "u1", "gpu-mode", (1, 3)
#: Shapes of the check, which is slow, and its schedules.
CHECKED = {"v": ("u1",), "h": ("u1",)}
_MOE_CHECKED = ("s0",)
SCHEDULES = 4
#: Of each call, of which the faster one counts.
_REPEATS = 2
_LIMIT_S = 1500.0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("--render", action="store_true")
    parser.add_argument("--no-check", action="store_true", help="equality only")
    parser.add_argument("-j", type=int, default=1, metavar="N", help="steps at a time")
    parser.add_argument("--record", type=Path, help="lines of JSON; nothing else is written")
    parser.add_argument("--until", type=float, default=float("inf"), metavar="S")
    parser.add_argument("--merge", type=Path, metavar="FILE")
    parser.add_argument("--one", metavar="MODE", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.one == "failed":
        print(json.dumps(_failed(given.steps)))
    elif given.one:
        for made in _part(given.steps, check=given.one == "check"):
            print(json.dumps(made), flush=True)
    elif given.render:
        write_page(read_json(RECORD))
    elif given.merge:
        merge(given.merge)
    else:
        names = FAILED if given.failed else given.steps.split(",")
        with tempfile.TemporaryDirectory() as folder:
            record = given.record or Path(folder) / "record.jsonl"
            jobs.run(jobs_of(names, check=not given.no_check), given.j, record, given.until)
            if not given.record:
                merge(record)
    return 0


def jobs_of(names: Sequence[str], *, check: bool = True) -> list[jobs.Job]:
    """A process for each step and mode."""
    made = []
    for mode in ("plain", "check", "failed"):
        for name in names:
            if (name in FAILED) == (mode == "failed") and (check or mode != "check"):
                command = [sys.executable, __file__, "--steps", name, "--one", mode]
                made.append(jobs.Job(f"{name} {mode}", command, limit_s=_LIMIT_S))
    return made


def merge(file: Path) -> None:
    """Put what a file of lines has into the record, and the table into the page."""
    record = read_json(RECORD) if RECORD.exists() else {}
    for key, line in jobs.read(file).items():
        name, mode, *_ = key.split()
        if mode not in ("plain", "check", "failed"):
            continue
        row = line["rows"][-1] if line["rows"] else {"error": line.get("error", "nothing")}
        if line.get("error") and line["rows"]:
            row["stopped"] = line["error"]
        record.setdefault(name, {})[mode] = row
    write_gzip(RECORD, json.dumps(record, indent=1, sort_keys=True).encode())
    write_page(read_json(RECORD))


def _part(name: str, *, check: bool) -> Iterator[dict[str, Any]]:
    """What one step does in one mode: after each shape, what there is so far."""
    import torch
    from ptx_step import PtxStep, symbols_of

    from kernelbench.inspection.cubin import compile_ptx
    from kernelbench.ptx.library import translated

    direct_s, step = _built(lambda: PtxStep(name, check=check))
    text = compile_ptx(step.step)
    began = time.process_time()
    source = translated(f"{name}.ptx", text)
    translation_s = time.process_time() - began
    ptx_s, library = _built(lambda: step.build(source))
    row: dict[str, Any] = {
        "translation_s": round(translation_s, 2),
        "build_s": [round(direct_s, 1), round(ptx_s, 1)],
        "shapes": {},
        "date": datetime.date.today().isoformat(),
    }
    yield row
    chosen, seeds = (
        (_of(name, CHECKED, _MOE_CHECKED), range(SCHEDULES))
        if check
        else (_of(name, SHAPES, _MOE_SHAPES), range(1))
    )
    symbols = symbols_of(source)
    for shape in chosen:
        case = step.case(shape)
        if case is None:
            continue
        direct, ptx, seconds = [], [], [0.0, 0.0]
        for seed in seeds:
            times: list[list[float]] = [[], []]
            for _ in range(_REPEATS):
                one = step.call(case, seed)
                with step.replaced(source, library):
                    other = step.call(case, seed, symbols=symbols)
                times[0].append(one.seconds)
                times[1].append(other.seconds)
            direct.append(one)
            ptx.append(other)
            seconds = [total + min(each) for total, each in zip(seconds, times, strict=True)]
        row["shapes"][shape] = {
            "equal": all(
                len(a.outputs) == len(b.outputs) > 0 and all(map(torch.equal, a.outputs, b.outputs))
                for a, b in zip(direct, ptx, strict=True)
            ),
            "apart": _apart(direct[0], ptx[0]),
            "wrong": next((each.wrong for each in ptx if each.wrong), ""),
            "found": sorted({str(found) for each in ptx for found in each.found}),
            "direct_found": sorted({str(found) for each in direct for found in each.found}),
            "seconds": [round(each, 3) for each in seconds],
        }
        yield row


def _failed(name: str) -> dict[str, Any]:
    """What the checker finds in a failed experiment, in the direct build and by its PTX."""
    from ptx_step import PtxStep, symbols_of

    from kernelbench.emulator.settings import Emulation
    from kernelbench.inspection.cubin import compile_ptx
    from kernelbench.ptx.library import translated

    step = PtxStep(name, check=True)
    source = translated(f"{name}.ptx", compile_ptx(step.step))
    library, symbols = step.build(source), symbols_of(source)
    case = step.case(_FAILED_SHAPE, _FAILED_CLASS)
    if case is None:
        raise SystemExit(f"{name} does not take {_FAILED_SHAPE}")

    def found() -> list[str]:
        for sms in _FAILED_SMS:
            call = step.call(case, 1, Emulation(sms=sms), symbols=symbols, limit_s=60)
            if not call.clean:
                return sorted({kind for kind, _ in call.found}) or ["wrong"]
        return []

    direct = found()
    with step.replaced(source, library):
        return {"direct": direct, "ptx": found(), "date": datetime.date.today().isoformat()}


def _built(make: Any) -> tuple[float, Any]:
    """CPU time of the compilers that a call starts: about 0 for what is in the cache."""
    before = os.times()
    made = make()
    after = os.times()
    spent = (after.children_user + after.children_system) - (
        before.children_user + before.children_system
    )
    return spent, made


def _apart(direct: Any, ptx: Any) -> float:
    """The largest difference, relative to the largest output."""
    worst = 0.0
    for a, b in zip(direct.outputs, ptx.outputs, strict=False):
        scale = float(a.double().abs().max()) or 1.0
        worst = max(worst, float((a.double() - b.double()).abs().max()) / scale)
    return worst


def _of(name: str, table: Mapping[str, Sequence[str]], other: Sequence[str]) -> Sequence[str]:
    return table.get(name[0], other)


def write_page(record: Mapping[str, Any]) -> None:
    """Put the table into the page."""
    PAGE.write_text(replace_between(PAGE.read_text(), MARKERS, render(record)))


def render(record: Mapping[str, Any]) -> str:
    """The table of a record."""
    lines = [
        "| step | shapes | bits | check | translation, s | g++, s | run | check, time |",
        "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {' | '.join(_cells(record[name]))} |" for name in STEPS if name in record
    ]
    tried = [name for name in FAILED if name in record]
    if tried:
        lines += ["", "| failed experiment | direct build | PTX |", "| --- | --- | --- |"]
    for name in tried:
        one = record[name]["failed"]
        direct, ptx = (", ".join(one.get(key, ())) or "–" for key in ("direct", "ptx"))
        lines.append(f"| {name} | {direct} | {one.get('error') or ptx} |")
    return "\n".join(lines)


def _cells(row: Mapping[str, Any]) -> list[str]:
    plain, check = row["plain"], row.get("check", {})
    if "error" in plain:
        return ["–", plain["error"], *["–"] * 5]
    shapes = plain["shapes"]
    return [
        " ".join(shapes) or "none of these",
        _bits(shapes),
        _clean(check),
        f"{plain['translation_s']:.1f}",
        _build(plain["build_s"]),
        _ratio(shapes),
        _ratio(check.get("shapes", {})),
    ]


def _bits(shapes: Mapping[str, Any]) -> str:
    wrong = [name for name, each in shapes.items() if each["wrong"]]
    if wrong:
        return f"wrong on {' '.join(wrong)}"
    apart = {name: each["apart"] for name, each in shapes.items() if not each["equal"]}
    if not apart:
        return "equal" if shapes else "–"
    return f"right, up to {max(apart.values()):.1e} apart on {' '.join(apart)}"


def _clean(check: Mapping[str, Any]) -> str:
    if not check.get("shapes"):
        return str(check.get("error", "–"))
    found = sorted({each for one in check["shapes"].values() for each in one["found"]})
    wrong = [name for name, one in check["shapes"].items() if one["wrong"]]
    return ", ".join(found) or (f"wrong on {' '.join(wrong)}" if wrong else "clean")


def _build(seconds: Sequence[float]) -> str:
    """PTX's and, if it was built then, the direct build's."""
    direct, ptx = seconds
    if ptx < 1:
        return "–"
    return f"{ptx:.0f}" + (f" ({ptx / direct:.1f} ×)" if direct >= 1 else "")


def _ratio(shapes: Mapping[str, Any]) -> str:
    direct, ptx = (sum(each["seconds"][at] for each in shapes.values()) for at in (0, 1))
    return f"{ptx / direct:.2f} ×" if direct else "–"


if __name__ == "__main__":
    sys.exit(main())
