"""Matrices of a warp by wmma (PTX ISA 9.1, 9.7.14.4).

PTX leaves open which elements of a matrix a thread's fragment holds; ``ptx_frontend/wmma.hpp`` says
how it is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form
from kernelbench.ptx.lowering.matrices import BITS, filled
from kernelbench.ptx.lowering.tensor import collected
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand

_SUMS = {"f16": 16, "f32": 32, "s32": 32, "f64": 64}


class _Fragment(NamedTuple):
    """A matrix of A, B, C or D in the registers of a warp.

    Attributes:
        lines: Rows; of B columns.
        length: Of each, in elements.
        along: The layout whose lines are contiguous.
        bits: Of an element.
    """

    lines: int
    length: int
    along: str
    bits: int
    registers: int

    @property
    def words(self) -> int:
        """Elements of a lane as memory has them; those of less than 8 bits by 32 bits."""
        return self.lines * self.length * self.bits // (32 * self.memory_bits)

    @property
    def memory_bits(self) -> int:
        return self.bits if self.bits >= 8 else 32

    @property
    def wide(self) -> int:
        """Bits of a register."""
        return max(self.bits, 32)


def _fragment(matrix: str, shape: str, kind: str) -> _Fragment:
    rows, rest = shape[1:].split("n")
    columns, depth = rest.split("k")
    lines, length, along = {
        "a": (rows, depth, "row"), "b": (columns, depth, "col"),
    }.get(matrix, (rows, columns, "row"))  # fmt: skip
    bits = BITS[kind] if matrix in "ab" else _SUMS[kind]
    registers = int(lines) * int(length) * bits // (32 * max(bits, 32))
    if matrix in "ab" and kind == "f16":
        registers = 8  # of every shape, each element in more than one place if need be
    return _Fragment(int(lines), int(length), along, bits, registers)


def _tile(
    writer: Writer, fragment: _Fragment, layout: str, space: str, operands: Sequence[Operand]
) -> tuple[str, str]:
    """The address and the ``WmmaTile``, of ``[a]{, stride}``."""
    part = fragment.memory_bits // fragment.bits
    contiguous = layout == fragment.along
    length = fragment.length // part
    if len(operands) == 2:
        stride = f"{writer.value(operands[1], 4)} / {part}u"
    else:
        stride = f"{length if contiguous else fragment.lines}u"
    made = f"px::WmmaTile{{{length}u, {'true' if contiguous else 'false'}, {stride}}}"
    return writer.pointer(operands[0], space), made


def _load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wmma.load.{a,b,c}.sync.aligned.layout.shape{.space}.type r, [a]{, stride}``."""
    matrix, layout, shape, space, kind = chosen
    writer.expect(operands, 2, 3)
    fragment = _fragment(matrix, shape, kind)
    where, tile = _tile(writer, fragment, layout, space, operands[1:])
    words = fragment.registers * fragment.wide // 32
    form = f"px::b{fragment.memory_bits}, {fragment.words}, {words}"
    loaded = filled(
        writer, operands[0], fragment.registers, fragment.wide,
        lambda to: f"px::wmma_load<{form}>({to}, {where}, {tile})",
    )  # fmt: skip
    return f"{{ {loaded} }}"


