"""The table's opcodes on a GPU: the launches that tests/ptx_frontend make, made by hardware.

python tools/ptx/gpu_conformance.py prepare FOLDER   run the tests, record their launches, assemble
python FOLDER/gpu_replay.py FOLDER RESULT.npz        on the GPU
python tools/ptx/gpu_conformance.py compare FOLDER RESULT.npz DATE   gpu_conformance.json.gz, docs
python tools/ptx/gpu_conformance.py render           the table from the record

``prepare`` takes ptxas; what ptxas does not take for sm_90a is left out, with its reason.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gpu_verdicts
import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = ROOT / "tests" / "ptx_frontend"
sys.path[:0] = [str(ROOT), str(TESTS), str(HERE)]

#: Of a launch, in ``launches.json``.
_KEPT = ("kernel", "grid", "block", "cluster", "shared", "cooperative", "args", "maps", "test")
_FILES = (
    "arithmetic", "integers", "narrow", "memory", "warps", "copies", "bulk", "sync", "tensor",
    "calls", "launch", "matrices", "hints", "products", "comparisons", "laps", "reductions",
    "warpgroups", "wmma",
)  # fmt: skip
_TARGET = re.compile(r"\.target\s+sm_\d+a?")
_ERROR = re.compile(r"line (\d+); error\s*: (.*)")
_ENTRY = re.compile(r"^\.visible \.entry (\w+)", re.MULTILINE)


class Recorder:
    """A pytest plugin: launches of tests with what they were given and what they made."""

    def __init__(self) -> None:
        self.launches: list[dict[str, Any]] = []
        self.cases: dict[Any, list[int]] = {}

    def pytest_collection_modifyitems(self, items: Sequence[Any]) -> None:
        """The tests are imported: from here on their calls are recorded."""
        import test_arithmetic

        from kernelbench.ptx.launcher import PtxModule

        launch, results = PtxModule.launch, test_arithmetic.results

        def recorded(module: Any, kernel: str, grid: Any, block: Any = None, args: Any = (),
                     **options: Any) -> Any:  # fmt: skip
            before = [_copied(each) for each in args]
            report = launch(module, kernel, grid, block, args, **options)
            test = os.environ["PYTEST_CURRENT_TEST"].split("::")
            if report.clean and "memory" not in options and "arithmetic" not in test[0]:
                self.launches.append(
                    _record(module, kernel, grid, block, args, before, options)
                    | {"test": Path(test[0]).stem.removeprefix("test_")}
                )
            return report

        def kept(cases: Any) -> Any:
            found = results(cases)
            self.cases |= found
            return found

        PtxModule.launch = recorded  # type: ignore[method-assign, assignment]
        test_arithmetic.results = kept


def _copied(argument: Any) -> Any:
    """An array's bytes; what is none, or is refused as one, as it is."""
    from kernelbench.ptx.arguments import is_array, memory_of
    from kernelbench.ptx.errors import PtxError

    if not is_array(argument):
        return argument
    try:
        return np.frombuffer(ctypes.string_at(*memory_of(argument)), np.uint8).copy()
    except PtxError:
        return argument


