"""Matrices of a warp: ldmatrix, stmatrix, movmatrix, mma.sync, mma.sp (PTX ISA 9.1, 9.7.14)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, call
from kernelbench.ptx.lowering.tensor import collected
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Number, Operand, Vector


def filled(
    writer: Writer, target: Operand, count: int, wide: int, call: Callable[[str], str]
) -> str:
    """Statements in which a call fills ``count`` registers of ``wide`` bits, an operand's.

    Args:
        call: C++ of the call, given a pointer to the registers as words of 32 bits.
    """
    name = writer.temporary()
    items = target.items if isinstance(target, Vector) else (target,)
    assigned = (writer.assign(item, f"b{wide}", f"{name}[{at}]") for at, item in enumerate(items))
    made = call(name if wide == 32 else f"reinterpret_cast<px::b32*>({name})")
    return f"px::b{wide} {name}[{count}]; {made}; {' '.join(assigned)}"


def _load_matrix(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    count, trans, space = int(chosen[0][1:]), chosen[1], chosen[2]
    writer.expect(operands, 2)
    row = writer.pointer(operands[1], space)
    load = f"px::ldmatrix<{count}, {'true' if trans else 'false'}>"
    return f"{{ {filled(writer, operands[0], count, 32, lambda to: f'{load}({to}, {row})')} }}"


def _store_matrix(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    count, trans, space = int(chosen[0][1:]), chosen[1], chosen[2]
    writer.expect(operands, 2)
    declared, name = collected(writer, operands[1])
    row = writer.pointer(operands[0], space)
    return f"{{ {declared} px::stmatrix<{count}, {'true' if trans else 'false'}>({row}, {name}); }}"


#: Bits of an element of A and B.
BITS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
    "u4": 4, "b1": 1,
}  # fmt: skip


def _multiply(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``mma.sync.aligned.mMn8kK.row.col{.satfinite}.D.A.B.C{.op.popc} d, a, b, c``."""
    writer.expect(operands, 4)
    return _product(writer, chosen, operands, "", "")


