"""Conversions (PTX ISA 9.1, 9.7.9.21 cvt, 9.7.9.22 cvt.pack)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, call, pure
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand

_INTEGERS = "{u8|u16|u32|u64|s8|s16|s32|s64}"
_WHOLE = "{rni|rzi|rmi|rpi}"
_ROUND = "{rn|rz|rm|rp}"
#: Of formats whose values come in pairs: the register that holds one.
_NARROW = {"e4m3": "b16", "e5m2": "b16", "e2m3": "b16", "e3m2": "b16", "e2m1": "b8"}


def _pack_integers(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cvt.pack.sat.KIND.s32{.b32} d, a, b{, c}``: b lowest, then a, then the low bits of c."""
    kind, rest = chosen
    if bool(rest) != kind.endswith("8"):
        raise StatementError("this pair of types")
    writer.expect(operands, 4 if rest else 3)
    a, b = (f"px::saturated<px::{kind}>({writer.typed(each, 's32')})" for each in operands[1:3])
    bits = int(kind[1:])
    mask = f"{(1 << bits) - 1:#x}u"
    value = f"(px::b32({a}) & {mask}) << {bits} | (px::b32({b}) & {mask})"
    if rest:
        value = f"{writer.value(operands[3], 4)} << 16 | {value}"
    return writer.assign(operands[0], "b32", value)