def _record(
    module: Any, kernel: str, grid: Any, block: Any, args: Any, before: Any,
    options: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """A launch, its arrays before and after, with equal arrays once."""
    from kernelbench.ptx.arguments import _bytes_of, is_array, launch_form, memory_of

    source = module._source
    function, layout = source.module.functions[kernel], source.translation.layouts[kernel]
    form = launch_form(function, layout, grid, block, args, options.get("shared", 0),
                       options.get("cluster"), options.get("cooperative", False))  # fmt: skip
    arrays: list[Any] = []
    given: list[Any] = []
    values: list[Any] = []
    for argument, old, parameter in zip(args, before, function.parameters, strict=True):
        if not is_array(argument):
            data = _bytes_of(argument, parameter)
            assert data is not None
            values.append(data.hex())
            continue
        same = next((at for at, each in enumerate(arrays) if each is argument), len(arrays))
        if same == len(arrays):
            arrays.append(argument)
            given.append(old)
        values.append(same)
    maps = {}
    addresses = [memory_of(each)[0] for each in arrays]
    for at, old in enumerate(given):
        if (
            old.size >= gpu_verdicts.MAP_BYTES
            and old[:8].view(np.uint64)[0] == gpu_verdicts.MAP_MAGIC
        ):
            maps[str(at)] = addresses.index(int(old[8:16].view(np.uint64)[0]))
    return {
        "text": source.text, "kernel": kernel, "grid": form.grid, "block": form.block,
        "cluster": 1 if "reqnctapercluster" in function.directives else math.prod(form.cluster),
        "shared": options.get("shared", 0), "cooperative": form.cooperative, "args": values,
        "maps": maps, "before": given, "after": [_copied(each) for each in arrays],
    }  # fmt: skip


def prepare(folder: Path) -> None:
    """Run the tests and write what a GPU is to do."""
    import pytest

    recorder = Recorder()
    files = [str(TESTS / f"test_{each}.py") for each in _FILES]
    status = pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *files], plugins=[recorder])
    if status != 0:
        raise SystemExit(f"the tests failed ({status}): nothing to compare with")
    folder.mkdir(parents=True, exist_ok=True)
    launches: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    texts: dict[str, list[dict[str, Any]]] = {}
    for each in recorder.launches:
        texts.setdefault(each["text"], []).append(each)
    for number, (text, made) in enumerate(texts.items()):
        name = f"m{number:02}"
        assembled, reasons = _assembled(_TARGET.sub(".target sm_90a", text), folder, name)
        for each in made:
            if each["kernel"] in reasons or not assembled:
                left_out[f"{each['test']} {each['kernel']}"] = reasons.get(each["kernel"], "")
        made = [each for each in made if assembled and each["kernel"] not in reasons]
        launches += _written(folder, name, made, len(launches), text)
    arithmetic = Arithmetic(recorder.cases)
    assembled, reasons = _assembled(arithmetic.text, folder, "arithmetic")
    left_out |= {arithmetic.opcode[name]: reason for name, reason in reasons.items()}
    launches += arithmetic.written(folder, reasons)
    (folder / "launches.json").write_text(json.dumps(launches))
    (folder / "left_out.json").write_text(json.dumps(left_out, indent=1))
    shutil.copy(HERE / "gpu_replay.py", folder)
    print(f"{len(launches)} launches; left out: {len(left_out)}")


def _written(
    folder: Path, name: str, made: Sequence[Mapping[str, Any]], first: int, text: str
) -> list[dict[str, Any]]:
    """The launches of a module, its arrays in files."""
    from kernelbench.ptx.library import parse

    kernels = parse(name, text).functions
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    launches: list[dict[str, Any]] = []
    for at, each in enumerate(made, first):
        for n, (old, new) in enumerate(zip(each["before"], each["after"], strict=True)):
            before[f"{at}_{n}"], after[f"{at}_{n}"] = old, new
        opcodes = {s.opcode for s in kernels[each["kernel"]].statements if s.opcode}
        launches.append(
            {key: each[key] for key in _KEPT}
            | {
                "id": at,
                "module": name,
                "opcodes": sorted(opcodes),
                "given": [f"{at}_{n}" for n in range(len(each["before"]))],
                "compared": [n for n in range(len(each["before"])) if str(n) not in each["maps"]],
            }
        )
    if launches:
        np.savez_compressed(folder / f"{name}.npz", **before)
        np.savez_compressed(folder / f"{name}.want.npz", **after)
    return launches