def _multiply_sparse(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``mma.sp{::ordered_metadata}.sync.aligned… d, a, b, c, metadata, selector``."""
    variant, shape, _, _, of_a, *_ = chosen
    writer.expect(operands, 6)
    *given, metadata, selector = operands
    # Of four lanes so many have the metadata of two rows.
    chunk = 2 if of_a == "tf32" else 8 if BITS[of_a] == 4 else 4
    lanes = int(shape[shape.index("k") + 1 :]) // chunk // 4
    if not isinstance(selector, Number) or not 0 <= selector.value < 4 // lanes:
        raise StatementError(f"a sparsity selector {selector} where {lanes} of four lanes count")
    sparse = f", 8, false, false, px::MmaSparse::k{'Ordered' if variant else 'Any'}"
    return _product(
        writer, (*chosen[1:], ""), given, f"{sparse}, {selector.value}u",
        f", {writer.value(metadata, 4)}",
    )  # fmt: skip


def _product(
    writer: Writer, chosen: Sequence[str], operands: Sequence[Operand], sparse: str, metadata: str
) -> str:
    """Of mma.sync; of mma.sp the rest of its form, and one argument more."""
    shape, saturates, of_d, of_a, of_b, of_c, operation = chosen
    rows, depth = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    integers = {of_a, of_b} <= {"s8", "u8"} or {of_a, of_b} <= {"s4", "u4"}
    eights = {of_a, of_b} <= {"e4m3", "e5m2"}
    if of_c != of_d or not (of_a == of_b or integers or eights):
        raise StatementError("operands of these types")
    if (of_a == "b1") != bool(operation):
        raise StatementError("no operation of bits" if of_a == "b1" else "an operation of bits")
    wide = 2 if of_d == "f64" else 1
    # Registers of 32 bits.
    given = depth // 2 if sparse else depth
    counts = [rows * given * BITS[of_a] // 1024, 8 * depth * BITS[of_a] // 1024]
    counts += [rows * 8 * (16 if of_d == "f16" else 32 * wide) // 1024]
    made = [collected(writer, each, 4 * wide) for each in operands[1:]]
    for operand, count in zip(operands[1:], counts, strict=True):
        if len(writer.values(operand, 4 * wide)) * wide != count:
            raise StatementError(f"registers of {shape}")
    words = ", ".join(f"reinterpret_cast<const px::b32*>({each[1]})" for each in made)
    form = (
        f"{{px::MmaElement::k{of_a.capitalize()}, px::MmaElement::k{of_b.capitalize()}, "
        f"px::MmaSum::k{of_d.capitalize()}, {rows}, {depth}, "
        f"{'true' if saturates else 'false'}, {'true' if operation == 'xor.popc' else 'false'}"
        f"{sparse}}}"
    )
    product = filled(
        writer, operands[0], counts[2] // wide, 32 * wide,
        lambda d: f"px::mma({form}, {d}, {words}{metadata})",
    )  # fmt: skip
    return f"{{ {' '.join(each[0] for each in made)} {product} }}"


_MMA = "mma.sync.aligned.{%s}.row.col{%s}.{%s}.{%s}.{%s}.{%s}{%s}"
_SHAPES = (
    ("m16n8k8|m16n8k16", "", "f32|f16", "f16", "f16", "f32|f16", ""),
    ("m16n8k8|m16n8k16", "", "f32", "bf16", "bf16", "f32", ""),
    ("m16n8k4|m16n8k8", "", "f32", "tf32", "tf32", "f32", ""),
    ("m16n8k16|m16n8k32", "", "f32|f16", "e4m3|e5m2", "e4m3|e5m2", "f32|f16", ""),
    ("m8n8k4|m16n8k4|m16n8k8|m16n8k16", "", "f64", "f64", "f64", "f64", ""),
    ("m8n8k16|m16n8k16|m16n8k32", ".satfinite|", "s32", "s8|u8", "s8|u8", "s32", ""),
    ("m16n8k32|m16n8k64", ".satfinite|", "s32", "s4|u4", "s4|u4", "s32", ""),
    ("m16n8k128|m16n8k256", "", "s32", "b1", "b1", "s32", ".and.popc|.xor.popc"),
)

_SPARSE = "mma.sp{::ordered_metadata|}.sync.aligned.{%s}.row.col{%s}.{%s}.{%s}.{%s}.{%s}"
_SPARSE_SHAPES = (
    ("m16n8k16|m16n8k32", "", "f32|f16", "f16", "f16", "f32|f16"),
    ("m16n8k16|m16n8k32", "", "f32", "bf16", "bf16", "f32"),
    ("m16n8k8|m16n8k16", "", "f32", "tf32", "tf32", "f32"),
    ("m16n8k64", "", "f32", "e4m3|e5m2", "e4m3|e5m2", "f32"),
    ("m16n8k32|m16n8k64", ".satfinite|", "s32", "s8|u8", "s8|u8", "s32"),
    ("m16n8k64|m16n8k128", ".satfinite|", "s32", "s4|u4", "s4|u4", "s32"),
)

MATRIX_FORMS: tuple[Form, ...] = (
    Form("ldmatrix.sync.aligned.m8n8.{x1|x2|x4}{.trans|}{.shared::cta|.shared|}.b16",
         _load_matrix, "warps"),
    # FlashInfer's order, which ptxas takes.
    Form("ldmatrix.sync.aligned.{trans}.m8n8.{x1|x2|x4}{.shared::cta|.shared|}.b16",
         lambda w, c, o: _load_matrix(w, (c[1], c[0], c[2]), o), "warps"),
    Form("stmatrix.sync.aligned.m8n8.{x1|x2|x4}{.trans|}{.shared::cta|.shared|}.b16",
         _store_matrix, "warps"),
    call("movmatrix.sync.aligned.m8n8.trans.b16", "b32", "movmatrix", "matrices", result="b32"),
    *(Form(_MMA % each, _multiply, "matrices") for each in _SHAPES),
    *(Form(_SPARSE % each, _multiply_sparse, "sparse") for each in _SPARSE_SHAPES),
)  # fmt: skip
