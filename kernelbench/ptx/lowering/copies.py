"""Asynchronous copies and tensor maps (PTX ISA 9.1, 9.7.9.25 to 9.7.9.28)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.control import fixed
from kernelbench.ptx.lowering.forms import Form, call
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import SIZES, Address, Number, Operand, Vector

_BYTES = ".mbarrier::complete_tx::bytes"
_HINT = "{.L2::cache_hint|}"
_RANK = "{1d|2d|3d|4d|5d}"
_TILE = "{.tile|}"
_NO_MASK = "px::kNoMask"


def _copy(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp.async [dst], [src], size{, source_size}{, policy}``."""
    *_, hint, _ = chosen
    given = operands[: len(operands) - bool(hint)]
    writer.expect(given, 3, 4)
    size = given[2]
    if not isinstance(size, Number):
        raise StatementError("a size that is no literal")
    read = f"{size.value}u"
    if len(given) == 4:
        if isinstance(given[3], str) and writer.function.registers.get(given[3]) == "pred":
            # The predicate says to ignore the source.
            read = f"({writer.predicate(given[3])} ? 0u : {read})"
        else:
            read = writer.value(given[3], 4)
    source = writer.generic(given[1])
    return f"px::cp_async({writer.shared(given[0])}, {source}, {size.value}u, {read});"


def _bulk_load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp.async.bulk.shared.global [dst], [src], size, [mbar]{, mask}{, policy}``."""
    _, multicast, hint = chosen
    writer.expect(operands, 4 + bool(multicast) + bool(hint))
    target, bar = writer.shared(operands[0]), writer.shared(operands[3])
    source, size = writer.generic(operands[1]), writer.value(operands[2], 4)
    mask = _mask(writer, operands[4] if multicast else None)
    return f"px::bulk_load({target}, {source}, {size}, {bar}, {mask});"


def _mask(writer: Writer, operand: Operand | None) -> str:
    return _NO_MASK if operand is None else f"int32_t({writer.value(operand, 2)})"


def _bulk_to_cluster(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp{.reduce}.async.bulk.shared::cluster.shared::cta… [dst], [src], size, [mbar]``."""
    writer.expect(operands, 4)
    target, source, bar = (writer.shared(operands[at]) for at in (0, 1, 3))
    size = writer.value(operands[2], 4)
    how = f", {_reduction(*chosen)}" if chosen else ""
    return f"px::bulk_copy_to_cluster({target}, {source}, {size}, {bar}{how});"


#: Types of elements without a sign are those of their width.
_ELEMENTS = {"b32": "u32", "b64": "u64"}


def _reduction(operation: str, kind: str) -> str:
    element = _ELEMENTS.get(kind, kind).capitalize()
    return f"{{px::BulkOperation::k{operation.capitalize()}, px::BulkElement::k{element}}}"


