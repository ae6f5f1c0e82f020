"""Loads, stores, atomics and addresses (PTX ISA 9.1, 9.7.9 and 9.7.13; state spaces: 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.forms import Form
from kernelbench.ptx.model import SIZES, Vector

if TYPE_CHECKING:
    from kernelbench.ptx.model import Operand
    from kernelbench.ptx.writer import Writer

_SPACE = "{.global|.shared|.shared::cta|.shared::cluster|.local|.param|.param::func|}"
_VECTOR = "{.v2|.v4|.v8|}"
_TYPE = "{b8|b16|b32|b64|b128|u8|u16|u32|u64|s8|s16|s32|s64|f32|f64}"
_SCOPE = "{.cta|.cluster|.gpu|.sys}"
# Hints: without effect on values or order.
_CACHE = "{.ca|.cg|.cs|.lu|.cv|.wb|.wt|}"
_LINES = (
    "{.L1::evict_normal|.L1::evict_unchanged|.L1::evict_first|.L1::evict_last|.L1::no_allocate|}"
)
_POLICY = "{.L2::cache_hint|}"
_PREFETCH = "{.L2::64B|.L2::128B|.L2::256B|}"


def _load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``ld``, weak."""
    *_, policy, _, vector, kind = chosen
    writer.expect(operands, 3 if policy else 2)
    space = chosen[0]
    # A thread's own memory needs no order, and parameters and constants never change.
    access = "own_load" if space in ("local", "const") or space.startswith("param") else "load"
    return _loaded(writer, access, space, vector, kind, operands)


def _loaded(
    writer: Writer, access: str, space: str, vector: str, kind: str, operands: Sequence[Operand]
) -> str:
    count, bits = int(vector[1:] or 1) if vector else 1, f"px::b{8 * SIZES[kind]}"
    where, name = writer.pointer(operands[1], space), writer.temporary()
    items = operands[0].items if vector else (operands[0],)  # type: ignore[union-attr]
    if len(items) != count:
        raise StatementError(f"{len(items)} registers for {vector}")
    out = [f"const auto {name} = px::{access}<{bits}, {count}>({where});"]
    for at, item in enumerate(items):
        # Loads into wider registers extend the sign of signed types.
        value = f"px::as<{writer.cpp(kind if kind[0] == 's' else bits[4:])}>({name}.at[{at}])"
        out.append(writer.assign(item, bits[4:], value))
    return "{ " + " ".join(out) + " }"


def _strong_load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``ld.{relaxed|acquire}.scope``, and ``ld.volatile``, which is relaxed at system scope."""
    order, vector, kind = chosen[0], chosen[-2], chosen[-1]
    space = chosen[1] if order == "volatile" else chosen[2]
    if SIZES[kind] > 8 or space == "local":
        raise StatementError("a strong load of this kind")
    writer.expect(operands, 2)
    if vector and int(vector[1:]) * SIZES[kind] in _AT_ONCE:
        return _loaded_at_once(writer, order, space, vector, kind, operands)
    access = "load_acquire" if order == "acquire" else "load_relaxed"
    return _loaded(writer, access, space, vector, kind, operands)


def _store(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``st``, weak."""
    space, vector, kind = chosen[0], chosen[-2], chosen[-1]
    writer.expect(operands, 3 if "L2::cache_hint" in chosen else 2)
    own = space == "local" or space.startswith("param")
    return _stored(writer, "own_store" if own else "store", space, vector, kind, operands)


def _stored(
    writer: Writer, access: str, space: str, vector: str, kind: str, operands: Sequence[Operand]
) -> str:
    count, bits = int(vector[1:]) if vector else 1, f"px::b{8 * SIZES[kind]}"
    values = (
        writer.values(operands[1], SIZES[kind])
        if vector
        else [writer.value(operands[1], SIZES[kind])]
    )
    if len(values) != count:
        raise StatementError(f"{len(values)} values for {vector}")
    where = writer.pointer(operands[0], space)
    return f"px::{access}<{bits}, {count}>({where}, {{{{{', '.join(values)}}}}});"


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _loaded_at_once(
    writer: Writer, order: str, space: str, vector: str, kind: str, operands: Sequence[Operand]
) -> str:
    items, bits = _items(operands[0]), f"b{8 * SIZES[kind]}"
    if len(items) != int(vector[1:]):
        raise StatementError(f"{len(items)} registers for {vector}")
    where, name = writer.pointer(operands[1], space), writer.temporary()
    acquire = "true" if order == "acquire" else "false"
    out = f"const auto {name} = px::load_together<px::{bits}, {len(items)}>({where}, {acquire});"
    seen = writer.cpp(kind) if kind[0] == "s" else ""
    parts = [writer.assign(item, bits, f"{seen}({name}.at[{at}])") for at, item in enumerate(items)]
    return " ".join(("{", out, *parts, "}"))


