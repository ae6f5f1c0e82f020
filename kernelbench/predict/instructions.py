"""How many instructions of a GPU a step's code stands for, of which kind, and in what order.

Steps run from their own source, built for the CPU. What that build computes, a GPU computes, too:
counted are the instructions of its disassembly that are no moves, jumps or calls. Of a path that
a warp takes from one record to the next, the longest chain of instructions that depend on each
other follows from the registers and places of the stack that each reads and writes.
"""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from kernelbench.base.errors import EnvironmentProblem

_HOOK = "<__sanitizer_cov_trace_pc@plt>"
#: What a GPU keeps in registers, has no instruction for, or has in another one, as a product in
#: the sum that takes it; loads and stores are in records of accesses. Of x86-64 and of AArch64.
_NONE = re.compile(
    r"mov(?!msk)|mulss|pxor|push|pop|nop|j|ret|leave|c[wlq]t|xchg|cs|endbr|data16|ud2|hlt|"
    r"f?mov|ld[rpu]|st[rpu]|adrp|b$|b\.|br|cb|tb"
)
#: Instructions that nvcc 13.0 makes of one of x86-64, and of a call of libm; the rest are one.
_SEVERAL = {"div": 18, "idiv": 18, "divss": 10, "divsd": 10, "sqrtss": 8}
_LIBM, _LIBM_INSTRUCTIONS = re.compile(r"<(exp|tanh|log|sqrt|pow|ldexp)\w*@plt>"), 15
_LINE = re.compile(r"^ +([0-9a-f]+):\t(\S+)\s*(.*)")
#: Where instructions are emulated, and the marks of those that no record stands for.
_EMULATED, _ONE = "/backend/emu/", ("fnop", "yield")

#: ``Stretched`` in replay.cpp: of a path its instructions, those of three classes, how many of
#: which latency its longest chain has (of arithmetic, special ones, loads of shared memory), and
#: those of blocks that no path before it has.
_FIELDS = "all floats integers special chain chain_special chain_loads fresh"
STRETCH = np.dtype([(name, "u4") for name in _FIELDS.split()])
_FLOATS, _INTEGERS, _SPECIAL = range(3)
#: By which chains are compared, in cycles (docs/evidence-predict.md); their costs are the device's.
_LATENCY, _LOAD_LATENCY = (4, 4, 17), 29
#: ``kAccess`` in timing.cpp, and what is behind it.
_ACCESS, _SHARED = 1 << 31, 1
_FLOAT = re.compile(r"(add|sub|mul|div|sqrt|min|max|u?comi)s[sd]$|cvts[sd]2s[sd]$|v?fn?m(add|sub)")
_TO_INTEGER = re.compile(r"cvtt?s[sd]2si|popcnt|[lt]zcnt|bs[rf]")
_LOGIC = re.compile(r"(and|or|xor)[bwlq]?$")
_COMPARES = re.compile(r"(cmp|test|bt)[bwlq]?$|u?comis")
#: Of these the last operand is written only; and what leaves flags, or takes them.
_COPIES = re.compile(r"mov|lea|set|cvt")
_KEEPS_FLAGS = re.compile(r"mov|lea|not|cvt|pxor|set|cmov|bswap|.*[sp][sd]$")
_BY_FLAGS = re.compile(r"set|cmov|adc|sbb")
_FLOW = re.compile(r"j|ret|leave|push|pop|nop|endbr|data16|cs|ud2|hlt|xchg")
#: Emulated instructions that a GPU executes where it does those of floats.
_AS_FLOATS = ("mul_rn_f16x2", "cvt_f32_f16")
_OPERAND = re.compile(r"(?:[^,(]|\([^)]*\))+")
_REGISTER = re.compile(
    r"%(?:[re]?([abcd])[xlh]|[re]?(si|di|bp|sp)l?|r(\d+)[dwb]?|[xy]mm(\d+))(?![\w])"
)
#: Registers that a call does not keep.
_SCRATCH = ("1a", "1c", "1d", "2si", "2di", "38", "39", "310", "311", *(f"4{i}" for i in range(16)))
_FLAGS, _ELSEWHERE = "flags", "memory"


