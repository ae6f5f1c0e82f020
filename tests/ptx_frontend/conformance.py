"""Runs opcodes of the table on many operands: PTX in, bits out.

A kernel of many opcodes is written as PTX; thread t gives each of them the t-th operands. So the
parser, the table and the C++ are tested together.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import kernelbench.ptx
from kernelbench.ptx.lowering.forms import Pure
from kernelbench.ptx.lowering.table import TABLE
from kernelbench.ptx.parser.model import SIZES

TUPLES = 1024
_MOST_OPERANDS = 4
#: Opcodes of one kernel: more make functions that take long to compile.
_OPCODES_A_KERNEL = 40

_EDGES = {
    "integer": (0, 1, 2, -1, -2, 7, 8, 31, 32, 33, 63, 64, 65, 255, 0x7F, 0x80, 0x7FFF, 0x8000,
                0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, (1 << 63) - 1, 1 << 63, 0x01010101),
    "f16": (0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x3C00, 0xBC00, 0x3C01, 0x7BFF, 0xFBFF, 0x7C00,
            0xFC00, 0x7E00, 0xFE01, 0x7C01, 0x3800, 0x4900),
    "bf16": (0, 0x8000, 1, 0x8001, 0x7F, 0x80, 0x3F80, 0xBF80, 0x3F81, 0x7F7F, 0xFF7F, 0x7F80,
             0xFF80, 0x7FC0, 0xFFC1, 0x7F81, 0x3F00, 0x4120),
    # The third and fourth: a product just below the least normal number.
    "f32": (0, 0x80000000, 0x20000001, 0x1FFFFFFE, 0x7FC00000, 0x3F000000, 0xFFFFFF, 1, 0x80000001,
            0x7FFFFF, 0x807FFFFF, 0x800000, 0x3F800000, 0xBF800000,
            0x3F800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0xFFC12345,
            0x7F800001, 0x477FF000, 0x33000000, 0x33800000, 0x43E80000, 0x4F000000,
            0xCF000000, 0x5F000000, 0x7FFFFFFF, 0x3EFFFFFF, 0x4B000001),
    "f64": (0, 1 << 63, 0xFFF8000000012345, 0x7FF0000020000000, 0x7FF4000012345678, 1,
            0xFFFFFFFFFFFFF, 1 << 52, 0x3FF0000000000000, 0xBFF0000000000000,
            0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000000000,
            0x36A0000000000000, 0x47EFFFFFF0000000, 0x41DFFFFFFFC00000, 0x43E0000000000000),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One opcode; ``tail``: literal operands behind the others."""

    opcode: str
    types: tuple[str, ...]
    tail: str = ""


def pure_cases() -> Iterator[Case]:
    """Every opcode of the table that is a function of its operands."""
    for form in TABLE:
        if isinstance(form, Pure):
            for opcode, chosen in form.opcodes():
                yield Case(opcode, form.signature(chosen))


