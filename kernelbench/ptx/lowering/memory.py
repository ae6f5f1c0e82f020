"""Loads, stores, atomics and addresses (PTX ISA 9.1, 9.7.9 and 9.7.13; state spaces: 5.1)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form, call, scope_of
from kernelbench.ptx.lowering.grid_barriers import waits_for_change
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import SIZES, Operand, Vector

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
    # A thread's own memory needs no order, and parameters never change.
    access = "own_load" if space == "local" or space.startswith("param") else "load"
    if chosen[1] == "nc" and access == "load":
        access = "read_only_load"
    return _loaded(writer, access, space, vector, kind, operands)


def _loaded(
    writer: Writer, access: str, space: str, vector: str, kind: str, operands: Sequence[Operand]
) -> str:
    bits, count = f"px::b{8 * SIZES[kind]}", int(vector[1:]) if vector else 1
    # Loads into wider registers extend the sign of signed types.
    seen = writer.cpp(kind) if kind[0] == "s" else ""
    where = writer.accessed(operands[1], space, count * SIZES[kind])
    items = _elements(operands[0], vector)
    if not vector:
        value = f"px::{access}<{bits}>({where})"
        if access != "own_load" and (used := writer.selected_if(items[0])):
            value = f"({used} ? {value} : {bits}(0))"
        return writer.assign(items[0], bits[4:], f"{seen}({value})")
    name = writer.temporary()
    out = [f"const px::Byte* const {name} = {where};"]
    if access != "own_load":
        announced = "announce_read_only" if access == "read_only_load" else "announce_read"
        out.append(f"px::{announced}<{len(items) * SIZES[kind]}>({name});")
    for at, item in enumerate(items):
        out.append(writer.assign(item, bits[4:], f"{seen}(px::element<{bits}>({name}, {at}))"))
    return "{ " + " ".join(out) + " }"


def _elements(operand: Operand, vector: str) -> Sequence[Operand]:
    """The registers of a vector of this width, or the one."""
    if not vector:
        return (operand,)
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != int(vector[1:]):
        raise StatementError(f"{len(items)} registers for {vector}")
    return items


def _strong_load(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``ld.{relaxed|acquire}.scope``, and ``ld.volatile``, which is relaxed at system scope."""
    order, vector, kind = chosen[0], chosen[-2], chosen[-1]
    space = chosen[1] if order == "volatile" else chosen[2]
    if space == "local" or (vector and SIZES[kind] > _AT_ONCE[0]):
        raise StatementError("a strong load of this kind")
    writer.expect(operands, 2)
    access, strength = "strong_load", _strength(chosen)
    items, name = _elements(operands[0], vector), writer.temporary()
    bits, where = f"b{8 * SIZES[kind]}", writer.pointer(operands[1], space)
    if len(items) * SIZES[kind] in _AT_ONCE[0 if vector else 1 :]:
        access = "load_together"
    elif SIZES[kind] == 4 and waits_for_change(writer.function.statements, writer.statement):
        strength += ", true"
    out = [f"const auto {name} = px::{access}<px::{bits}, {len(items)}>({where}{strength});"]
    seen = writer.cpp(kind) if kind[0] == "s" else ""
    for at, item in enumerate(items):
        out.append(writer.assign(item, bits, f"{seen}({name}.at[{at}])"))
    return "{ " + " ".join(out) + " }"


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
    where = writer.accessed(operands[0], space, count * SIZES[kind])
    return f"px::{access}<{bits}>({where}, {', '.join(values)});"