def _bulk_reduce(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp.reduce.async.bulk.global.shared::cta… [dst], [src], size{, policy}``."""
    hint, operation, kind = chosen
    writer.expect(operands, 3 + bool(hint))
    target, source = writer.generic(operands[0]), writer.shared(operands[1])
    element = _ELEMENTS.get(kind, kind).capitalize()
    how = f"px::BulkOperation::k{operation.removesuffix('.noftz').capitalize()}"
    size = writer.value(operands[2], 4)
    return f"px::bulk_reduce({target}, {source}, {size}, {how}, px::BulkElement::k{element});"


def _store_async(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``st.async… [a], b, [mbar]``, of one value or a vector."""
    vector, kind = chosen
    writer.expect(operands, 3)
    values = (
        writer.values(operands[1], SIZES[kind])
        if vector
        else [writer.value(operands[1], SIZES[kind])]
    )
    if len(values) != (int(vector[1:]) if vector else 1):
        raise StatementError(f"{len(values)} values for {vector}")
    target, bar = writer.shared(operands[0]), writer.shared(operands[2])
    return f"px::st_async<px::b{8 * SIZES[kind]}>({target}, {bar}, {', '.join(values)});"


def _red_async(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``red.async… [a], b, [mbar]``."""
    _, _, kind = chosen
    writer.expect(operands, 3)
    target, bar = writer.shared(operands[0]), writer.shared(operands[2])
    value = writer.value(operands[1], SIZES[kind])
    wide = f"px::b{8 * SIZES[kind]}"
    return f"px::red_async({target}, {bar}, {wide}({value}), {_reduction(*chosen[1:])});"


#: What a mode of a tensor copy has more than tiles: coordinates of 2d, its name.
_MODES = {
    "tile::gather4": "px::BoxMode::kRows", "tile::scatter4": "px::BoxMode::kRows",
    "im2col": "px::BoxMode::kIm2col", "im2col_no_offs": "px::BoxMode::kIm2col",
}  # fmt: skip


def _box(
    writer: Writer, rank: str, operand: Operand, mode: str = "", offsets: Operand | None = None
) -> tuple[str, str]:
    """The tensor map and the start of a box, from ``[map, {coordinates}]``."""
    if not isinstance(operand, Address) or len(operand.coordinates) != 1:
        raise StatementError("no [tensor map, coordinates]")
    start = operand.coordinates[0]
    items = start.items if isinstance(start, Vector) else (start,)
    if len(items) != (5 if mode.endswith("4") else int(rank[0])):
        raise StatementError(f"{len(items)} coordinates for {rank}")
    coordinates = ", ".join(f"int32_t({writer.value(each, 4)})" for each in items)
    plain = Address(operand.base, operand.offset, ())
    more = f", {_MODES[mode]}" if mode in _MODES else ""
    if offsets is not None:
        values = writer.values(offsets, 2)
        if len(values) != int(rank[0]) - 2:
            raise StatementError(f"{len(values)} offsets for {rank}")
        more += f", {{{', '.join(values)}}}"
    return writer.generic(plain), f"px::Start{{{rank[0]}, {{{coordinates}}}{more}}}"


def _box_load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp.async.bulk.tensor… [dst], [map, {…}], [mbar]{, {offsets}}{, mask}{, policy}``."""
    rank, _, mode, multicast, group, hint = chosen
    given, offsets = list(operands), None
    writer.expect(given, 3 + (mode == "im2col") + bool(multicast) + bool(hint))
    if mode == "im2col":
        offsets = given.pop(3)
    map_, start = _box(writer, rank, given[1], mode, offsets)
    target, bar = writer.shared(given[0]), writer.shared(given[2])
    mask = _mask(writer, given[3] if multicast else None)
    name = "box_load_pair" if group == "cta_group::2" else "box_load"
    return f"px::{name}({target}, {map_}, {start}, {bar}, {mask});"


def _box_store(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2 + bool(chosen[2]))
    map_, start = _box(writer, chosen[0], operands[0], chosen[1])
    return f"px::box_store({map_}, {start}, {writer.shared(operands[1])});"


def _box_reduce(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cp.reduce.async.bulk.tensor… [map, {coordinates}], [src]{, policy}``."""
    rank, operation, _, hint = chosen
    writer.expect(operands, 2 + bool(hint))
    map_, start = _box(writer, rank, operands[0])
    how = f"px::BulkOperation::k{operation.capitalize()}"
    return f"px::box_store({map_}, {start}, {writer.shared(operands[1])}, {how});"


def _replace(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``tensormap.replace.tile.field.space.b1024.type [map]{, dimension}, value``."""
    field, space, kind = chosen
    writer.expect(operands, 2, 3)
    where = writer.pointer(operands[0], space)
    dimension = writer.value(operands[1], 4) if len(operands) == 3 else "0"
    value = writer.value(operands[-1], 8 if kind == "b64" else 4)
    in_global = "true" if space == "global" else "false"
    return f"px::tensormap_replace({where}, {in_global}, px::Field::{field}, {dimension}, {value});"


_FIELDS = (
    "{global_address|rank|box_dim|global_dim|global_stride|element_stride|elemtype|"
    "interleave_layout|swizzle_mode|fill_mode}"
)

#: Operations and types of reductions in shared memory of the cluster.
_INTEGERS = (("add", "u32|s32|u64"), ("min|max", "u32|s32"), ("inc|dec", "u32"),
             ("and|or|xor", "b32"))  # fmt: skip

COPY_FORMS: tuple[Form, ...] = (
    Form("cp.async.{ca|cg}.shared{::cta|}.global" + _HINT + "{.L2::64B|.L2::128B|.L2::256B|}",
         _copy, "copies"),
    Form("cp.async.commit_group", fixed("px::cp_async_commit();"), "copies"),
    call("cp.async.wait_group", "b32", "cp_async_wait", "copies"),
    Form("cp.async.wait_all", fixed("px::cp_async_wait(0);"), "copies"),
    call("cp.async.mbarrier.arrive{.noinc|}{.shared::cta|.shared|}.b64", "barrier:$1",
         "cp_async_arrive({0}, $?0)", "bulk"),
    Form("cp.async.bulk.{shared::cta|shared::cluster}.global" + _BYTES
         + "{.multicast::cluster|}" + _HINT, _bulk_load, "bulk"),
    call("cp.async.bulk.global.shared::cta.bulk_group" + _HINT, "generic shared b32 -?0",
         "bulk_store", "bulk"),
    Form(f"cp.async.bulk.tensor.{_RANK}.{{shared::cta|shared::cluster}}.global{_TILE}{_BYTES}"
         f"{{.multicast::cluster|}}{{.cta_group::1|.cta_group::2|}}{_HINT}", _box_load, "bulk"),
    *(
        Form(f"cp.async.bulk.tensor.{{{ranks}}}.{{shared::cta|shared::cluster}}.global.{{{mode}}}"
             f"{_BYTES}{{.multicast::cluster|}}{{.cta_group::1|.cta_group::2|}}{_HINT}",
             _box_load, "tensor_modes")
        for ranks, mode in (("3d|4d|5d", "im2col"), ("2d", "tile::gather4"))
    ),
    Form(f"cp.async.bulk.tensor.{_RANK}.global.shared::cta{_TILE}.bulk_group{_HINT}",
         _box_store, "bulk"),
    Form(f"cp.async.bulk.tensor.{{3d|4d|5d}}.global.shared::cta.{{im2col_no_offs}}.bulk_group{_HINT}",
         _box_store, "tensor_modes"),
    Form(f"cp.async.bulk.tensor.{{2d}}.global.shared::cta.{{tile::scatter4}}.bulk_group{_HINT}",
         _box_store, "tensor_modes"),
    Form(f"cp.async.bulk.shared::cluster.shared::cta{_BYTES}", _bulk_to_cluster, "reductions"),
    *(
        Form(f"cp.reduce.async.bulk.shared::cluster.shared::cta{_BYTES}.{{{operations}}}.{{{types}}}",
             _bulk_to_cluster, "reductions")
        for operations, types in _INTEGERS
    ),
    *(
        Form(f"red.async.relaxed.cluster{{.shared::cluster}}{_BYTES}.{{{operations}}}.{{{types}}}",
             _red_async, "reductions")
        for operations, types in _INTEGERS
    ),
    *(
        Form(f"cp.reduce.async.bulk.global.shared::cta.bulk_group{_HINT}.{{{operations}}}.{{{types}}}",
             _bulk_reduce, "reductions")
        for operations, types in (
            ("add", "u32|s32|u64|f32|f64"), ("min|max", "u32|s32|u64|s64"),
            ("inc|dec", "u32"), ("and|or|xor", "b32|b64"), ("add.noftz|min|max", "f16|bf16"),
        )
    ),
    Form(f"cp.reduce.async.bulk.tensor.{_RANK}.global.shared::cta"
         f".{{add|min|max|inc|dec|and|or|xor}}{_TILE}.bulk_group{_HINT}",
         _box_reduce, "reductions"),
    Form(f"st.async{{.weak|}}.shared::cluster{_BYTES}{{.v2|.v4|}}"
         ".{b32|u32|s32|f32|b64|u64|s64|f64}",
         lambda w, c, o: _store_async(w, c[1:], o), "reductions"),
    Form("cp.async.bulk.commit_group", fixed("px::bulk_commit();"), "bulk"),
    call("cp.async.bulk.wait_group{.read|}", "b32", "bulk_wait({0}, $?0)", "bulk"),
    Form(f"tensormap.replace.tile.{_FIELDS}.{{shared::cta|global}}.b1024.{{b32|b64}}",
         _replace, "bulk"),
    call("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release."
         "{cta|cluster|gpu|sys}.sync.aligned", "generic in:shared::cta -",
         "tensormap_cp_fenceproxy", "bulk"),
)  # fmt: skip
