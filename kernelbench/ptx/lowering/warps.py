"""Warps, named barriers, clusters and fences (PTX ISA 9.1, 9.7.9 shfl, 9.7.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.control import fixed
from kernelbench.ptx.lowering.forms import Form, scope_of
from kernelbench.ptx.parser.model import Pair

if TYPE_CHECKING:
    from kernelbench.ptx.lowering.writer import Writer
    from kernelbench.ptx.parser.model import Operand


def _shuffle(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``shfl.sync.mode.b32 d{|p}, a, b, c, membermask``."""
    writer.expect(operands, 5)
    target = operands[0]
    value, p = (target.first, target.second) if isinstance(target, Pair) else (target, "_")
    given = ", ".join(writer.value(each, 4) for each in operands[1:])
    name = writer.temporary()
    return " ".join((
        f"{{ const auto {name} = px::shfl<px::Shuffle::{chosen[0]}>({given});",
        writer.assign(value, "b32", f"{name}.value"),
        writer.assign(p, "pred", f"{name}.in_range"),
        "}",
    ))  # fmt: skip


def _vote(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 3)
    predicate, members = writer.predicate(operands[1]), writer.value(operands[2], 4)
    kind = "b32" if chosen[0].startswith("ballot") else "pred"
    name = chosen[0].partition(".")[0]
    return writer.assign(operands[0], kind, f"px::vote_{name}({predicate}, {members})")


def _reduce(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 3)
    operation, kind = chosen
    value, members = writer.typed(operands[1], kind), writer.value(operands[2], 4)
    return writer.assign(operands[0], kind, f"px::redux_{operation}({value}, {members})")


def _reduce_real(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``redux.sync.op{.abs}{.NaN}.f32``."""
    writer.expect(operands, 3)
    operation, absolute, nan, _ = chosen
    value, members = writer.typed(operands[1], "f32"), writer.value(operands[2], 4)
    value = f"std::fabs({value})" if absolute else value
    call = f"px::redux_{operation}_real({value}, {members}, {'true' if nan else 'false'})"
    return writer.assign(operands[0], "f32", call)


def _elect(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``elect.sync d|p, membermask``: p in one lane, whose number is d in all of them."""
    writer.expect(operands, 2)
    target = operands[0]
    if not isinstance(target, Pair):
        raise StatementError("no d|p")
    name, members = writer.temporary(), writer.value(operands[1], 4)
    out = f"{{ const px::b32 {name} = px::elected_by({members}); "
    if target.first != "_":
        out += writer.assign(target.first, "b32", f"{name} % 32") + " "
    return out + writer.assign(target.second, "pred", f"{name} >= 32") + " }"


def _match(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``match.any.sync d, a, members``; ``match.all.sync d{|p}, a, members``."""
    writer.expect(operands, 3)
    which, kind = chosen
    value = writer.value(operands[1], int(kind[1:]) // 8)
    call = f"px::match_{which}({value}, {writer.value(operands[2], 4)})"
    target = operands[0]
    if not isinstance(target, Pair):
        return writer.assign(target, "b32", call)
    name = writer.temporary()
    return " ".join((
        f"{{ const px::b32 {name} = {call};",
        writer.assign(target.first, "b32", name),
        writer.assign(target.second, "pred", f"{name} != 0"),
        "}",
    ))  # fmt: skip


def _barrier_reduction(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``bar.red.op d, a{, b}, {!}c``."""
    operation, kind = chosen[-1].split(".")
    writer.expect(operands, 3, 4)
    given = [writer.predicate(operands[-1]), *(writer.value(each, 4) for each in operands[1:-1])]
    return writer.assign(operands[0], kind, f"px::bar_red_{operation}({', '.join(given)})")


def _warp_barrier(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 1)
    return f"px::bar_warp_sync({writer.value(operands[0], 4)});"


def _sync(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``bar.sync a{, b}``."""
    writer.expect(operands, 1, 2)
    return f"px::bar_sync({', '.join(writer.value(each, 4) for each in operands)});"


def _arrive(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    barrier, threads = (writer.value(each, 4) for each in operands)
    return f"px::bar_arrive({barrier}, {threads});"


def _cluster_arrive(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 0)
    return f"px::cluster_arrive({'false' if chosen[0] == 'relaxed' else 'true'});"


def _fence(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    """``fence``, ``membar``: sequential consistency is taken as acquire and release."""
    writer.expect(operands, 0)
    return f"px::fence({scope_of(chosen[-1])});"


def _proxy_fence(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 0)
    shared = "false" if chosen[0] == "global" else "true"
    everywhere = "true" if chosen[0] in ("global", "") else "false"
    return f"px::fence_proxy_async({shared}, {everywhere});"


def _acquire_map(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 2)
    return f"px::fence_tensormap_acquire({writer.generic(operands[0])});"


WARP_FORMS: tuple[Form, ...] = (
    Form("shfl.sync.{up|down|bfly|idx}.b32", _shuffle, "warps"),
    Form("vote.sync.{any.pred|all.pred|uni.pred|ballot.b32}", _vote, "warps"),
    Form("redux.sync.{add|min|max}.{u32|s32}", _reduce, "warps"),
    Form("redux.sync.{and|or|xor}.{b32}", _reduce, "warps"),
    Form("redux.sync.{min|max}{.abs|}{.NaN|}.{f32}", _reduce_real, "warps"),
    Form("match.{any|all}.sync.{b32|b64}", _match, "warps"),
    Form("{bar|barrier}{.cta|}.red{.aligned|}.{popc.u32|and.pred|or.pred}", _barrier_reduction,
         "sync"),
    Form("elect.sync", _elect, "warps"),
    Form("bar.warp.sync", _warp_barrier, "warps"),
    Form("{bar|barrier}{.cta|}.sync{.aligned|}", _sync, "sync"),
    Form("{bar|barrier}{.cta|}.arrive{.aligned|}", _arrive, "sync"),
    Form("barrier.cluster.arrive{.release|.relaxed|}{.aligned|}", _cluster_arrive, "sync"),
    Form("barrier.cluster.wait{.acquire|}{.aligned|}", fixed("px::cluster_wait();"), "sync"),
    Form("fence{.acq_rel|.sc|}.{cta|cluster|gpu|sys}", _fence, "memory"),
    # One half of it is taken for both.
    Form("fence.{acquire|release}.{cta|cluster|gpu|sys}", _fence, "memory"),
    Form("membar.{cta|gl|sys}", _fence, "memory"),
    Form("fence.mbarrier_init.release.cluster", fixed("px::fence_mbarrier_init();"), "sync"),
    Form("fence.proxy.async{.shared::cta|.shared::cluster|.global|}", _proxy_fence, "bulk"),
    # Without its acquire, too: kernels have the release alone.
    Form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
         fixed("px::fence_proxy_async_release();"), "order"),
    Form("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
         fixed("px::fence(px::Scope::kCluster);"), "order"),
    Form("fence.proxy.tensormap::generic.release.{cta|cluster|gpu|sys}",
         fixed("px::fence_tensormap_release();"), "order"),
    Form("fence.proxy.tensormap::generic.acquire.{cta|cluster|gpu|sys}", _acquire_map, "bulk"),
)  # fmt: skip
