"""Warps, named barriers, clusters and fences (PTX ISA 9.1, 9.7.9 shfl, 9.7.13)."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.ptx.errors import StatementError
from kernelbench.ptx.lowering.control import fixed
from kernelbench.ptx.lowering.forms import Form, call
from kernelbench.ptx.lowering.writer import Writer
from kernelbench.ptx.parser.model import Operand, Pair


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


def _proxy_fence(writer: Writer, chosen: Sequence[str], operands: Sequence[Operand]) -> str:
    writer.expect(operands, 0)
    shared = "false" if chosen[0] == "global" else "true"
    everywhere = "true" if chosen[0] in ("global", "") else "false"
    return f"px::fence_proxy_async({shared}, {everywhere});"


WARP_FORMS: tuple[Form, ...] = (
    Form("shfl.sync.{up|down|bfly|idx}.b32", _shuffle, "warps"),
    call("vote.sync.{any|all|uni}.pred", "pred b32", "vote_$0", "warps", result="pred"),
    call("vote.sync.ballot.b32", "pred b32", "vote_ballot", "warps", result="b32"),
    call("redux.sync.{add|min|max}.{u32|s32}", "$1 b32", "redux_$0", "warps", result="$1"),
    call("redux.sync.{and|or|xor}.b32", "b32 b32", "redux_$0", "warps", result="b32"),
    call("redux.sync.{min|max}{.NaN|}.f32", "f32 b32", "redux_$0_real({0}, {1}, $?1)", "warps",
         result="f32"),
    call("redux.sync.{min|max}.abs{.NaN|}.f32", "f32 b32",
         "redux_$0_real(std::fabs({0}), {1}, $?1)", "warps", result="f32"),
    Form("match.{any|all}.sync.{b32|b64}", _match, "warps"),
    Form("{bar|barrier}{.cta|}.red{.aligned|}.{popc.u32|and.pred|or.pred}", _barrier_reduction,
         "sync"),
    Form("elect.sync", _elect, "warps"),
    call("bar.warp.sync", "b32", "bar_warp_sync", "warps"),
    call("{bar|barrier}{.cta|}.sync{.aligned|}", "b32 b32?", "bar_sync", "sync"),
    call("{bar|barrier}{.cta|}.arrive{.aligned|}", "b32 b32", "bar_arrive", "sync"),
    Form("barrier.cluster.arrive{.release|}{.aligned|}", fixed("px::cluster_arrive(true);"),
         "sync"),
    Form("barrier.cluster.arrive.relaxed{.aligned|}", fixed("px::cluster_arrive(false);"), "sync"),
    Form("barrier.cluster.wait{.acquire|}{.aligned|}", fixed("px::cluster_wait();"), "sync"),
    # Sequential consistency is taken as acquire and release, one half of these for both.
    call("fence{.acq_rel|.sc|.acquire|.release|}.{cta|cluster|gpu|sys}", "", "fence($@1)",
         "memory"),
    call("membar.{cta|gl|sys}", "", "fence($@0)", "memory"),
    Form("fence.mbarrier_init.release.cluster", fixed("px::fence_mbarrier_init();"), "sync"),
    Form("fence.proxy.async{.shared::cta|.shared::cluster|.global|}", _proxy_fence, "bulk"),
    # Without its acquire, too: kernels have the release alone.
    Form("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster",
         fixed("px::fence_proxy_async_release();"), "order"),
    Form("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster",
         fixed("px::fence(px::Scope::kCluster);"), "order"),
    Form("fence.proxy.tensormap::generic.release.{cta|cluster|gpu|sys}",
         fixed("px::fence_tensormap_release();"), "order"),
    call("fence.proxy.tensormap::generic.acquire.{cta|cluster|gpu|sys}", "generic -",
         "fence_tensormap_acquire", "bulk"),
)  # fmt: skip
