"""Floating-point arithmetic (PTX ISA 9.1, 9.7.3 to 9.7.5).

Correctly rounded but for what PTX itself approximates (``.approx``, ``.full``): there the C
library's function stands for the GPU's, which is within PTX's error bounds and not the same bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from kernelbench.ptx.lowering.forms import Form, Pure, pure
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand

_ROUND = "{.rn|.rz|.rm|.rp|}"


def _of_three(row: Pure) -> Pure:
    """The row, also with three operands: the extreme of the first two and the third."""

    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        if len(operands) != 4:
            return row.lower(writer, chosen, operands)
        a, b, c = (writer.typed(each, "f32") for each in operands[1:])
        name = row.call(chosen)
        return writer.assign(operands[0], "f32", f"{name}({name}({a}, {b}), {c})")

    return dataclasses.replace(row, lower=lower)


FLOAT_FORMS: tuple[Form, ...] = (
    pure("add" + _ROUND + "{.ftz|}{.sat|}.f32", "f32 f32 f32", "add<px::flags(\"$0 $1 $2\")>"),
    pure("sub" + _ROUND + "{.ftz|}{.sat|}.f32", "f32 f32 f32", "sub<px::flags(\"$0 $1 $2\")>"),
    pure("mul" + _ROUND + "{.ftz|}{.sat|}.f32", "f32 f32 f32", "mul<px::flags(\"$0 $1 $2\")>"),
    pure("fma.{rn|rz|rm|rp}{.ftz|}{.sat|}.f32", "f32 f32 f32 f32",
         "fma<px::flags(\"$0 $1 $2\")>"),
    # PTX ISA 9.1, 9.7.5: the first operands of 16 bits.
    pure("{add|sub}" + _ROUND + "{.sat|}.f32.{f16|bf16}", "f32 $3 f32",
         "$0_mixed<px::flags(\"$1 $2\")>"),
    pure("fma.{rn|rz|rm|rp}{.sat|}.f32.{f16|bf16}", "f32 $2 $2 f32",
         "fma_mixed<px::flags(\"$0 $1\")>"),
    pure("add" + _ROUND + ".f64", "f64 f64 f64", "add<px::flags(\"$0\")>"),
    pure("sub" + _ROUND + ".f64", "f64 f64 f64", "sub<px::flags(\"$0\")>"),
    pure("mul" + _ROUND + ".f64", "f64 f64 f64", "mul<px::flags(\"$0\")>"),
    pure("fma.{rn|rz|rm|rp}.f64", "f64 f64 f64 f64", "fma<px::flags(\"$0\")>"),
    pure("{add|sub|mul}" + _ROUND + "{.ftz|}.f32x2", "f32x2 f32x2 f32x2",
         "$0<px::flags(\"$1 $2\")>"),
    pure("fma.{rn|rz|rm|rp}{.ftz|}.f32x2", "f32x2 f32x2 f32x2 f32x2",
         "fma<px::flags(\"$0 $1\")>"),
    pure("div.{rn|rz|rm|rp}{.ftz|}.f32", "f32 f32 f32", "div<px::flags(\"$0 $1\")>"),
    pure("div.{rn|rz|rm|rp}.f64", "f64 f64 f64", "div<px::flags(\"$0\")>"),
    pure("{rcp|sqrt}.{rn|rz|rm|rp}.f64", "f64 f64", "$0<px::flags(\"$1\")>"),
    pure("div.{full}{.ftz|}.f32", "f32 f32 f32", "div<px::flags(\"$1\")>"),
    pure("div.{approx}{.ftz|}.f32", "f32 f32 f32", "div_approx<px::flags(\"$1\")>"),
    pure("rcp.{rn|rz|rm|rp|approx}{.ftz|}.f32", "f32 f32", "rcp<px::flags(\"$0 $1\")>"),
    pure("sqrt.{rn|rz|rm|rp|approx}{.ftz|}.f32", "f32 f32", "sqrt<px::flags(\"$0 $1\")>"),
    pure("{sin|cos}.approx{.ftz|}.f32", "f32 f32", "$0<px::flags(\"$1\")>"),
    pure("rsqrt.approx{.ftz|}.f32", "f32 f32", "rsqrt<px::flags(\"$0\")>"),
    pure("ex2.approx{.ftz|}.f32", "f32 f32", "ex2<px::flags(\"$0\")>"),
    pure("lg2.approx{.ftz|}.f32", "f32 f32", "lg2<px::flags(\"$0\")>"),
    pure("tanh.approx.f32", "f32 f32", 'tanh<px::flags("")>'),
    pure("neg{.ftz|}.f32", "f32 f32", "neg<px::flags(\"$0\")>"),
    pure("abs{.ftz|}.f32", "f32 f32", "abs<px::flags(\"$0\")>"),
    pure("{neg|abs}.f64", "f64 f64", "$0<px::flags(\"\")>"),
    _of_three(pure("{min|max}{.ftz|}{.NaN|}.f32", "f32 f32 f32", "$0<px::flags(\"$1 $2\")>")),
    pure("{min|max}.f64", "f64 f64 f64", "$0<px::flags(\"\")>"),
    pure("copysign.{f32|f64}", "$0 $0 $0", "copysign"),
    pure("{add|sub|mul}{.rn|}{.ftz|}{.sat|}.{f16|f16x2}", "$4 $4 $4",
         "$0_half<px::flags(\"$2 $3\")>"),
    pure("{add|sub|mul}{.rn|}.{bf16|bf16x2}", "$2 $2 $2", "$0_half<px::flags(\"\")>"),
    pure("fma.rn{.ftz|}{.sat|.relu|}.{f16|f16x2}", "$2 $2 $2 $2",
         "fma_half<px::flags(\"$0 $1\")>"),
    pure("fma.rn{.relu|}.{bf16|bf16x2}", "$1 $1 $1 $1", "fma_half<px::flags(\"$0\")>"),
    pure("{neg|abs}{.ftz|}.{f16|f16x2}", "$2 $2", "$0_half<px::flags(\"$1\")>"),
    pure("{neg|abs}.{bf16|bf16x2}", "$1 $1", "$0_half<px::flags(\"\")>"),
    pure("{min|max}{.ftz|}{.NaN|}.{f16|f16x2}", "$3 $3 $3", "$0_half<px::flags(\"$1 $2\")>"),
    pure("{min|max}{.NaN|}.{bf16|bf16x2}", "$2 $2 $2", "$0_half<px::flags(\"$1\")>"),
    pure("{min|max}{.ftz|}{.NaN|}.xorsign.abs.{f16|f16x2}", "$3 $3 $3",
         "$0_xorsign_half<px::flags(\"$1 $2\")>"),
    pure("{min|max}{.NaN|}.xorsign.abs.{bf16|bf16x2}", "$2 $2 $2",
         "$0_xorsign_half<px::flags(\"$1\")>"),
    pure("{min|max}{.ftz|}{.NaN|}.xorsign.abs.f32", "f32 f32 f32",
         "$0_xorsign<px::flags(\"$1 $2\")>"),
    pure("tanh.approx.{f16|f16x2|bf16|bf16x2}", "$0 $0", "tanh_half<px::flags(\"\")>"),
    pure("ex2.approx.{f16|f16x2}", "$0 $0", "exp2_half<px::flags(\"\")>"),
    pure("ex2.approx.ftz.{bf16|bf16x2}", "$0 $0", "exp2_half<px::flags(\"\")>"),
    pure("testp.{finite|infinite|number|notanumber|normal|subnormal}.{f32|f64}", "pred $1",
         "testp_$0"),
    # PTX ISA 9.1, 9.7.3.13, 9.7.3.18: by the upper words alone.
    pure("{rcp|rsqrt}.approx.ftz.f64", "f64 f64", "$0_upper"),
    pure("rsqrt.approx.f64", "f64 f64", "rsqrt_twice"),
)  # fmt: skip
