"""Integer arithmetic, logic and shifts, moves and selections (PTX ISA 9.1, 9.7.1, 9.7.7, 9.7.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.forms import Form, Pure, pure
from kernelbench.ptx.model import SIZES, Number

if TYPE_CHECKING:
    from kernelbench.ptx.model import Operand
    from kernelbench.ptx.writer import Writer

_ALL = "{u16|u32|u64|s16|s32|s64}"
_SIGNED = "{s16|s32|s64}"
_NARROW = "{u16|s16|u32|s32}"
_BITS = "{b16|b32|b64}"
_LOGIC = "{pred|b16|b32|b64}"
_ANY = "{pred|b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f16x2|bf16x2|f32|f64|b128}"


def _move(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    kind = "pred" if chosen[0] == "pred" else f"b{8 * SIZES[chosen[0]]}"
    return writer.assign(operands[0], kind, writer.value(operands[1], SIZES[kind]))


def _select(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 4)
    size = SIZES[chosen[0]]
    if size > 8 or chosen[0] == "pred":
        raise StatementError(f"selp of {chosen[0]}")
    yes, no = writer.value(operands[1], size), writer.value(operands[2], size)
    chosen_by = writer.predicate(operands[3])
    # What inline assembly makes of a predicate.
    if operands[1:3] == (Number(1), Number(0)):
        return writer.assign(operands[0], f"b{8 * size}", f"px::b{8 * size}({chosen_by})")
    made = f"px::selected<px::b{8 * size}>({chosen_by}, {yes}, {no})"
    return writer.assign(operands[0], f"b{8 * size}", made)


def _by_constant(row: Pure, operator: str) -> Pure:
    """The row; a shift by a number that is less than the width needs no function."""

    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        kind = chosen[0]
        n = operands[2] if len(operands) == 3 else None
        if SIZES[kind] < 4 or not isinstance(n, Number) or not 0 <= n.value < 8 * SIZES[kind]:
            return row.lower(writer, chosen, operands)
        return writer.assign(
            operands[0], kind, f"{writer.typed(operands[1], kind)} {operator} {n.value}"
        )

    return dataclasses.replace(row, lower=lower)


def _of_table(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``lop3``: any function of three bits, as a sum of products."""
    writer.expect(operands, 5)
    table = operands[4]
    if not isinstance(table, Number):
        raise StatementError("a table that is no literal")
    a, b, c = (writer.value(each, 4) for each in operands[1:4])
    products = [
        f"({'' if at & 4 else '~'}{a} & {'' if at & 2 else '~'}{b} & {'' if at & 1 else '~'}{c})"
        for at in range(8)
        if table.value >> at & 1
    ]
    return writer.assign(operands[0], "b32", " | ".join(products) or "0u")


INTEGER_FORMS: tuple[Form, ...] = (
    pure(f"add.{_ALL}", "$0 $0 $0", "add", plain="{0} + {1}"),
    pure("add.sat.s32", "s32 s32 s32", "add_sat"),
    pure(f"sub.{_ALL}", "$0 $0 $0", "sub", plain="{0} - {1}"),
    pure("sub.sat.s32", "s32 s32 s32", "sub_sat"),
    pure(f"mul.lo.{_ALL}", "$0 $0 $0", "mul_lo", plain="{0} * {1}"),
    pure(f"mul.hi.{_ALL}", "$0 $0 $0", "mul_hi"),
    pure(f"mul.wide.{_NARROW}", "$w $0 $0", "mul_wide"),
    pure(f"mad.lo.{_ALL}", "$0 $0 $0 $0", "mad_lo", plain="{0} * {1} + {2}"),
    pure(f"mad.hi.{_ALL}", "$0 $0 $0 $0", "mad_hi"),
    pure(f"mad.wide.{_NARROW}", "$w $0 $0 $w", "mad_wide"),
    pure(f"div.{_ALL}", "$0 $0 $0", "div"),
    pure(f"rem.{_ALL}", "$0 $0 $0", "rem"),
    pure(f"abs.{_SIGNED}", "$0 $0", "abs"),
    pure(f"neg.{_SIGNED}", "$0 $0", "neg"),
    pure(f"min.{_ALL}", "$0 $0 $0", "min"),
    pure(f"max.{_ALL}", "$0 $0 $0", "max"),
    pure(f"and.{_LOGIC}", "$0 $0 $0", "bit_and", plain="{0} & {1}"),
    pure(f"or.{_LOGIC}", "$0 $0 $0", "bit_or", plain="{0} | {1}"),
    pure(f"xor.{_LOGIC}", "$0 $0 $0", "bit_xor", plain="{0} ^ {1}"),
    pure(f"not.{_LOGIC}", "$0 $0", "bit_not", plain="~{0}"),
    pure(f"cnot.{_BITS}", "$0 $0", "cnot"),
    _by_constant(pure(f"shl.{_BITS}", "$0 $0 u32", "shl"), "<<"),
    _by_constant(pure("shr.{b16|b32|b64|u16|u32|u64|s16|s32|s64}", "$0 $0 u32", "shr"), ">>"),
    pure("shf.{l|r}.{wrap|clamp}.b32", "b32 b32 b32 u32", "shf_$0_$1"),
    pure("bfe.{u32|u64|s32|s64}", "$0 $0 u32 u32", "bfe"),
    pure("bfi.{b32|b64}", "$0 $0 $0 u32 u32", "bfi"),
    pure("brev.{b32|b64}", "$0 $0", "brev"),
    pure("popc.{b32|b64}", "u32 $0", "popc"),
    pure("clz.{b32|b64}", "u32 $0", "clz"),
    pure("bfind.{u32|u64|s32|s64}", "u32 $0", "bfind"),
    Form("lop3.b32", _of_table, "arithmetic"),
    pure("prmt.b32", "b32 b32 b32 u32", "prmt"),
    Form(f"mov.{_ANY}", _move, "arithmetic"),
    Form(f"selp.{_ANY}", _select, "arithmetic"),
)
