"""Comparisons: setp and set (PTX ISA 9.1, 9.7.6, 9.7.7)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.lowering.forms import Form
from kernelbench.ptx.lowering.writer import Writer, is_integer
from kernelbench.ptx.parser.model import Operand, Pair

_ORDERED = "{eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan}"
_WHOLE = "{eq|ne|lt|le|gt|ge|lo|ls|hi|hs}"
_LOGICAL = "{.and|.or|.xor|}"
_RESULTS = "{u16|s16|u32|s32|f32|f16|bf16}"
_INTEGERS = "{b16|b32|b64|u16|u32|u64|s16|s32|s64}"
#: Of integers; lo, ls, hi, hs are the unsigned ones' other names.
_RELATIONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip


def _test(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """C++ of ``a op b``, of which the last two of an instruction's choices are flush and type."""
    relation, flush, kind = chosen
    a, b = (writer.typed(each, kind) for each in operands)
    if is_integer(kind):
        return f"{a} {_RELATIONS[relation]} {b}"
    if flush:
        a, b = f"px::flushed({a})", f"px::flushed({b})"
    return f"px::is_{relation}({a}, {b})"


def _to_predicate(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``setp.op{.bool}{.ftz}.type p{|q}, a, b{, c}``: q is of the complement."""
    relation, joined, flush, kind = chosen
    writer.expect(operands, 4 if joined else 3)
    test = _test(writer, (relation, flush, kind), operands[1:3])
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


def _to_register(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``set.op{.bool}{.ftz}.dtype.stype d, a, b{, c}``."""
    relation, joined, flush, result, kind = chosen
    writer.expect(operands, 4 if joined else 3)
    test = _test(writer, (relation, flush, kind), operands[1:3])
    if joined:
        test = f"px::bit_{joined}({test}, {writer.predicate(operands[3])})"
    return writer.assign(operands[0], result, f"px::truth<px::{result}>({test})")


def _to_pair(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``set.op{.ftz}.dtype.{f16x2,bf16x2} d, a, b``: of each half."""
    relation, flush, result, kind = chosen
    writer.expect(operands, 3)
    a, b = (writer.typed(each, kind) for each in operands[1:])
    test = f"[](auto x, auto y) {{ return px::is_{relation}(x, y); }}"
    call = f'px::truths<px::{result}, px::flags("{flush}")>({test}, {a}, {b})'
    return writer.assign(operands[0], result, call)


COMPARISON_FORMS: tuple[Form, ...] = (
    Form("setp." + _ORDERED + _LOGICAL + "{.ftz|}.{f32|f64|f16|bf16}", _to_predicate,
         "arithmetic"),
    Form("setp." + _WHOLE + _LOGICAL + "{}." + _INTEGERS, _to_predicate, "arithmetic"),
    Form("set." + _ORDERED + _LOGICAL + "{.ftz|}." + _RESULTS + ".{f32|f64|f16|bf16}",
         _to_register, "comparisons"),
    Form("set." + _WHOLE + _LOGICAL + "{}." + _RESULTS + "." + _INTEGERS, _to_register,
         "comparisons"),
    Form("set." + _ORDERED + "{.ftz|}.{f16x2|u32|s32}.{f16x2}", _to_pair, "comparisons"),
    Form("set." + _ORDERED + "{}.{bf16x2|u32|s32}.{bf16x2}", _to_pair, "comparisons"),
)  # fmt: skip
