"""wgmma, tcgen05 and launch control (PTX ISA 9.1, 9.7.14 to 9.7.16, 9.7.13).

Registers that an instruction fills later live in arrays, which the runtime keeps by address; see
:mod:`kernelbench.ptx.lowering.registers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.control import fixed
from kernelbench.ptx.lowering.forms import Form, call
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Address, Number, Operand, Vector


def collected(writer: Writer, operand: Operand, size: int = 4) -> tuple[str, str]:
    """A constant array of an operand's elements: its declaration and its name."""
    name, values = writer.temporary(), writer.values(operand, size)
    return f"const px::b{8 * size} {name}[{len(values)}] = {{{', '.join(values)}}};", name


def _wgmma(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``wgmma.mma_async d, a, b, scale-d, imm-scale-a, imm-scale-b{, trans-a, trans-b}``."""
    columns, sums, left, right = int(chosen[0]), *chosen[1:]
    d, count = writer.array(operands[0])
    if count != columns // (4 if sums == "f16" else 2):
        raise StatementError(f"{count} registers of D")
    if any(each != Number(1) for each in operands[4:6]):
        raise StatementError("a negated operand")
    kind = "k" + left.capitalize() + (right.capitalize() if left != right else "")
    kind += "Half" if sums == "f16" else ""
    b, scale = writer.value(operands[2], 8), writer.predicate(operands[3])
    if isinstance(operands[1], Vector):
        declared, name = collected(writer, operands[1])
        a = f"{name}, 0"
    else:
        declared, a = "", f"nullptr, {writer.value(operands[1], 8)}"
    # A in registers has no imm-trans-a.
    sides = ["false"] * (2 - len(operands[6:]))
    sides += ["true" if _is_transposed(each) else "false" for each in operands[6:]]
    head = f"px::wgmma(px::WgmmaKind::{kind}, {d}, {columns // 2}"
    return f"{{ {declared} {head}, {a}, {b}, {scale}, {{{', '.join(sides)}}}); }}"


def _is_transposed(operand: Operand) -> bool:
    if operand not in (Number(0), Number(1)):
        raise StatementError("a transposition that is no literal")
    return operand == Number(1)


def _commit(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    group, space, multicast = chosen
    writer.expect(operands, 1 + bool(multicast))
    mask = writer.value(operands[1], 2) if multicast else "0"
    many = "true" if multicast else "false"
    bar = writer.barrier(operands[0], space)
    if not space:
        # ptxas gives the instruction a generic address's low half, and compilers rely on it.
        bar = f"px::low_or_shared({writer.generic(operands[0])})"
    return f"px::tcgen05_commit({group}u, {bar}, {many}, {mask});"


#: Registers of ``.x1``.
_TMEM_WORDS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def _split(shape: str, operands: Sequence[Operand], at: int) -> str:
    """``immHalfSplitoff``, behind the address of 16x32bx2; nothing of other shapes."""
    if shape != "16x32bx2":
        return ""
    if not isinstance(operands[at], Number):
        raise StatementError("a half's offset that is no literal")
    return f", {operands[at].value}u"  # type: ignore[union-attr]


def _load_tmem(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    shape, repeat = chosen
    writer.expect(operands, 3 if shape == "16x32bx2" else 2)
    array, count = writer.array(operands[0])
    if count != _TMEM_WORDS[shape] * int(repeat):
        raise StatementError(f"{count} registers")
    where, split = writer.shared(operands[1]), _split(shape, operands, 2)
    return f"px::tcgen05_ld(px::TmemShape::k{shape}, {array}, {count}, {where}{split});"


def _store_tmem(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    shape, repeat = chosen
    writer.expect(operands, 3 if shape == "16x32bx2" else 2)
    declared, name = collected(writer, operands[-1])
    count = _TMEM_WORDS[shape] * int(repeat)
    if len(writer.values(operands[-1], 4)) != count:
        raise StatementError(f"registers for x{repeat}")
    where, split = writer.shared(operands[0]), _split(shape, operands, 1)
    made = f"px::tcgen05_st(px::TmemShape::k{shape}, {where}, {name}, {count}{split});"
    return f"{{ {declared} {made} }}"


def _dense_mma(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``tcgen05.mma… [d], a-desc or [a], b-desc, idesc{, disabled lanes}, enable-input-d``."""
    group, kind, _ = chosen
    writer.expect(operands, 5, 6)
    masked = ""
    if len(operands) == 6:
        if not isinstance(operands[4], Vector):
            raise StatementError("scale-input-d")
        masked = f"px::no_lane_disabled({{{', '.join(writer.values(operands[4], 4))}}}); "
    return masked + _mma(writer, kind, group, operands[:3], (operands[3], operands[-1]))


def _scaled_dense_mma(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``… [d], a-desc or [a], b-desc, idesc, [scale-a], [scale-b], enable-input-d``."""
    writer.expect(operands, 7)
    factors = [writer.shared(each) for each in operands[4:6]]
    return _mma(writer, "mxf8f6f4", chosen[0], operands[:3], (operands[3], operands[6]), factors)


def _mma(
    writer: Writer, kind: str, group: str, tiles: Sequence[Operand],
    rest: tuple[Operand, Operand], factors: Sequence[str] = (),
) -> str:  # fmt: skip
    """A product of D, A and B, with the instruction descriptor and what adds to D."""
    d, a, b = tiles
    in_tmem = isinstance(a, Address)
    given = [
        writer.shared(d), "true" if in_tmem else "false",
        writer.shared(a) if in_tmem else writer.value(a, 8), writer.value(b, 8), *factors,
    ]  # fmt: skip
    return (
        f"px::tcgen05_mma(px::DenseKind::k{kind.capitalize()}, {group}u, "
        f"px::DenseOperands{{{', '.join(given)}}}, {writer.value(rest[0], 4)}, "
        f"{writer.predicate(rest[1])});"
    )


def _fp4_mma(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``tcgen05.mma… [d], a-desc, b-desc, idesc, [scale-a], [scale-b], enable-input-d``."""
    writer.expect(operands, 7)
    d, scale_a, scale_b = (writer.shared(operands[at]) for at in (0, 4, 5))
    if isinstance(operands[1], Address):
        raise StatementError("A in tensor memory")
    scales = 4 if chosen[1] in ("scale_vec::4X", "block16") else 2
    a, b = writer.value(operands[1], 8), writer.value(operands[2], 8)
    rest = f"{writer.value(operands[3], 4)}, {scale_a}, {scale_b}, {writer.predicate(operands[6])}"
    return f"px::tcgen05_mma_fp4({chosen[0]}u, {scales}u, {d}, {a}, {b}, {rest});"


def _first_cta(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    response = writer.value(operands[1], 16)
    name, items = writer.temporary(), operands[0].items[:3]  # type: ignore[union-attr]
    parts = [
        writer.assign(each, "b32", f"{name}.{axis}")
        for each, axis in zip(items, "xyz", strict=True)
    ]
    return f"{{ const auto {name} = px::first_ctaid({response}); {' '.join(parts)} }}"


_GROUP = ".cta_group::{1|2}"
_COLLECTOR = (
    "{.collector::a::fill|.collector::a::use|.collector::a::lastuse|.collector::a::discard|}"
)
_COLUMNS = "{" + "|".join(str(n) for n in range(8, 257, 8)) + "}"

TENSOR_FORMS: tuple[Form, ...] = (
    Form("wgmma.fence.sync.aligned", fixed("px::wgmma_fence();"), "tensor"),
    Form("wgmma.commit_group.sync.aligned", fixed("px::wgmma_commit();"), "tensor"),
    call("wgmma.wait_group.sync.aligned", "b32", "wgmma_wait", "tensor"),
    *(
        Form(f"wgmma.mma_async.sync.aligned.m64n{_COLUMNS}k{depth}.{{{sums}}}.{{{types}}}"
             f".{{{types}}}", _wgmma, "products")
        for depth, sums, types in (
            ("32", "f32|f16", "e4m3|e5m2"), ("16", "f32|f16", "f16"), ("16", "f32", "bf16"),
            ("8", "f32", "tf32"), ("32", "s32", "s8|u8"),
        )
    ),
    call(f"tcgen05.alloc{_GROUP}.sync.aligned{{.shared::cta|}}.b32", "barrier:$1 b32",
         "tcgen05_alloc($0u, {0}, {1})", "tensor"),
    call(f"tcgen05.dealloc{_GROUP}.sync.aligned.b32", "b32 b32", "tcgen05_dealloc($0u, {0}, {1})",
         "tensor"),
    call(f"tcgen05.relinquish_alloc_permit{_GROUP}.sync.aligned", "", "tcgen05_relinquish($0u)",
         "tensor"),
    call(f"tcgen05.cp{_GROUP}.32x128b.warpx4", "shared b64", "tcgen05_cp($0u, {0}, {1})", "tensor"),
    Form(f"tcgen05.commit{_GROUP}.mbarrier::arrive::one{{.shared::cluster|}}"
         "{.multicast::cluster|}.b64", _commit, "tensor"),
    *(
        Form(f"tcgen05.{direction}.sync.aligned.{{{shapes}}}.x{{{repeats}}}.b32", lower, "dense")
        for direction, lower in (("ld", _load_tmem), ("st", _store_tmem))
        for shapes, repeats in (
            ("32x32b|16x64b|16x32bx2", "1|2|4|8|16|32|64|128"),
            ("16x128b", "1|2|4|8|16|32|64"),
            ("16x256b", "1|2|4|8|16|32"),
        )
    ),
    Form(f"tcgen05.mma{_GROUP}.kind::{{f16|tf32|f8f6f4|i8}}{_COLLECTOR}", _dense_mma, "dense"),
    Form(f"tcgen05.mma{_GROUP}.kind::mxf8f6f4.block_scale{{.scale_vec::1X|.block32|}}{_COLLECTOR}",
         _scaled_dense_mma, "pairs"),
    Form("tcgen05.wait::ld.sync.aligned", fixed("px::tcgen05_wait_ld();"), "tensor"),
    Form("tcgen05.wait::st.sync.aligned", fixed("px::tcgen05_wait_st();"), "tensor"),
    Form("tcgen05.fence::before_thread_sync", fixed("px::tcgen05_fence_before();"), "tensor"),
    Form("tcgen05.fence::after_thread_sync", fixed("px::tcgen05_fence_after();"), "tensor"),
    Form(f"tcgen05.mma{_GROUP}.kind::mxf4nvf4.block_scale"
         f"{{.scale_vec::4X|.block16|.scale_vec::2X|.block32}}{_COLLECTOR}", _fp4_mma, "tensor"),
    Form(f"tcgen05.mma{_GROUP}.kind::mxf4.block_scale{{.scale_vec::2X|.block32|}}{_COLLECTOR}",
         _fp4_mma, "pairs"),
    call("clusterlaunchcontrol.try_cancel.async{.shared::cta|}.mbarrier::complete_tx::bytes"
         "{.multicast::cluster::all|}.b128", "shared shared", "try_cancel({0}, {1}, $?1)",
         "tensor"),
    call("clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", "b128", "is_canceled", "tensor",
         result="pred"),
    Form("clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128", _first_cta, "tensor"),
    call("clusterlaunchcontrol.query_cancel.get_first_ctaid::{x|y|z}.b32.b128", "b128",
         "first_ctaid({0}).$0", "tensor", result="b32"),
)  # fmt: skip