def operands_of(kind: str, position: int) -> list[int]:
    """Operands: edge values against edge values first, then random bits and random magnitudes."""
    rng = random.Random(f"{kind} {position}")
    bits = 8 * SIZES[kind]
    mask = (1 << bits) - 1
    if kind == "pred":
        return [rng.getrandbits(1) for _ in range(TUPLES)]
    halves = kind.removesuffix("x2") if kind.endswith("x2") else ""
    edges = _EDGES.get(halves or kind, _EDGES["integer"])
    if halves:
        edges = tuple(rng.choice(edges) << bits // 2 | rng.choice(edges) for _ in range(300))
    found = []
    for at in range(TUPLES):
        if at < len(edges) ** 2 and at < TUPLES * 5 // 8:
            # All pairs of edges where they fit, in another order at each position. Halves are
            # drawn for each position.
            row = 0 if halves else at // len(edges)
            value = edges[
                (row if position == 0 and not halves else at + row * (position - 1)) % len(edges)
            ]
        elif at % 3 == 0 and edges is _EDGES["integer"]:
            value = rng.getrandbits(rng.randint(1, bits))
        else:
            value = rng.getrandbits(bits)
            if kind in ("f32", "f64") and at % 2:
                # Exponents near one: sums that cancel, values that convert.
                top, shift = (0x3F, 24) if kind == "f32" else (0x3FE, 53)
                value = value & ((1 << shift) - 1 | 1 << bits - 1) | top << shift
        found.append(value & mask)
    return found


def results(cases: Sequence[Case]) -> dict[Case, list[int]]:
    """The bits that each opcode gives for each operand tuple."""
    kinds = sorted({kind for case in cases for kind in case.types[1:]})
    table = np.zeros((len(kinds), _MOST_OPERANDS, TUPLES), np.uint64)
    for row, kind in enumerate(kinds):
        for position in range(_MOST_OPERANDS):
            table[row, position] = operands_of(kind, position)
    groups = [cases[at : at + _OPCODES_A_KERNEL] for at in range(0, len(cases), _OPCODES_A_KERNEL)]
    text = "\n".join([_HEAD, *(_kernel(at, group, kinds) for at, group in enumerate(groups))])
    module = kernelbench.ptx.load("conformance.ptx", text=text)
    found: dict[Case, list[int]] = {}
    for at, group in enumerate(groups):
        out = np.zeros((len(group), TUPLES), np.uint64)
        module.launch(f"k{at}", TUPLES // 256, 256, [table, out]).require_clean()
        found |= {case: out[row].tolist() for row, case in enumerate(group)}
    return found


_HEAD = ".version 8.8\n.target sm_100a\n.address_size 64\n"


def _kernel(number: int, cases: Sequence[Case], kinds: Sequence[str]) -> str:
    lines = [f".visible .entry k{number}(.param .u64 given, .param .u64 made)", "{"]
    lines += [
        ".reg .b64 %in, %out, %offset;", ".reg .b32 %t, %c;",
        "ld.param.u64 %in, [given];", "ld.param.u64 %out, [made];",
        "mov.u32 %t, %tid.x;", "mov.u32 %c, %ctaid.x;", "shl.b32 %c, %c, 8;",
        "add.u32 %t, %t, %c;", "mul.wide.u32 %offset, %t, 8;", "add.s64 %in, %in, %offset;",
        "add.s64 %out, %out, %offset;",
    ]  # fmt: skip
    for row, case in enumerate(cases):
        lines += _body(row, case, kinds)
    return "\n".join([*lines, "ret;", "}"])


def _body(row: int, case: Case, kinds: Sequence[str]) -> Iterator[str]:
    """A scope of its own: operands of their widths, and the result stored in 64 bits."""
    yield "{"
    names = []
    for position, kind in enumerate(case.types[1:]):
        offset = (kinds.index(kind) * _MOST_OPERANDS + position) * TUPLES * 8
        name, bits = f"%a{position}", 8 * SIZES[kind]
        if kind == "pred":
            yield f".reg .pred {name}; .reg .b32 %w{position};"
            yield f"ld.global.b32 %w{position}, [%in+{offset}];"
            yield f"setp.ne.b32 {name}, %w{position}, 0;"
        else:
            # There are no registers of 8 bits: those of 16 hold them.
            yield f".reg .b{max(bits, 16)} {name};"
            yield f"ld.global.b{max(bits, 16)} {name}, [%in+{offset}];"
        names.append(name)
    result, bits = case.types[0], 8 * SIZES[case.types[0]]
    arguments = ", ".join(names) + case.tail
    yield ".reg .b64 %wide;"
    if result == "pred":
        yield ".reg .pred %d;"
        yield f"{case.opcode} %d, {arguments};"
        yield "selp.b64 %wide, 1, 0, %d;"
    else:
        held = max(bits, 16)
        yield f".reg .b{held} %d;"
        yield f"{case.opcode} %d, {arguments};"
        yield "mov.b64 %wide, %d;" if held == 64 else f"cvt.u64.u{held} %wide, %d;"
    yield f"st.global.b64 [%out+{row * TUPLES * 8}], %wide;"
    yield "}"