class _Operation(NamedTuple):
    """An instruction of x86-64."""

    what: str  # op, access (a hook), one (an emulated instruction follows), call
    kind: int = _INTEGERS
    number: int = 0  # of instructions on a GPU; of a load, 1
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    emulated: bool = False
    logic: bool = False  # joins with one before it: a GPU's takes three operands
    packs: bool = False  # moves half of two registers


@functools.cache
def _listing(module: str) -> str:
    try:
        return subprocess.run(
            ["objdump", "-dl", "--no-show-raw-insn", module],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise EnvironmentProblem(
            "--predict: objdump, which counts instructions, does not run", "install binutils"
        ) from error


@functools.cache
def instructions_by_block(module: str) -> bytes:
    """By offset in a library, two bytes each: the instructions of the block that begins there.

    Raises:
        EnvironmentProblem: Without objdump.
    """
    return blocks_of(_listing(module)).tobytes()


def blocks_of(listing: str) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """What :func:`instructions_by_block` makes of objdump's text."""
    found: dict[int, int] = {}
    for block, _, emulated, name, operands in _lines(listing):
        found.setdefault(block, 0)
        if name and (not emulated or name in _ONE):
            found[block] += _instructions(name, operands)
    weights = np.zeros(max(found, default=-1) + 1, np.uint16)
    for at, count in found.items():
        weights[at] = min(count, 0xFFFF)
    return weights


def _lines(listing: str) -> Iterator[tuple[int, str, bool, str, str]]:
    """Block, function, whether it is emulated, instruction and operands; first of a block none."""
    block, begins, emulated, function = -1, False, False, ""
    for line in listing.splitlines():
        if line.startswith("/"):
            emulated = _EMULATED in line
        elif line.endswith("():"):
            function = line
        if line.endswith(">:"):
            block = -1
        if (match := _LINE.match(line)) is None:
            continue
        at, name, operands = match.groups()
        if begins:
            block = int(at, 16)
            yield block, function, emulated, "", ""
        begins = _HOOK in operands
        if block >= 0 and not begins:
            yield block, function, emulated, name, operands


def _instructions(name: str, operands: str) -> int:
    if name in ("call", "bl"):
        if _LIBM.search(operands):
            return _LIBM_INSTRUCTIONS
        # Hooks, and primitives, which have records.
        return int("kb3emu" not in operands and "__" not in operands)
    if _NONE.match(name) or (name == "lea" and operands.endswith("%rdi")):
        return 0
    if name == "xor" and len(set(operands.split(","))) == 1:
        return 0
    return _SEVERAL.get(name, 1)


@functools.cache
def _operations(module: str) -> Mapping[int, list[_Operation]]:
    found: dict[int, list[_Operation]] = {}
    for block, function, emulated, name, operands in _lines(_listing(module)):
        into = found.setdefault(block, [])
        if name and (made := _operation(name, operands.split("#")[0].strip(), function, emulated)):
            into.append(made)
    return found


def _operation(name: str, operands: str, function: str, emulated: bool) -> _Operation | None:
    if name in _ONE:
        floats = any(each in function for each in _AS_FLOATS)
        return _Operation("one", _FLOATS if floats else _INTEGERS)
    if name in ("call", "bl"):
        if "__tsan_" in operands:
            return _Operation("access", number="read" in operands)
        # What is no primitive, nvcc inlines.
        return _Operation("call", number=_instructions(name, operands) if "@plt" in operands else 0)
    if _FLOW.match(name) or not operands:
        return None
    given = [_place(each) for each in _OPERAND.findall(operands)]
    addresses = [register for _, of in given for register in of]
    places = [place for place, _ in given if place]
    last = given[-1][0]
    kind = _FLOATS if _FLOAT.match(name) else _SPECIAL if _TO_INTEGER.match(name) else _INTEGERS
    count = 0 if emulated else _instructions(name, operands)
    if _COMPARES.match(name):
        return _Operation("op", kind, count, (*addresses, *places), (_FLAGS,), emulated)
    if "xor" in name and len(set(_OPERAND.findall(operands))) == 1:
        return _Operation("op", writes=(last,), emulated=emulated)
    reads = places[:-1] if _COPIES.match(name) and last else places
    reads = addresses if name.startswith("lea") else [*addresses, *reads]
    if _BY_FLAGS.match(name):
        reads = [*reads, _FLAGS]
    flags = "" if _KEEPS_FLAGS.match(name) else _FLAGS
    writes = tuple(each for each in (last, flags) if each)
    packs = name in ("shl", "shr") and operands.startswith("$0x20,")
    logic = bool(_LOGIC.match(name))
    return _Operation("op", kind, count, tuple(reads), writes, emulated, logic, packs)


def _place(operand: str) -> tuple[str, list[str]]:
    """A register or a place of the stack, by a name; and the registers of an address."""
    registers = [f"{m.lastindex}{m[m.lastindex or 0]}" for m in _REGISTER.finditer(operand)]
    if "(" not in operand:
        return (registers[0] if registers else ""), []
    if registers in (["2bp"], ["2sp"]):
        return operand, []
    if registers and registers[0] in ("2bp", "2sp"):
        return "", registers[1:]
    return ("", registers) if "(%rip)" in operand else (_ELSEWHERE, registers)


def stretches_of(
    module: str, paths: np.ndarray[Any, np.dtype[np.uint32]]
) -> np.ndarray[Any, np.dtype[Any]]:
    """Of each path of a trace what it takes, of dtype :data:`STRETCH`.

    Args:
        paths: As the runtime has kept them: of each its instructions, its length, itself.

    Raises:
        EnvironmentProblem: Without objdump.
    """
    if not len(paths):
        return np.zeros(0, STRETCH)
    blocks, found, at = _operations(module), [], 0
    weights, seen = np.frombuffer(instructions_by_block(module), np.uint16), set[int]()
    while at < len(paths):
        count, length = paths[at : at + 2].tolist()
        path = paths[at + 2 : at + 2 + length].tolist()
        new = {each for each in path if each < len(weights)} - seen
        seen |= new
        found.append((count, *_stretch(blocks, path), sum(weights[each] for each in new)))
        at += 2 + length
    return np.array(found, STRETCH)


#: How long until a value is there: in cycles, and what the chain up to it has of each latency.
_Chain = tuple[int, int, int, int]
_READY: tuple[_Chain, int] = ((0, 0, 0, 0), 0)


def _stretch(blocks: Mapping[int, list[_Operation]], path: list[int]) -> tuple[int, ...]:
    counts, longest = [0, 0, 0], _READY[0]
    # By place: its chain, and the emulated instruction that wrote it.
    known: dict[str, tuple[_Chain, int]] = {}
    joined: set[str] = set()
    packed: set[str] = set()
    one, one_kind = 0, _INTEGERS
    for at, token in enumerate(path):
        if token & _ACCESS:
            continue
        accesses = itertools.takewhile(lambda each: each & _ACCESS, path[at + 1 :])
        load = 0
        for op in blocks.get(token, ()):
            if op.what == "access":
                where = next(accesses, 0) & ~_ACCESS
                load = where if op.number else 0
            elif op.what == "one":
                one, one_kind = one + 1, op.kind
                counts[op.kind] += 1
            elif op.what == "call":
                for place in _SCRATCH:
                    known.pop(place, None)
                counts[_FLOATS] += op.number
            else:
                chain = _READY[0]
                for place in op.reads:
                    before, by = known.get(place, _READY)
                    enters = op.emulated and by != one
                    chain = max(chain, _and(before, one_kind) if enters else before)
                if load == _SHARED and not op.emulated and _ELSEWHERE in op.reads:
                    chain, load = (chain[0] + _LOAD_LATENCY, *chain[1:3], chain[3] + 1), 0
                joins = op.logic and not (joined | packed).isdisjoint(op.reads)
                count = 0 if op.packs or joins else op.number
                counts[op.kind] += count
                for _ in range(count):
                    chain = _and(chain, op.kind)
                longest = max(longest, chain)
                for place in op.writes:
                    known[place] = chain, one if op.emulated else 0
                    for marked, are in ((joined, op.logic and count > 0), (packed, op.packs)):
                        (marked.add if are and place != _FLAGS else marked.discard)(place)
    return (*counts, *longest[1:])


def _and(chain: _Chain, kind: int) -> _Chain:
    """A chain, and another instruction behind it."""
    special = kind == _SPECIAL
    return chain[0] + _LATENCY[kind], chain[1] + (not special), chain[2] + special, chain[3]
