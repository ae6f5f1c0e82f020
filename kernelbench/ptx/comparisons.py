"""Comparisons into predicates and into values (PTX ISA 9.1, 9.7.6 and 9.7.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.forms import Form
from kernelbench.ptx.model import Pair
from kernelbench.ptx.writer import is_integer

if TYPE_CHECKING:
    from kernelbench.ptx.model import Operand
    from kernelbench.ptx.writer import Writer

_ORDERED = "{eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan}"
_LOGICAL = "{.and|.or|.xor|}"
_PLAIN = "{b16|b32|b64|u16|u32|u64|s16|s32|s64}"
_UNSIGNED = "{eq|ne|lt|le|gt|ge|lo|ls|hi|hs}"
#: Of integers; lo, ls, hi, hs are the unsigned ones' other names.
_RELATIONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
#: What ``set`` gives for true, as bits.
_TRUE = {"f16": 0x3C00, "bf16": 0x3F80, "f32": 0x3F800000}
_TRUE |= dict.fromkeys(("u16", "s16"), 0xFFFF) | dict.fromkeys(("u32", "s32"), 0xFFFFFFFF)


def _test(writer: Writer, relation: str, flush: str, kind: str, pair: Sequence[Operand]) -> str:
    """The relation of two operands, as an expression."""
    a, b = (writer.typed(each, kind) for each in pair)
    if flush:
        a, b = f"px::flushed({a})", f"px::flushed({b})"
    if is_integer(kind):
        return f"{a} {_RELATIONS[relation]} {b}"
    return f"px::is_{relation}({a}, {b})"


def _into_predicates(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``setp.op{.bool}{.ftz}.type p{|q}, a, b{, c}``: q is of the complement."""
    relation, joined, flush, kind = chosen
    writer.expect(operands, 4 if joined else 3)
    test = _test(writer, relation, flush, kind, operands[1:3])
    both = isinstance(operands[0], Pair)
    if not both and not joined:
        return writer.assign(operands[0], "pred", test)
    found = writer.temporary()
    out = [f"const bool {found} = {test};"]
    targets = operands[0] if isinstance(operands[0], Pair) else (operands[0],)
    # The third operand may be one of the targets.
    third = writer.temporary()
    if joined:
        out.append(f"const bool {third} = {writer.predicate(operands[3])};")
    for target, text in zip(targets, (found, f"!{found}") if both else (found,), strict=True):
        value = f"px::bit_{joined}({text}, {third})" if joined else text
        out.append(writer.assign(target, "pred", value))
    return "{ " + " ".join(out) + " }"


def _into_value(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``set.op{.ftz}.dtype.stype d, a, b``: all ones, or 1.0, where the relation holds."""
    relation, flush, result, kind = chosen
    writer.expect(operands, 3)
    test = _test(writer, relation, flush, kind, operands[1:])
    true = _TRUE[result]
    bits = "b16" if true < 1 << 16 else "b32"
    return writer.assign(operands[0], bits, f"px::{bits}({test} ? {true:#x}u : 0u)")


def _into_pair(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``set.op.dtype.stype d, a, b`` of f16x2 and bf16x2: for each half."""
    relation, result, kind = chosen
    writer.expect(operands, 3)
    a, b = (writer.typed(each, kind) for each in operands[1:])
    true = _TRUE[result.removesuffix("x2")] & 0xFFFF
    test = f"[](auto x, auto y) {{ return px::is_{relation}(x, y); }}"
    return writer.assign(operands[0], "b32", f"px::set_halves({a}, {b}, {true:#x}u, {test})")


COMPARISON_FORMS: tuple[Form, ...] = (
    Form("setp." + _ORDERED + _LOGICAL + "{.ftz|}.{f32|f64|f16|bf16}", _into_predicates,
         "arithmetic"),
    Form("setp." + _UNSIGNED + _LOGICAL + "{}." + _PLAIN, _into_predicates, "arithmetic"),
    Form("set." + _ORDERED + "{.ftz|}.{u32|s32|f32}.{f32|f64}", _into_value, "comparisons"),
    Form("set." + _ORDERED + "{}.{f16|u16|s16|u32|s32}.{f16}", _into_value, "comparisons"),
    Form("set." + _ORDERED + "{}.{bf16|u16|s16|u32|s32}.{bf16}", _into_value, "comparisons"),
    Form("set." + _UNSIGNED + "{}.{u32|s32|f32}." + _PLAIN, _into_value, "comparisons"),
    Form("set." + _ORDERED + ".{f16x2|u32|s32}.{f16x2}", _into_pair, "comparisons"),
    Form("set." + _ORDERED + ".{bf16x2|u32|s32}.{bf16x2}", _into_pair, "comparisons"),
)  # fmt: skip