def _assembled(text: str, folder: Path, name: str) -> tuple[bool, dict[str, str]]:
    """A cubin of the kernels that ptxas takes; why it does not take the others."""
    reasons: dict[str, str] = {}
    source = folder / f"{name}.ptx"
    while True:
        source.write_text(text)
        command = ["ptxas", "-arch=sm_90a", "-o", str(folder / f"{name}.cubin"), str(source)]
        ended = subprocess.run(command, capture_output=True, text=True)
        if ended.returncode == 0:
            return bool(_ENTRY.search(text)), reasons
        starts = [(text.count("\n", 0, m.start()) + 1, m[1]) for m in _ENTRY.finditer(text)]
        wrong: dict[str, str] = {}
        for line, message in _ERROR.findall(ended.stderr):
            before = [entry for start, entry in starts if start <= int(line)]
            if before:
                wrong.setdefault(before[-1], message)
        if not wrong:
            return False, reasons | {entry: ended.stderr[:200] for _, entry in starts}
        reasons |= wrong
        for entry in wrong:
            text = re.sub(
                rf"^\.visible \.entry {entry}\(.*?(?=^\.visible|^\.func|^//|\Z)",
                "",
                text,
                flags=re.M | re.S,
            )


class Arithmetic:
    """A kernel for each opcode of ``test_arithmetic``, all of one table of operands."""

    def __init__(self, cases: Mapping[Any, list[int]]) -> None:
        import conformance

        self.cases = dict(cases)
        self.kinds = sorted({kind for case in cases for kind in case.types[1:]})
        self.opcode = {f"k{at}": case.opcode for at, case in enumerate(self.cases)}
        head = conformance._HEAD.replace("sm_100a", "sm_90a")
        kernels = [conformance._kernel(at, [case], self.kinds) + "\n"
                   for at, case in enumerate(self.cases)]  # fmt: skip
        self.text = "\n".join([head, *map(_with_immediate_tables, kernels)])

    def written(self, folder: Path, reasons: Mapping[str, str]) -> list[dict[str, Any]]:
        """The launches, and their arrays in files."""
        import conformance

        count = conformance.TUPLES
        table = np.zeros((len(self.kinds), conformance._MOST_OPERANDS, count), np.uint64)
        for row, kind in enumerate(self.kinds):
            for position in range(conformance._MOST_OPERANDS):
                table[row, position] = conformance.operands_of(kind, position)
        (folder / "kinds.json").write_text(json.dumps(self.kinds))
        before: dict[str, Any] = {"table": table, "zeros": np.zeros(count, np.uint64)}
        after: dict[str, Any] = {}
        launches: list[dict[str, Any]] = []
        for at, (case, bits) in enumerate(self.cases.items()):
            if f"k{at}" in reasons:
                continue
            after[f"a{at}_1"] = np.array(bits, np.uint64)
            launches.append({
                "id": f"a{at}", "module": "arithmetic", "kernel": f"k{at}",
                "given": ["table", "zeros"], "compared": [1],
                "grid": (count // 256, 1, 1), "block": (256, 1, 1), "cluster": 1, "shared": 0,
                "cooperative": False, "args": [0, 1], "maps": {}, "test": "arithmetic",
                "opcodes": [case.opcode], "types": case.types,
            })  # fmt: skip
        np.savez_compressed(folder / "arithmetic.npz", **before)
        np.savez_compressed(folder / "arithmetic.want.npz", **after)
        return launches


def _with_immediate_tables(kernel: str) -> str:
    """lop3's table is an immediate to ptxas: one lop3 for each, and the operand chooses."""
    found = re.search(r"lop3\.b32 %d, (.*), %a3;", kernel)
    if found is None:
        return kernel
    lines = [".reg .pred %chosen;", "and.b32 %a3, %a3, 255;"]
    for table in range(256):
        lines += [f"setp.eq.u32 %chosen, %a3, {table};",
                  f"@%chosen lop3.b32 %d, {found[1]}, {table};"]  # fmt: skip
    return kernel.replace(found[0], "\n".join(lines))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("prepare", "compare", "render"))
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("result", type=Path, nargs="?")
    parser.add_argument("date", nargs="?")
    given = parser.parse_args(arguments)
    needed = {"prepare": 1, "compare": 3, "render": 0}[given.what]
    if sum(each is not None for each in (given.folder, given.result, given.date)) != needed:
        parser.error(f"{given.what} takes {needed} arguments")
    if given.what == "prepare":
        prepare(given.folder)
        return 0
    if given.what == "compare":
        gpu_verdicts.record(given.folder, given.result, given.date)
    gpu_verdicts.write_page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
