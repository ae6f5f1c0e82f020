"""Integer arithmetic, logic and shifts, moves and selections (PTX ISA 9.1, 9.7.1, 9.7.7, 9.7.8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, Pure, pure
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import SIZES, Number, Operand, Pair

_ALL = "{u16|u32|u64|s16|s32|s64}"
_SIGNED = "{s16|s32|s64}"
_NARROW = "{u16|s16|u32|s32}"
_BITS = "{b16|b32|b64}"
_LOGIC = "{pred|b16|b32|b64}"
_ANY = "{pred|b8|b16|b32|b64|u8|u16|u32|u64|s8|s16|s32|s64|f16|bf16|f16x2|bf16x2|f32|f64|b128}"


def _move(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    kind = "pred" if chosen[0] == "pred" else f"b{8 * SIZES[chosen[0]]}"
    moved = writer.assign(operands[0], kind, writer.value(operands[1], SIZES[kind]))
    if kind != "b32" or not all(isinstance(each, str) for each in operands):
        return moved
    later = writer.copied(*operands)
    return f"{{ {moved}{later} }}" if later else moved


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
    return writer.assign(operands[0], "b32", _products(writer, operands))


def _products(writer: Writer, operands: Sequence[Operand]) -> str:
    table = operands[4]
    if not isinstance(table, Number):
        raise StatementError("a table that is no literal")
    a, b, c = (writer.value(each, 4) for each in operands[1:4])
    products = [
        f"({'' if at & 4 else '~'}{a} & {'' if at & 2 else '~'}{b} & {'' if at & 1 else '~'}{c})"
        for at in range(8)
        if table.value >> at & 1
    ]
    return " | ".join(products) or "0u"


def _of_table_joined(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``lop3.op d|p, a, b, c, table, q``: p says whether any bit is set, joined with q."""
    writer.expect(operands, 6)
    target, third = operands[0], writer.temporary()
    value, p = (target.first, target.second) if isinstance(target, Pair) else ("_", target)
    made = writer.temporary()
    products = _products(writer, operands)
    joined = "|" if chosen[0] == "or" else "&"
    return " ".join((
        f"{{ const bool {third} = {writer.predicate(operands[5])};",
        f"const px::b32 {made} = {products};",
        writer.assign(value, "b32", made),
        writer.assign(p, "pred", f"({made} != 0) {joined} {third}"),
        "}",
    ))  # fmt: skip


