"""The table's opcodes on a GPU: the launches that tests/ptx_frontend make, made by hardware.

python tools/ptx/gpu_conformance.py prepare FOLDER   run the tests, record their launches, assemble
python FOLDER/gpu_replay.py FOLDER RESULT.npz        on the GPU
python tools/ptx/gpu_conformance.py compare FOLDER RESULT.npz DATE   gpu_conformance.json, docs
python tools/ptx/gpu_conformance.py render           the table from the record

``prepare`` takes ptxas; what ptxas does not take for sm_90a is left out, with its reason.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TESTS = ROOT / "tests" / "ptx_frontend"
sys.path[:0] = [str(ROOT), str(TESTS)]

RECORD, PAGE = HERE / "gpu_conformance.json", ROOT / "docs" / "ptx.md"
BEGIN, END = "<!-- gpu-conformance -->\n", "<!-- /gpu-conformance -->\n"
_EXAMPLES, _GREATEST = 3, 3.4028234663852886e38
#: What the emulator's tensor maps begin with.
MAP_MAGIC = 0x70616D2D726F736E
_MAP_BYTES = 128
_FILES = ("arithmetic", "memory", "warps", "copies", "bulk", "sync", "tensor", "calls", "launch")
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

        PtxModule.launch = recorded  # type: ignore[method-assign]
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
        if old.size >= _MAP_BYTES and old[:8].view(np.uint64)[0] == MAP_MAGIC:
            maps[str(at)] = addresses.index(int(old[8:16].view(np.uint64)[0]))
    return {
        "text": source.text, "kernel": kernel, "grid": form.grid, "block": form.block,
        "cluster": 1 if "reqnctapercluster" in function.directives else form.cluster,
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
    launches, left_out = [], {}
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
    from kernelbench.ptx.parser import parse

    kernels = parse(name, text).functions
    before, after, launches = {}, {}, []
    for at, each in enumerate(made, first):
        for n, (old, new) in enumerate(zip(each["before"], each["after"], strict=True)):
            before[f"{at}_{n}"], after[f"{at}_{n}"] = old, new
        keys = "kernel grid block cluster shared cooperative args maps test".split()
        opcodes = {s.opcode for s in kernels[each["kernel"]].statements if s.opcode}
        launches.append(
            {key: each[key] for key in keys}
            | {"id": at, "module": name, "opcodes": sorted(opcodes),
               "given": [f"{at}_{n}" for n in range(len(each["before"]))],
               "compared": [n for n in range(len(each["before"])) if str(n) not in each["maps"]]}
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
        wrong = {}
        for line, message in _ERROR.findall(ended.stderr):
            before = [entry for start, entry in starts if start <= int(line)]
            if before:
                wrong.setdefault(before[-1], message)
        if not wrong:
            return False, reasons | {entry: ended.stderr[:200] for _, entry in starts}
        reasons |= wrong
        for entry in wrong:
            text = re.sub(rf"^\.visible \.entry {entry}\(.*?(?=^\.visible|^\.func|^//|\Z)", "", text, flags=re.M | re.S)


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
        before = {"table": table, "zeros": np.zeros(count, np.uint64)}
        after, launches = {}, []
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


def compare(folder: Path, result: Path, date: str) -> dict[str, Any]:
    """What a GPU made beside what the emulator made, by opcode and by kernel."""
    launches = json.loads((folder / "launches.json").read_text())
    kinds = json.loads((folder / "kinds.json").read_text())
    table = dict(zip(kinds, np.load(folder / "arithmetic.npz")["table"], strict=True))
    made = dict(np.load(result))
    want = {
        key: value
        for file in folder.glob("*.want.npz")
        for key, value in np.load(file).items()
    }
    notes = [json.loads(str(value)) for key, value in made.items() if key.startswith("notes ")]
    devices = {each["device"] for each in notes if each.get("device")}
    record: dict[str, Any] = {
        "date": date, "device": ", ".join(sorted(devices)), "arithmetic": {}, "kernels": {},
        "left_out": json.loads((folder / "left_out.json").read_text()),
    }  # fmt: skip
    for launch in launches:
        keys = [f"{launch['id']}_{at}" for at in launch["compared"]]
        if any(key not in made for key in keys):
            raise SystemExit(f"the result has nothing of {launch['test']} {launch['kernel']}")
        if launch["test"] == "arithmetic":
            record["arithmetic"][launch["opcodes"][0]] = _of_opcode(
                launch, table, made[keys[0]], want[keys[0]]
            )
            continue
        name = f"{launch['test']}: {_described(launch)}"
        row = record["kernels"].setdefault(
            name, {"launches": 0, "threads": 0, "words": 0, "differing": 0}
        )
        row["launches"] += 1
        row["threads"] += int(np.prod(launch["grid"]) * np.prod(launch["block"]))
        for key in keys:
            apart = made[key].view(np.uint8) != want[key].view(np.uint8)
            row["words"] += apart.size // 4
            row["differing"] += int(np.count_nonzero(apart))
    return record


def _described(launch: Mapping[str, Any]) -> str:
    """A kernel's name, or of a numbered one the opcodes that it is about."""
    if not re.fullmatch(r"k\d*", launch["kernel"]):
        return str(launch["kernel"])
    about = [each for each in launch["opcodes"] if each.startswith(("atom", "red", "cp.async"))]
    return ", ".join(each for each in about if "commit" not in each and "wait" not in each)


