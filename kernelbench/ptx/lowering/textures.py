"""Textures and surfaces by their objects' handles (PTX ISA 9.1, 9.7.10 and 9.7.11)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.forms import Form
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import SIZES, Address, Operand, Vector

_GEOMETRY = "{1d|2d|3d|a1d|a2d|cube|acube}"
_SURFACE = "{1d|2d|3d|a1d|a2d}{.v2|.v4|}.{b8|b16|b32|b64}.{trap|clamp|zero}"


def _fetch(writer: Writer, geometry: str, kind: str, operand: Operand) -> str:
    """The arguments that say where, from ``[handle, {coordinates}]``."""
    if not isinstance(operand, Address) or len(operand.coordinates) != 1:
        raise StatementError("no [object, coordinates] of the unified mode")
    given = operand.coordinates[0]
    items = list(given.items if isinstance(given, Vector) else (given,))
    layered, cube = geometry.startswith("a"), geometry.endswith("cube")
    rank = 3 if cube else int(geometry[-2])
    if len(items) < rank + layered:
        raise StatementError(f"{len(items)} coordinates for {geometry}")
    layer = writer.value(items.pop(0), 4) if layered else "0u"
    at = ", ".join(f"px::f64({writer.typed(each, kind)})" for each in items[:rank])
    flags = ", ".join(str(each).lower() for each in (layered, cube, kind == "s32"))
    handle = writer.value(operand.base, 8)
    return f"{handle}, px::Fetch{{{rank}, {flags}, {layer}, {{{at}}}}}"


def _given(writer: Writer, target: Operand, kind: str, call: str) -> str:
    items, name = target.items if isinstance(target, Vector) else (target,), writer.temporary()
    parts = [writer.assign(each, kind, f"{name}.at[{at}]") for at, each in enumerate(items)]
    return f"{{ const auto {name} = {call}; {' '.join(parts)} }}"


def _tex(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``tex``, of the first level or of one by its number."""
    level, geometry, kind = chosen
    writer.expect(operands, {"": 2, "level": 3, "grad": 4}[level])
    where = _fetch(writer, geometry, kind, operands[1])
    if level == "level":
        where += f", px::f32({writer.typed(operands[2], kind)})"
    call = f"px::tex{level and f'_{level}'}({where})"
    return _given(writer, operands[0], "b32", call)


def _gather(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    channel, geometry = chosen
    writer.expect(operands, 2)
    where = _fetch(writer, geometry, "f32", operands[1])
    return _given(writer, operands[0], "b32", f"px::tld4({where}, {'rgba'.index(channel)})")


def _surface(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    access, geometry, vector, kind, outside = chosen
    writer.expect(operands, 2)
    count, loads = int(vector[1:]) if vector else 1, access == "suld"
    where = _fetch(writer, geometry, "s32", operands[1 if loads else 0])
    where += f", px::Outside::k{outside.capitalize()}"
    if loads:
        return _given(writer, operands[0], kind, f"px::suld<px::{kind}, {count}>({where})")
    values = writer.values(operands[1], SIZES[kind])
    if len(values) != count:
        raise StatementError(f"{len(values)} values for {vector}")
    return f"px::sust<px::{kind}>({where}, {', '.join(values)});"


def _query(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    handle = writer.value(operands[1].base, 8) if isinstance(operands[1], Address) else ""
    return writer.assign(operands[0], "b32", f"px::image_at({handle}).{chosen[1]}")


TEXTURE_FORMS: tuple[Form, ...] = (
    Form(f"tex{{.level|.grad|}}.{_GEOMETRY}.v4.{{f32|u32|s32}}.{{f32|s32}}",
         lambda w, c, o: _tex(w, (c[0], c[1], c[3]), o), "textures"),
    Form("tld4.{r|g|b|a}.{2d|a2d}.v4.{f32|u32|s32}.f32",
         lambda w, c, o: _gather(w, c[:2], o), "textures"),
    Form(f"{{suld}}.b.{_SURFACE}", _surface, "textures"),
    Form(f"{{sust}}.b.{_SURFACE}", _surface, "textures"),
    Form("{txq|suq}.{width|height|depth}.b32", _query, "textures"),
)  # fmt: skip
