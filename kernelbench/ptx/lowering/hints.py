"""Instructions without effect on values or order, and questions about addresses and lanes.

PTX ISA 9.1: 9.7.9 prefetch, applypriority, createpolicy, isspacep, getctarank; 9.7.13 activemask;
9.7.20 pmevent.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.lowering.forms import Form, Lower
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Address, Operand

_EVICT = "{evict_last|evict_normal|evict_first|evict_unchanged}"


def _nothing(*counts: int) -> Lower:
    def lower(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
        writer.expect(operands, *counts)
        return ";"

    return lower


def _policy(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """Caches are not modelled: every policy is 0."""
    return writer.assign(operands[0], "b64", "0ul")


def _is_in_space(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    (space,) = chosen
    pointer = writer.generic(Address(operands[1], 0, ()))
    shared = f"px::emu::points_to_shared({pointer}, false)"
    size = writer.layout.local_bytes
    local = f"(px::address_of({pointer}) - px::address_of(local) < {size})" if size else "false"
    if space in ("shared", "shared::cta"):
        shared = f"px::emu::points_to_shared({pointer}, true)"
    answer = {"local": local, "global": f"!({shared} || {local})", "const": "false"}
    return writer.assign(operands[0], "pred", answer.get(space, shared))


def _cta_rank(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """The CTA of a shared::cluster address."""
    writer.expect(operands, 2)
    space, kind = chosen
    given = writer.value(operands[1], int(kind[1:]) // 8)
    address = given if space else f"px::to_shared(px::pointer({given}))"
    return writer.assign(operands[0], "b32", f"px::b32({address}) >> 24")


def _active_mask(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """The lanes that are there; all of the warp's if no branch came since it was together."""
    writer.expect(operands, 1)
    together = writer.function.kernel
    for each in writer.function.statements:
        if each is writer.statement:
            break
        if each.opcode.startswith("bar"):
            together = True
        elif each.label or each.opcode.startswith(("bra", "brx", "ret", "exit")):
            together = False
    return writer.assign(operands[0], "b32", f"px::active_mask({str(together).lower()})")


HINT_FORMS: tuple[Form, ...] = (
    Form("prefetch{.global|.local|}.{L1|L2}", _nothing(1), "hints"),
    Form("prefetch.global.L2::{evict_last|evict_normal}", _nothing(1), "hints"),
    Form("prefetchu.L1", _nothing(1), "hints"),
    Form("prefetch{.const|.param|}.tensormap", _nothing(1), "hints"),
    Form("applypriority{.global|}.L2::evict_normal", _nothing(2), "hints"),
    Form("cp.async.bulk.prefetch.L2.global{.L2::cache_hint|}", _nothing(2, 3), "hints"),
    Form("cp.async.bulk.prefetch.tensor.{1d|2d|3d|4d|5d}.L2.global"
         "{.tile|.tile::gather4|.im2col|}{.L2::cache_hint|}", _nothing(1, 2, 3), "hints"),
    Form(f"createpolicy.fractional.L2::{_EVICT}{{.L2::evict_first|.L2::evict_unchanged|}}.b64",
         _policy, "hints"),
    Form(f"createpolicy.range{{.global|}}.L2::{_EVICT}"
         "{.L2::evict_first|.L2::evict_unchanged|}.b64", _policy, "hints"),
    Form("createpolicy.cvt.L2.b64", _policy, "hints"),
    Form("pmevent{.mask|}", _nothing(1), "hints"),
    Form("isspacep.{global|shared|shared::cta|shared::cluster|local|const}", _is_in_space,
         "hints"),
    Form("getctarank{.shared::cluster|}.{u32|u64}", _cta_rank, "hints"),
    Form("activemask.b32", _active_mask, "hints"),
)  # fmt: skip
