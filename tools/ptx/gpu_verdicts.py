"""What an H200 made of the launches of ``gpu_conformance.py`` beside the emulator's results."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernelbench.base.json_file import read_json, write_gzip
from kernelbench.report.readme_tables import replace_between

HERE = Path(__file__).resolve().parent
RECORD, PAGE = HERE / "gpu_conformance.json.gz", HERE.parents[1] / "docs" / "evidence-ptx.md"
MARKERS = ("<!-- gpu-conformance -->", "<!-- /gpu-conformance -->")
#: What the emulator's tensor maps begin with, and their size.
MAP_MAGIC, MAP_BYTES = 0x70616D2D726F736E, 128
_EXAMPLES, _GREATEST = 3, 3.4028234663852886e38


def record(folder: Path, result: Path, date: str) -> None:
    """Write the record of a comparison."""
    made = compare(folder, result, date)
    write_gzip(RECORD, json.dumps(made, indent=0, sort_keys=True).encode())


def compare(folder: Path, result: Path, date: str) -> dict[str, Any]:
    """What a GPU made beside what the emulator made, by opcode and by kernel."""
    launches = json.loads((folder / "launches.json").read_text())
    kinds = json.loads((folder / "kinds.json").read_text())
    table = dict(zip(kinds, np.load(folder / "arithmetic.npz")["table"], strict=True))
    made = dict(np.load(result))
    want = {
        key: value for file in folder.glob("*.want.npz") for key, value in np.load(file).items()
    }
    notes = {
        key.removeprefix("notes "): json.loads(str(value))
        for key, value in made.items()
        if key.startswith("notes ")
    }
    devices = {each["device"] for each in notes.values() if each.get("device")}
    verdict: dict[str, Any] = {
        "date": date, "device": ", ".join(sorted(devices)), "arithmetic": {}, "kernels": {},
        "failed": {}, "left_out": json.loads((folder / "left_out.json").read_text()),
    }  # fmt: skip
    for launch in launches:
        keys = [f"{launch['id']}_{at}" for at in launch["compared"]]
        if any(key not in made for key in keys):
            said = notes.get(launch.get("module", ""), {}).get("error")
            if not said:
                raise SystemExit(f"the result has nothing of {launch['test']} {launch['kernel']}")
            verdict["failed"][f"{launch['test']}: {_described(launch)}"] = said
            continue
        if launch["test"] == "arithmetic":
            verdict["arithmetic"][launch["opcodes"][0]] = _of_opcode(
                launch, table, made[keys[0]], want[keys[0]]
            )
            continue
        name = f"{launch['test']}: {_described(launch)}"
        row = verdict["kernels"].setdefault(
            name, {"launches": 0, "threads": 0, "words": 0, "differing": 0}
        )
        row["launches"] += 1
        row["threads"] += int(np.prod(launch["grid"]) * np.prod(launch["block"]))
        for key in keys:
            apart = made[key].view(np.uint8) != want[key].view(np.uint8)
            for at in _maps_in(want[key].view(np.uint8)):
                apart[at : at + MAP_BYTES] = False  # each side has a form of its own
            row["words"] += apart.size // 4
            row["differing"] += int(np.count_nonzero(apart))
            if apart.any():
                # One that is not explained leaves the row without a reason.
                found = _other_order(folder, launch, made[key])
                row["reason"] = found if row.get("reason", found) else ""
    return verdict


def _other_order(folder: Path, launch: Mapping[str, Any], made: Any) -> str:
    """Why a GPU made something else where two CTAs combine with the same words; empty if not so."""
    from test_reductions import _combined

    operation = launch["kernel"].removesuffix("_u32")
    if launch["test"] != "reductions" or operation not in ("inc", "dec"):
        return ""
    before = np.load(folder / f"{launch['module']}.npz")
    sent, start = (before[name].view(np.uint32) for name in launch["given"][:2])
    first, second = sent.reshape(2, -1)
    words, either = made.view(np.uint32), np.zeros(start.shape, bool)
    for one, other in ((first, second), (second, first)):
        either |= words == _combined(operation, _combined(operation, start, one), other)
    return "the other order of two CTAs" if either.all() else ""


def _maps_in(array: Any) -> list[int]:
    """Where the emulator's tensor maps begin in an array."""
    words = array[: array.size // 8 * 8].view(np.uint64)
    return [8 * at for at in np.flatnonzero(words == MAP_MAGIC).tolist()]


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
        if not isinstance(near, Near) or kinds[0] != "f32":
            return {}
        if _is_far(opcode, given[0]):
            continue
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
LEAST = "offset of -2^31"
FAR = "outside of -2π to 2π, where PTX has no bound"
KEPT_SUBNORMAL = "a subnormal that ptxas does not flush"


def explained(
    opcode: str, kinds: Sequence[str], given: Sequence[int], gpu: int, emulated: int
) -> str:
    """Why a GPU's result differs from the emulator's; empty if nothing known explains it."""
    from exact import F64
    from float_model import Near, float_result

    if _approximates(opcode):
        near = float_result(opcode, given, kinds)
        if not isinstance(near, Near):
            return APPROXIMATE if _halves_within(opcode, kinds[0], given[0], gpu) else ""
        if _within(gpu, near, kinds[0]) and _within(emulated, near, kinds[0]):
            return APPROXIMATE
        return FAR if _is_far(opcode, given[0]) else ""
    if kinds[0] == "f64" and {F64.decode(gpu).size, F64.decode(emulated).size} == {"nan"}:
        return NAN_BITS
    if opcode in ("bfe.u64", "bfe.s64", "bfi.b64") and max(given[-2:]) > 255:
        return FIELDS
    if opcode == "fns.b32" and given[2] == 1 << 31:
        return LEAST
    rounds_away = re.fullmatch(r"cvt\.r[mp]\.ftz(\.sat)?\.f16\.f32", opcode)
    if rounds_away and 0 < given[0] % (1 << 31) < 1 << 23:
        return KEPT_SUBNORMAL
    return ""


#: PTX's bounds on what approximates in 16 bits (9.7.4: tanh absolute, ex2 relative).
_OF_HALVES = {
    ("tanh", "f16"): 2**-10.987, ("tanh", "bf16"): 2**-8,
    ("ex2", "f16"): 2**-9.9, ("ex2", "bf16"): 2**-7,
}  # fmt: skip


def _halves_within(opcode: str, kind: str, operand: int, result: int) -> bool:
    """Whether each half of a GPU's result is within PTX's bound of the exact value."""
    from exact import FORMATS
    from float_model import _as_float

    form = FORMATS[kind.removesuffix("x2")]
    root = opcode.split(".")[0]
    bound = _OF_HALVES[root, kind.removesuffix("x2")]
    for lane in range(2 if kind.endswith("x2") else 1):
        given, got = (
            _as_float(form.decode(each >> 16 * lane & 0xFFFF)) for each in (operand, result)
        )
        if math.isnan(given) or math.isnan(got):
            if math.isnan(given) != math.isnan(got):
                return False
            continue
        if root == "tanh":
            exact, allowed = math.tanh(given), bound
        else:
            exact = 2.0**given if given < 1000 else math.inf
            # What is subnormal has fewer bits, or none.
            allowed = bound * exact + 2.0 ** (
                form.least - (0 if "ftz" in opcode else form.precision - 1)
            )
        if math.isinf(exact) or math.isinf(got):
            if exact != got and exact < float(form.greatest):
                return False
        elif abs(got - exact) > allowed:
            return False
    return True


def _is_far(opcode: str, operand: int) -> bool:
    value = float(np.array(operand, np.uint32).view(np.float32))
    return opcode.startswith(("sin", "cos")) and abs(value) > 2 * math.pi


def _within(bits: int, near: Any, kind: str) -> bool:
    from test_arithmetic import _fits

    return bool(_fits(bits, near, kind))


def render(of: Mapping[str, Any]) -> str:
    """The tables of a record."""
    rows: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for opcode, row in of["arithmetic"].items():
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
    for name, row in of["kernels"].items():
        # What they begin with stands for those of one instruction.
        found = re.match(r"\w+: (?:atom|red|cp\.async|[a-z]+)", name)
        counts = groups.setdefault(found[0] if found else name, [0, 0, 0, 0])
        for at, key in enumerate(("launches", "threads", "words", "differing")):
            counts[at] += row[key]
    for name, counts in sorted(groups.items()):
        lines.append(f"| {name} | {' | '.join(f'{each:,}' for each in counts)} |")
    return "\n".join(lines)


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


def write_page() -> None:
    """Put the record's tables into the page."""
    PAGE.write_text(replace_between(PAGE.read_text(), MARKERS, render(read_json(RECORD))))