def _of_opcode(
    launch: Mapping[str, Any], table: Mapping[str, Any], made: Any, want: Any
) -> dict[str, Any]:
    """An arithmetic opcode: how many tuples, how many differ, and why."""
    kinds = launch["types"]
    operands = [table[kind][at].tolist() for at, kind in enumerate(kinds[1:])]
    row: dict[str, Any] = {"tuples": int(made.size), "differing": 0}
    reasons: dict[str, int] = {}
    opcode = launch["opcodes"][0]
    if _approximates(opcode):
        row |= _errors(opcode, kinds, operands, (made, want))
    for at in np.flatnonzero(made != want).tolist():
        given = [each[at] for each in operands]
        gpu, emulated = int(made[at]), int(want[at])
        row["differing"] += 1
        reason = explained(opcode, kinds, given, gpu, emulated)
        reasons[reason] = reasons.get(reason, 0) + 1
        if not reason and len(row.setdefault("examples", [])) < _EXAMPLES:
            row["examples"].append([[hex(each) for each in given], hex(gpu), hex(emulated)])
    return row | ({"reasons": reasons} if reasons else {})


def _approximates(opcode: str) -> bool:
    return ".approx" in opcode or ".full" in opcode


def _errors(
    opcode: str, kinds: Sequence[str], operands: Sequence[Sequence[int]], found: Sequence[Any]
) -> dict[str, Any]:
    """The greatest errors of the GPU and of the emulator, as shares of PTX's bound."""
    from float_model import Near, float_result

    worst = [0.0, 0.0]
    for at, given in enumerate(zip(*operands, strict=True)):
        near = float_result(opcode, given, kinds)
        assert isinstance(near, Near)
        if not 2.0**-126 <= abs(near.value) <= _GREATEST:
            continue
        bound = near.bound * abs(near.value) + near.absolute
        for side, bits in enumerate(found):
            value = float(np.array(int(bits[at]), np.uint32).view(np.float32))
            worst[side] = max(worst[side], abs(value - near.value) / bound)
    return {"worst": [round(each, 3) for each in worst]}


#: Why a result may be another one, by what ``explained`` returns.
APPROXIMATE = "approximate"
NAN_BITS = "bits of a NaN of f64"
FIELDS = "position or length above 255"


def explained(
    opcode: str, kinds: Sequence[str], given: Sequence[int], gpu: int, emulated: int
) -> str:
    """Why a GPU's result differs from the emulator's; empty if nothing known explains it."""
    from exact import F64
    from float_model import Near, float_result

    if "approx" in opcode or "full" in opcode:
        near = float_result(opcode, given, kinds)
        assert isinstance(near, Near)
        return APPROXIMATE if _within(gpu, near) and _within(emulated, near) else ""
    if kinds[0] == "f64" and {F64.decode(gpu).size, F64.decode(emulated).size} == {"nan"}:
        return NAN_BITS
    if opcode in ("bfe.u64", "bfe.s64", "bfi.b64") and max(given[-2:]) > 255:
        return FIELDS
    return ""


def _within(bits: int, near: Any) -> bool:
    from test_arithmetic import _fits

    return bool(_fits(bits, near, "f32"))


def render(record: Mapping[str, Any]) -> str:
    """The tables of a record."""
    rows: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for opcode, row in record["arithmetic"].items():
        root = opcode.split(".")[0]
        rows.setdefault(f"{root}, approximate" if _approximates(opcode) else root, []).append(
            (opcode, row)
        )
    lines = [
        "| instruction | opcodes | tuples | equal | differing |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for name, some in sorted(rows.items()):
        tuples = sum(row["tuples"] for _, row in some)
        apart = sum(row["differing"] for _, row in some)
        lines.append(f"| {name} | {len(some)} | {tuples:,} | {tuples - apart:,} | {_why(some)} |")
    lines += ["", "| kernels | launches | threads | words | differing bytes |",
              "| --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    groups: dict[str, list[int]] = {}
    for name, row in record["kernels"].items():
        # What they begin with stands for those of one instruction.
        found = re.match(r"\w+: (?:atom|red|cp\.async|[a-z]+)", name)
        counts = groups.setdefault(found[0] if found else name, [0, 0, 0, 0])
        for at, key in enumerate(("launches", "threads", "words", "differing")):
            counts[at] += row[key]
    for name, counts in sorted(groups.items()):
        lines.append(f"| {name} | {' | '.join(f'{each:,}' for each in counts)} |")
    return "\n".join(lines) + "\n"


def _why(some: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """What differs in the rows of one instruction."""
    reasons: dict[str, int] = {}
    for _, row in some:
        for reason, count in row.get("reasons", {}).items():
            reasons[reason] = reasons.get(reason, 0) + count
    said = [f"{count:,}: {reason or 'not explained'}" for reason, count in reasons.items()]
    bounds = [row["worst"] for _, row in some if "worst" in row]
    if bounds:
        gpu, emulated = (max(each[side] for each in bounds) for side in (0, 1))
        said.append(f"greatest error {gpu:.2f} of PTX's bound, in the emulator {emulated:.2f}")
    return "; ".join(said) or "none"


def write_page(record: Mapping[str, Any]) -> None:
    """Put the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + render(record) + END + rest.partition(END)[2])


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
        record = compare(given.folder, given.result, given.date)
        RECORD.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
    write_page(json.loads(RECORD.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