def _carrying(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``add.cc``, ``addc``, ``mad.lo.cc`` and so on: the carry flag is a variable of the function.

    PTX ISA 9.1, 9.7.2. Of a subtraction it is the borrow.
    """
    root, part, sets, kind = chosen
    size = SIZES[kind]
    writer.expect(operands, 4 if part else 3)
    half, wide = f"px::b{8 * size}", f"px::b{16 * size}"
    if part:
        product = f"px::mul_{part}({', '.join(writer.typed(each, kind) for each in operands[1:3])})"
        first, second = f"{half}({product})", writer.value(operands[3], size)
    else:
        first, second = (writer.value(each, size) for each in operands[1:])
    taken = " + carry_flag" if root.endswith("c") else ""
    sign = "-" if root.startswith("sub") else "+"
    name = writer.temporary()
    out = [f"{{ const {wide} {name} = {wide}({first}) {sign} ({wide}({second}){taken});"]
    out.append(writer.assign(operands[0], f"b{8 * size}", f"{half}({name})"))
    if sets:
        out.append(f"carry_flag = ({name} >> {8 * size} & 1) != 0;")
    return " ".join([*out, "}"])


def _by_sign(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``slct``: the first operand where the third is not negative, as -0 is not; a NaN is not."""
    flush, kind, sign = chosen
    writer.expect(operands, 4)
    size = SIZES[kind]
    yes, no = writer.value(operands[1], size), writer.value(operands[2], size)
    by = writer.typed(operands[3], sign)
    by = f"px::flushed({by})" if flush else by
    made = f"px::selected<px::b{8 * size}>({by} >= 0, {yes}, {no})"
    return writer.assign(operands[0], f"b{8 * size}", made)


#: Selectors of prmt by the low two bits of its control (PTX ISA 9.1, 9.7.9.7).
_PRMT_MODES = {
    "f4e": "0x3210, 0x4321, 0x5432, 0x6543",
    "b4e": "0x5670, 0x6701, 0x7012, 0x0123",
    "rc8": "0x0000, 0x1111, 0x2222, 0x3333",
    "ecl": "0x3210, 0x3211, 0x3222, 0x3333",
    "ecr": "0x0000, 0x1110, 0x2210, 0x3210",
    "rc16": "0x1010, 0x3232, 0x1010, 0x3232",
}

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
    Form("lop3.b32", _of_table, "integers"),
    Form("lop3.{or|and}.b32", _of_table_joined, "integers"),
    pure("prmt.b32", "b32 b32 b32 u32", "prmt"),
    *(
        pure(f"prmt.b32.{mode}", "b32 b32 b32 u32", f"prmt_mode<{selectors}>")
        for mode, selectors in _PRMT_MODES.items()
    ),
    pure("sad.{u16|u32|u64|s16|s32|s64}", "$0 $0 $0 $0", "sad"),
    pure("mul24.{lo|hi}.{u32|s32}", "$1 $1 $1", "mul24_$0"),
    pure("mad24.{lo|hi}.{u32|s32}", "$1 $1 $1 $1", "mad24_$0"),
    pure("dp4a.{u32|s32}.{u32|s32}", "b32 b32 b32 b32", "dp4a<px::$0, px::$1>"),
    pure("dp2a.lo.{u32|s32}.{u32|s32}", "b32 b32 b32 b32", "dp2a<px::$0, px::$1, 0>"),
    pure("dp2a.hi.{u32|s32}.{u32|s32}", "b32 b32 b32 b32", "dp2a<px::$0, px::$1, 2>"),
    pure("bmsk.clamp.b32", "b32 b32 b32", "bmsk<true>"),
    pure("bmsk.wrap.b32", "b32 b32 b32", "bmsk<false>"),
    pure("szext.clamp.{u32|s32}", "$0 $0 u32", "szext<true>"),
    pure("szext.wrap.{u32|s32}", "$0 $0 u32", "szext<false>"),
    pure("bfind.shiftamt.{u32|u64|s32|s64}", "u32 $0", "bfind_shiftamt"),
    pure("fns.b32", "b32 b32 u32 s32", "fns"),
    pure("add.{u16x2|s16x2}", "b32 b32 b32", "add_x2<px::u16>"),
    pure("{min|max}.u16x2", "b32 b32 b32", "$0_x2<px::u16, false>"),
    pure("{min|max}.s16x2", "b32 b32 b32", "$0_x2<px::s16, false>"),
    pure("{min|max}.relu.s16x2", "b32 b32 b32", "$0_x2<px::s16, true>"),
    # As CUDA's headers have it.
    pure("{min|max}.s16x2.relu", "b32 b32 b32", "$0_x2<px::s16, true>"),
    pure("vabsdiff4.u32.u32.u32", "b32 b32 b32 b32", "vabsdiff4"),
    pure("vabsdiff4.u32.u32.u32.add", "b32 b32 b32 b32", "vabsdiff4_add"),
    pure("{min|max}.relu.s32", "s32 s32 s32", "$0_relu"),
    Form("{add|sub}{}{.cc}.{u32|s32|u64|s64}", _carrying, "integers"),
    Form("{addc|subc}{}{.cc|}.{u32|s32|u64|s64}", _carrying, "integers"),
    Form("{mad}{.lo|.hi}{.cc}.{u32|s32|u64|s64}", _carrying, "integers"),
    Form("{madc}{.lo|.hi}{.cc|}.{u32|s32|u64|s64}", _carrying, "integers"),
    Form(
        "slct{.ftz|}.{b16|b32|b64|u16|u32|u64|s16|s32|s64|f32|f64}.{s32|f32}",
        _by_sign,
        "integers",
    ),
    Form(f"mov.{_ANY}", _move, "arithmetic"),
    Form(f"selp.{_ANY}", _select, "arithmetic"),
)