def _strong_store(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    order, vector, kind = chosen[0], chosen[-2], chosen[-1]
    space = chosen[1] if order == "volatile" else chosen[2]
    if space == "local" or (vector and SIZES[kind] > _AT_ONCE[0]):
        raise StatementError("a strong store of this kind")
    writer.expect(operands, 2)
    strength, bits, size = _strength(chosen), f"px::b{8 * SIZES[kind]}", SIZES[kind]
    values = writer.values(operands[1], size)
    if len(values) != (int(vector[1:]) if vector else 1):
        raise StatementError(f"{len(values)} values for {vector}")
    where = writer.pointer(operands[0], space)
    if len(values) * size in _AT_ONCE[0 if vector else 1 :]:
        return f"px::store_together<{bits}>({where}{strength}, {', '.join(values)});"
    name = writer.temporary()
    out = [f"px::Byte* const {name} = {where};"]
    if vector:
        out.append(f"px::aligned_vector<{len(values) * size}>({name});")
    out += [
        f"px::strong_store<{bits}>({name} + {at * size}{strength}, {each});"
        for at, each in enumerate(values)
    ]
    return f"{{ {' '.join(out)} }}"


def _strength(chosen: Sequence[str]) -> str:
    """Order and scope of a strong load or store, as arguments; ``.volatile`` has no scope."""
    volatile = chosen[0] == "volatile"
    order, scope = ("relaxed", "sys") if volatile else (chosen[0], chosen[1])
    return f", px::Order::{_ORDERS[order]}, {scope_of(scope)}"


def _atomic(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``atom``: the old value is the result."""
    target, address, *values = operands
    call = _update(writer, chosen, address, values, returns=True)
    return writer.assign(target, chosen[-1], call)


def _reduction(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``red``: an atomic without a result."""
    address, *values = operands
    call = _update(writer, chosen, address, values, returns=False)
    return f"(void){call};"


def _update(
    writer: Writer,
    chosen: Sequence[str],
    address: Operand,
    values: Sequence[Operand],
    *,
    returns: bool,
) -> str:
    order, scope, space, operation, kind = chosen
    if len(values) != (2 if operation == "cas" else 1):
        raise StatementError(f"{len(values)} values")
    if operation in ("inc", "dec") and kind != "u32":
        raise StatementError(f"{operation} of {kind}")
    if kind in ("f32", "f64") and operation not in ("add", "exch"):
        raise StatementError(f"{operation} of {kind}")
    given = ", ".join(writer.typed(each, kind) for each in values)
    flags = f"{'true' if returns else 'false'}, px::Order::{_ORDERS[order]}, {scope_of(scope)}"
    if kind in _HALVES:
        operation = operation.removesuffix(".noftz") + "_noftz"
    if operation == "add" and space.startswith("shared"):
        operation = "add_shared"
    if kind == "b128":
        operation += "_16"
    return f"px::atomic_{operation}({writer.pointer(address, space)}, {flags}, {given})"


#: Atomics of halves do not flush; pairs are atomic as a whole here, each half by itself in PTX.
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")


def _vector_update(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``atom`` and ``red`` of a vector: each element by itself."""
    order, scope, space, operation, vector, kind = chosen
    result, address, values = operands if len(operands) == 3 else ("_", *operands)
    given = values.items if isinstance(values, Vector) else ()
    results = result.items if isinstance(result, Vector) else ["_"] * len(given)
    if len(given) != int(vector[1:]) or len(results) != len(given):
        raise StatementError(f"{len(given)} values for {vector}")
    name = writer.temporary()
    out = [f"px::Byte* const {name} = {writer.pointer(address, space)};"]
    out.append(f"px::aligned_vector<{len(given) * SIZES[kind]}>({name});")
    out += ["px::b32 " + ", ".join(f"{name}_{at}" for at in range(len(given))) + ";"]
    suffix = "_noftz" if kind in _HALVES else ""
    flags = f"{'true' if result != '_' else 'false'}, px::Order::{_ORDERS[order]}"
    flags += f", {scope_of(scope)}"
    function = f"px::atomic_{operation.removesuffix('.noftz')}{suffix}"
    for at, each in enumerate(given):
        where = f"{name} + {at * SIZES[kind]}"
        call = f"{function}({where}, {flags}, {writer.typed(each, kind)})"
        out.append(f"{name}_{at} = px::stored<px::b32>({call});")
    for at, each in enumerate(results):
        bits = f"b{8 * SIZES[kind]}"
        out.append(writer.assign(each, bits, f"px::{bits}({name}_{at})"))
    return f"{{ {' '.join(out)} }}"


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
#: Bytes of vectors that a strong access moves at once; the last of one register, too.
_AT_ONCE = (8, 16)
_SHARED_OR_GLOBAL = "{.global|.shared|.shared::cta|.shared::cluster|}"

_VECTORS = (
    "{add.noftz|min.noftz|max.noftz}.{v2|v4|v8}.{f16|bf16}",
    "{add.noftz|min.noftz|max.noftz}.{v2|v4}.{f16x2|bf16x2}",
)  # fmt: skip

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
    *(
        Form(f"atom{{.relaxed|.acquire|.release|.acq_rel|}}{{.cta|.cluster|.gpu|.sys|}}"
             f"{{.global|}}.{rest}", _vector_update, "memory")
        for rest in ("{add}.{v2|v4}.{f32}", *_VECTORS)
    ),
    *(
        Form(f"red{{.relaxed|.release|}}{{.cta|.cluster|.gpu|.sys|}}{{.global|}}.{rest}",
             _vector_update, "memory")
        for rest in _VECTORS
    ),
    *(
        Form(f"red{order}{{.global|}}.{{add}}.{{v2|v4}}.{{f32}}", _vector_update, "memory")
        for order in ("{}{}", f"{{.release}}{_SCOPE}", "{.relaxed}{.cta|.cluster|.sys}")
    ),
    *(
        Form(f"{root}{orders}{{.cta|.cluster|.gpu|.sys|}}"
             f"{_SHARED_OR_GLOBAL}.{{add.noftz}}.{{f16|bf16|f16x2|bf16x2}}", lower, "memory")
        for root, orders, lower in (
            ("atom", "{.relaxed|.acquire|.release|.acq_rel|}", _atomic),
            ("red", "{.relaxed|.release|}", _reduction),
        )
    ),
    Form(f"atom{{.relaxed|.acquire|.release|.acq_rel|}}{{.cta|.cluster|.gpu|.sys|}}"
         f"{_SHARED_OR_GLOBAL}.{{cas|exch}}.{{b16|b128}}", _atomic, "memory"),
    call("discard{.global|}.L2", "in:$0 -", "discard", "memory"),
    Form("atom.{global|shared}" + _SCOPE + "{.relaxed|.acquire|.release|.acq_rel}"
         ".{add.noftz}.{f16|bf16|f16x2|bf16x2}",
         lambda w, c, o: _atomic(w, (c[2], c[1], c[0], c[3], c[4]), o), "memory"),
    Form("atom.{global}" + _SCOPE + "{.relaxed|.acquire|.release|.acq_rel}.{add}.{v2|v4}.{f32}",
         lambda w, c, o: _vector_update(w, (c[2], c[1], c[0], *c[3:]), o), "memory"),
    Form("cvta{.to|}.{global|const|param|local|shared|shared::cta|shared::cluster}.u64",
         _convert_address, "memory"),
    Form("mapa{.shared::cluster|}.{u32|u64}", _map_address, "sync"),
)  # fmt: skip