def _between_integers(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """An operand's register may be wider than its type."""
    saturate, result, kind = chosen
    writer.expect(operands, 2)
    if result == kind and saturate:
        raise StatementError("cvt.sat to the same type")
    name = f"{'saturated' if saturate else 'converted'}<{writer.cpp(result)}>"
    return writer.assign(operands[0], result, f"px::{name}({writer.typed(operands[1], kind)})")


CONVERSION_FORMS: tuple[Form, ...] = (
    Form("cvt{.sat|}." + _INTEGERS + "." + _INTEGERS, _between_integers, "arithmetic"),
    pure("cvt." + _ROUND + ".{f32|f64}." + _INTEGERS, "$1 $2", "real<px::$1, px::flags(\"$0\")>"),
    pure("cvt." + _ROUND + ".{f16|bf16}." + _INTEGERS, "$1 $2",
         "half_of<px::$1, px::flags(\"$0\")>"),
    # To integers the result is clamped anyway: .sat changes nothing.
    pure("cvt." + _WHOLE + "{.ftz|}{.sat|}." + _INTEGERS + ".f32", "$3 f32",
         "whole<px::$3, px::flags(\"$0 $1\")>"),
    pure("cvt." + _WHOLE + "{.sat|}." + _INTEGERS + ".f64", "$2 f64",
         "whole<px::$2, px::flags(\"$0\")>"),
    pure("cvt." + _WHOLE + "{.sat|}." + _INTEGERS + ".{f16|bf16}", "$2 $3",
         "whole_of_half<px::$2, px::flags(\"$0\")>"),
    # .ftz is of f32 only, whichever of the two it is.
    pure("cvt{.ftz|}{.sat|}.f32.f32", "f32 f32", "convert<px::f32, px::flags(\"$0 $1\")>"),
    pure("cvt." + _WHOLE + "{.ftz|}{.sat|}.f32.f32", "f32 f32",
         "integral_value<px::flags(\"$0 $1 $2\")>"),
    pure("cvt." + _WHOLE + "{.sat|}.f64.f64", "f64 f64",
         "integral_value<px::flags(\"$0 $1\")>"),
    pure("cvt{.ftz|}{.sat|}.f64.f32", "f64 f32", "convert<px::f64, px::flags(\"$0 $1\")>"),
    pure("cvt." + _ROUND + "{.ftz|}{.sat|}.f32.f64", "f32 f64",
         "convert<px::f32, px::flags(\"$0 $1 $2\")>"),
    pure("cvt{.ftz|}{.sat|}.f32.{f16|bf16}", "f32 $2", "wide_of<px::f32, px::flags(\"$0 $1\")>"),
    pure("cvt{.sat|}.f64.{f16|bf16}", "f64 $1", "wide_of<px::f64, px::flags(\"$0\")>"),
    pure("cvt." + _ROUND + "{.ftz|}{.sat|}.f16.f32", "f16 f32",
         "half_of<px::f16, px::flags(\"$0 $1 $2\")>"),
    pure("cvt." + _ROUND + "{.ftz|}.bf16.f32", "bf16 f32",
         "half_of<px::bf16, px::flags(\"$0 $1\")>"),
    pure("cvt." + _ROUND + "{.sat|}.f16.f64", "f16 f64",
         "half_of<px::f16, px::flags(\"$0 $1\")>"),
    pure("cvt." + _ROUND + ".bf16.f64", "bf16 f64", "half_of<px::bf16, px::flags(\"$0\")>"),
    pure("cvt." + _WHOLE + ".f16.f16", "f16 f16", "integral_half<px::flags(\"$0\")>"),
    pure("cvt." + _WHOLE + ".bf16.bf16", "bf16 bf16", "integral_half<px::flags(\"$0\")>"),
    pure("cvt." + _ROUND + ".bf16.f16", "bf16 f16", "half_of<px::bf16, px::flags(\"$0\")>"),
    pure("cvt." + _ROUND + ".f16.bf16", "f16 bf16", "half_of<px::f16, px::flags(\"$0\")>"),
    # Triton leaves the rounding out where the value, of a narrower float, fits; ptxas takes that.
    pure("cvt.f16.bf16", "f16 bf16", "half_of<px::f16, px::flags(\"\")>", "narrow"),
    pure("cvt.bf16.f16", "bf16 f16", "half_of<px::bf16, px::flags(\"\")>", "narrow"),
    pure("cvt.f16.f16", "f16 f16", "half_of<px::f16, px::flags(\"\")>", "narrow"),
    pure("cvt.{rn|rz}.relu{.satfinite|}.{f16|bf16}.f32", "$2 f32",
         "half_of<px::$2, px::flags(\"$0 relu $1\")>"),
    pure("cvt.{rn|rz}.satfinite.{f16|bf16}.f32", "$1 f32",
         "half_of<px::$1, px::flags(\"$0 satfinite\")>"),
    # Of two operands the first goes to the upper half.
    *(
        call(f"cvt.{{rn|rz}}{{.relu|}}{{.satfinite|}}.{half}x2.f32", "f32 f32",
             f'pack_halves<px::{half}, px::flags("$0 $1 $2")>', "arithmetic", result="b32")
        for half in ("f16", "bf16")
    ),
    call("cvt.{rn|rz}{.relu|}.tf32.f32", "f32", "tf32_of<px::Tf32::$0, $?1>", "narrow",
         result="b32"),
    call("cvt.rna.tf32.f32", "f32", "tf32_of<px::Tf32::rna, false>", "narrow", result="b32"),
    *(
        call(f"cvt.rn.satfinite{{.relu|}}.{kind}x2.f32", "f32 f32",
             f"pack_narrow<px::k{kind.capitalize()}, $?0>", "narrow", result=bits)
        for kind, bits in _NARROW.items()
    ),
    *(
        call(f"cvt.rn.satfinite{{.relu|}}.{kind}x2.f16x2", "f16x2",
             f"pack_narrow_pair<px::k{kind.capitalize()}, $?0>", "narrow", result="b16")
        for kind in ("e4m3", "e5m2")
    ),
    *(
        call(f"cvt.rn{{.relu|}}.f16x2.{kind}x2", bits,
             f"f16x2_of_narrow<px::k{kind.capitalize()}, $?0>", "narrow", result="b32")
        for kind, bits in _NARROW.items()
    ),
    call("cvt.rz{.satfinite|}.ue8m0x2.f32", "f32 f32", "pack_ue8m0<false>", "narrow", result="b16"),
    call("cvt.rp{.satfinite|}.ue8m0x2.f32", "f32 f32", "pack_ue8m0<true>", "narrow", result="b16"),
    pure("cvt.rn.bf16x2.ue8m0x2", "b32 b16", "bf16x2_of_ue8m0x2", "narrow"),
    Form("cvt.pack.sat.{u16|s16|u8|s8}.s32{.b32|}", _pack_integers, "narrow"),
)  # fmt: skip