def _strong_store(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    order, vector, kind = chosen[0], chosen[-2], chosen[-1]
    space = chosen[1] if order == "volatile" else chosen[2]
    at_once = not vector or int(vector[1:]) * SIZES[kind] in _AT_ONCE
    if SIZES[kind] > 8 or not at_once or space == "local":
        raise StatementError("a strong store of this kind")
    writer.expect(operands, 2)
    if vector:
        release = "true" if order == "release" else "false"
        where = writer.pointer(operands[0], space)
        values = ", ".join(writer.values(operands[1], SIZES[kind]))
        return f"px::store_together<px::b{8 * SIZES[kind]}>({where}, {release}, {values});"
    access = "store_release" if order == "release" else "store_relaxed"
    return _stored(writer, access, space, "", kind, operands)


def _atomic(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``atom``: the old value is the result."""
    order, _, space, operation, kind = chosen
    target, address, *values = operands
    call = _update(writer, (order, space, operation, kind), address, values, returns=True)
    return writer.assign(target, kind, call)


def _reduction(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``red``: an atomic without a result."""
    order, _, space, operation, kind = chosen
    address, *values = operands
    call = _update(writer, (order, space, operation, kind), address, values, returns=False)
    return f"(void){call};"


def _update(
    writer: Writer,
    chosen: tuple[str, str, str, str],
    address: Operand,
    values: Sequence[Operand],
    *,
    returns: bool,
) -> str:
    order, space, operation, kind = chosen
    if len(values) != (2 if operation == "cas" else 1):
        raise StatementError(f"{len(values)} values")
    if operation in ("inc", "dec") and kind != "u32":
        raise StatementError(f"{operation} of {kind}")
    if kind[0] == "f" and operation not in ("add", "exch"):
        raise StatementError(f"{operation} of {kind}")
    given = ", ".join(writer.typed(each, kind) for each in values)
    flags = f"{'true' if returns else 'false'}, px::Order::{_ORDERS[order]}"
    if operation == "add" and space.startswith("shared"):
        operation = "add_shared"
    return f"px::atomic_{operation}({writer.pointer(address, space)}, {flags}, {given})"


def _vector_reduction(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``red.relaxed.gpu.global.add.{v2,v4}.f32``."""
    writer.expect(operands, 2)
    values = [f"px::as<float>({each})" for each in writer.values(operands[1], 4)]
    if len(values) != int(chosen[0][1:]):
        raise StatementError(f"{len(values)} values")
    return f"px::reduce_add<{len(values)}>({writer.generic(operands[0])}, {{{', '.join(values)}}});"


def _convert_address(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``cvta{.to}.space.u64``."""
    to, space = chosen
    writer.expect(operands, 2)
    given = writer.value(operands[1], 8)
    if space in ("global", "const"):
        result = given
    elif space == "param" and not writer.function.kernel:
        raise StatementError("a parameter's address, in a function that is called")
    elif space in ("param", "local"):
        base = "px::address_of(parameters)" if space == "param" else "px::address_of(local)"
        result = f"{given} {'-' if to else '+'} {base}"
    elif to:
        result = f"px::b64(px::to_shared(px::pointer({given})))"
    else:
        result = f"px::address_of(px::cluster_at(px::b32({given})))"
    return writer.assign(operands[0], "b64", result)


def _map_address(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``mapa``: the same place in another CTA of the cluster; without a space of generic ones."""
    space, kind = chosen
    writer.expect(operands, 3)
    rank = writer.value(operands[2], 4)
    if space:
        address = writer.value(operands[1], SIZES[kind])
        result = f"px::mapa(px::b32({address}), {rank})"
    elif kind == "u32":
        raise StatementError("a generic address of 32 bits")
    else:
        address = f"px::to_shared(px::pointer({writer.value(operands[1], 8)}))"
        result = f"px::address_of(px::cluster_at(px::mapa({address}, {rank})))"
    return writer.assign(operands[0], f"b{8 * SIZES[kind]}", result)


def _policy(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``createpolicy``: what the cache keeps changes no value."""
    return writer.assign(operands[0], "b64", "px::b64(0)")


_EVICTION = "L2::evict_last|L2::evict_normal|L2::evict_first|L2::evict_unchanged"
_SPACES_READ = "{.param::entry|.const|" + _SPACE[1:]
_OPERATION = "{add|min|max|exch|cas|and|or|xor|inc|dec}"
_ATOMIC_TYPE = "{b32|b64|u32|u64|s32|s64|f32|f64}"
# Without .sem an atomic is relaxed.
_ORDERS = {
    "": "kRelaxed",
    "relaxed": "kRelaxed",
    "acquire": "kAcquire",
    "release": "kRelease",
    "acq_rel": "kAcqRel",
}
#: Bytes of vectors that a strong access moves at once.
_AT_ONCE = (8, 16)
_SHARED_OR_GLOBAL = "{.global|.shared|.shared::cta|.shared::cluster|}"

MEMORY_FORMS: tuple[Form, ...] = (
    Form(f"ld{{.weak|}}{_SPACES_READ}{{.nc|}}{_CACHE}{_LINES}{_POLICY}{_PREFETCH}{_VECTOR}.{_TYPE}",
         lambda w, c, o: _load(w, c[1:], o), "memory"),
    Form(f"ld.{{relaxed|acquire}}{_SCOPE}{_SHARED_OR_GLOBAL}{_LINES}{_VECTOR}.{_TYPE}",
         _strong_load, "memory"),
    Form(f"ld.{{volatile}}{_SHARED_OR_GLOBAL}{_VECTOR}.{_TYPE}", _strong_load, "memory"),
    # A thread's own memory is nobody else's.
    Form(f"ld.volatile{{.local}}{_VECTOR}.{_TYPE}",
         lambda w, c, o: _load(w, ("local", "", "", c[1], c[2]), o), "memory"),
    Form(f"st{{.weak|}}{_SPACE}{_CACHE}{_LINES}{_POLICY}{_VECTOR}.{_TYPE}",
         lambda w, c, o: _store(w, c[1:], o), "memory"),
    Form(f"st.{{relaxed|release}}{_SCOPE}{_SHARED_OR_GLOBAL}{_LINES}{_VECTOR}.{_TYPE}",
         _strong_store, "memory"),
    Form(f"st.{{volatile}}{_SHARED_OR_GLOBAL}{_VECTOR}.{_TYPE}", _strong_store, "memory"),
    Form(f"st.volatile{{.local}}{_VECTOR}.{_TYPE}", lambda w, c, o: _store(w, c, o),
         "memory"),
    Form(f"atom{{.relaxed|.acquire|.release|.acq_rel|}}{{.cta|.cluster|.gpu|.sys|}}"
         f"{_SHARED_OR_GLOBAL}.{_OPERATION}.{_ATOMIC_TYPE}", _atomic, "memory"),
    Form(f"red{{.relaxed|.release|}}{{.cta|.cluster|.gpu|.sys|}}"
         f"{_SHARED_OR_GLOBAL}.{_OPERATION}.{_ATOMIC_TYPE}", _reduction, "memory"),
    Form("red.relaxed.gpu.global.add.{v2|v4}.f32", _vector_reduction, "memory"),
    Form("cvta{.to|}.{global|const|param|local|shared|shared::cta|shared::cluster}.u64",
         _convert_address, "memory"),
    Form(f"createpolicy.fractional.{{{_EVICTION}}}{{.L2::evict_first|.L2::evict_unchanged|}}.b64",
         _policy, "memory"),
    Form("mapa{.shared::cluster|}.{u32|u64}", _map_address, "sync"),
)  # fmt: skip
