"""Integer arithmetic, logic and shifts, moves and selections (PTX ISA 9.1, 9.7.1, 9.7.7, 9.7.8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.forms import Form, pure
from kernelbench.ptx.model import SIZES

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
    return writer.assign(
        operands[0], f"b{8 * size}", f"{writer.predicate(operands[3])} ? {yes} : {no}"
    )


INTEGER_FORMS: tuple[Form, ...] = (
    pure(f"add.{_ALL}", "$0 $0 $0", "add"),
    pure("add.sat.s32", "s32 s32 s32", "add_sat"),
    pure(f"sub.{_ALL}", "$0 $0 $0", "sub"),
    pure("sub.sat.s32", "s32 s32 s32", "sub_sat"),
    pure(f"mul.lo.{_ALL}", "$0 $0 $0", "mul_lo"),
    pure(f"mul.hi.{_ALL}", "$0 $0 $0", "mul_hi"),
    pure(f"mul.wide.{_NARROW}", "$w $0 $0", "mul_wide"),
    pure(f"mad.lo.{_ALL}", "$0 $0 $0 $0", "mad_lo"),
    pure(f"mad.hi.{_ALL}", "$0 $0 $0 $0", "mad_hi"),
    pure(f"mad.wide.{_NARROW}", "$w $0 $0 $w", "mad_wide"),
    pure(f"div.{_ALL}", "$0 $0 $0", "div"),
    pure(f"rem.{_ALL}", "$0 $0 $0", "rem"),
    pure(f"abs.{_SIGNED}", "$0 $0", "abs"),
    pure(f"neg.{_SIGNED}", "$0 $0", "neg"),
    pure(f"min.{_ALL}", "$0 $0 $0", "min"),
    pure(f"max.{_ALL}", "$0 $0 $0", "max"),
    pure(f"and.{_LOGIC}", "$0 $0 $0", "bit_and"),
    pure(f"or.{_LOGIC}", "$0 $0 $0", "bit_or"),
    pure(f"xor.{_LOGIC}", "$0 $0 $0", "bit_xor"),
    pure(f"not.{_LOGIC}", "$0 $0", "bit_not"),
    pure(f"cnot.{_BITS}", "$0 $0", "cnot"),
    pure(f"shl.{_BITS}", "$0 $0 u32", "shl"),
    pure("shr.{b16|b32|b64|u16|u32|u64|s16|s32|s64}", "$0 $0 u32", "shr"),
    pure("shf.{l|r}.{wrap|clamp}.b32", "b32 b32 b32 u32", "shf_$0_$1"),
    pure("bfe.{u32|u64|s32|s64}", "$0 $0 u32 u32", "bfe"),
    pure("bfi.{b32|b64}", "$0 $0 $0 u32 u32", "bfi"),
    pure("brev.{b32|b64}", "$0 $0", "brev"),
    pure("bmsk.{clamp|wrap}.b32", "b32 u32 u32", "bmsk_$0"),
    pure("popc.{b32|b64}", "u32 $0", "popc"),
    pure("clz.{b32|b64}", "u32 $0", "clz"),
    pure("bfind.{u32|u64|s32|s64}", "u32 $0", "bfind"),
    pure("lop3.b32", "b32 b32 b32 b32 u32", "lop3"),
    pure("prmt.b32", "b32 b32 b32 u32", "prmt"),
    Form(f"mov.{_ANY}", _move, "arithmetic"),
    Form(f"selp.{_ANY}", _select, "arithmetic"),
)