def _store(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wmma.store.d.sync.aligned.layout.shape{.space}.type [a], r{, stride}``."""
    layout, shape, space, kind = chosen
    writer.expect(operands, 2, 3)
    fragment = _fragment("d", shape, kind)
    where, tile = _tile(writer, fragment, layout, space, (operands[0], *operands[2:]))
    declared, name = collected(writer, operands[1], fragment.wide // 8)
    form = f"px::b{fragment.bits}, {fragment.words}"
    given = f"reinterpret_cast<const px::b32*>({name})"
    return f"{{ {declared} px::wmma_store<{form}>({where}, {given}, {tile}); }}"


def _multiply(
    writer: Writer, shape: str, kinds: Sequence[str], options: Sequence[bool],
    operands: Sequence[Operand],
) -> str:  # fmt: skip
    """D = A·B + C; ``kinds``: of D, A, B and C; ``options``: to saturate, and xor for and."""
    writer.expect(operands, 4)
    of_d, of_a, of_b, of_c = kinds
    fragments = [
        _fragment(matrix, shape, kind)
        for matrix, kind in (("a", of_a), ("b", of_b), ("c", of_c), ("d", of_d))
    ]
    a, b, c, d = fragments
    declared, words = [], []
    for fragment, operand in zip((a, b, c), operands[1:], strict=True):
        if len(writer.values(operand, fragment.wide // 8)) != fragment.registers:
            raise StatementError(f"registers of {shape}")
        made, name = collected(writer, operand, fragment.wide // 8)
        declared.append(made)
        words.append(f"reinterpret_cast<const px::b32*>({name})")
    flags = ", ".join("true" if each else "false" for each in options)
    form = (
        f"{{px::MmaElement::k{of_a.capitalize()}, px::MmaElement::k{of_b.capitalize()}, "
        f"px::MmaSum::k{of_d.capitalize()}, {a.lines}, {a.length}, {flags}, {b.lines}, true, "
        f"{'true' if of_c != of_d else 'false'}}}"
    )
    product = filled(
        writer, operands[0], d.registers, d.wide,
        lambda result: f"px::mma({form}, {result}, {', '.join(words)})",
    )  # fmt: skip
    return f"{{ {' '.join(declared)} {product} }}"


def _halves(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wmma.mma…shape.dtype.ctype``: A and B are of f16."""
    *_, shape, of_d, of_c = chosen
    return _multiply(writer, shape, (of_d, "f16", "f16", of_c), (False, False), operands)


def _typed(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wmma.mma…shape.dtype.atype.btype.ctype{.satfinite}``."""
    *_, shape, of_d, of_a, of_b, of_c, saturates = chosen
    if of_a != of_b:
        raise StatementError("operands of these types")
    kinds = (of_d, of_a, of_b, of_c)
    return _multiply(writer, shape, kinds, (bool(saturates), False), operands)


def _bits(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wmma.mma.{and,xor}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32``."""
    kinds = ("s32", "b1", "b1", "s32")
    return _multiply(writer, "m8n8k128", kinds, (False, chosen[0] == "xor"), operands)


_LAYOUT = "{row|col}"
_SPACE = "{.global|.shared|.shared::cta|.shared::cluster|}"
_EVERY = "m16n16k16|m8n32k16|m32n8k16"
#: Shapes, types of A and B, types of C and D.
_SHAPES = (
    (_EVERY, "f16", "f16|f32"),
    (_EVERY, "bf16", "f32"),
    (_EVERY, "s8|u8", "s32"),
    ("m16n16k8", "tf32", "f32"),
    ("m8n8k4", "f64", "f64"),
)
_ROW_BY_COLUMN = (("m8n8k32", "s4|u4", "s32"), ("m8n8k128", "b1", "s32"))
_SUMS_OF = [
    *dict.fromkeys(
        (shape, each)
        for shape, _, kinds in (*_SHAPES, *_ROW_BY_COLUMN)
        for each in kinds.split("|")
    )
]

WMMA_FORMS: tuple[Form, ...] = (
    *(
        Form(f"wmma.load.{{a|b}}.sync.aligned.{_LAYOUT}.{{{shape}}}{_SPACE}.{{{kind}}}",
             _load, "wmma")
        for shape, kind, _ in _SHAPES
    ),
    *(
        Form(f"wmma.load.{{{matrix}}}.sync.aligned.{{{layout}}}.{{{shape}}}{_SPACE}.{{{kind}}}",
             _load, "wmma")
        for shape, kind, _ in _ROW_BY_COLUMN
        for matrix, layout in (("a", "row"), ("b", "col"))
    ),
    *(
        Form(f"wmma.load.{{c}}.sync.aligned.{_LAYOUT}.{{{shape}}}{_SPACE}.{{{kind}}}",
             _load, "wmma")
        for shape, kind in _SUMS_OF
    ),
    *(
        Form(f"wmma.store.d.sync.aligned.{_LAYOUT}.{{{shape}}}{_SPACE}.{{{kind}}}",
             _store, "wmma")
        for shape, kind in _SUMS_OF
    ),
    Form(f"wmma.mma.sync.aligned.{_LAYOUT}.{_LAYOUT}.{{{_EVERY}}}.{{f16|f32}}.{{f16|f32}}",
         _halves, "wmma"),
    *(
        Form(f"wmma.mma.sync.aligned.{_LAYOUT}.{_LAYOUT}.{{{shape}}}.{{{kind}}}.{{{of}}}.{{{of}}}"
             f".{{{kind}}}{{{'.satfinite|' if kind == 's32' else ''}}}", _typed, "wmma")
        for shape, of, kind in _SHAPES[1:]
    ),
    Form("wmma.mma.sync.aligned.{row}.{col}.{m8n8k32}.{s32}.{s4|u4}.{s4|u4}.{s32}{.satfinite|}",
         _typed, "wmma"),
    Form("wmma.mma.{and|xor}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32", _bits, "wmma"),
)  # fmt: skip
