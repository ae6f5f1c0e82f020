"""l16: a MoE layer of many tokens as two grouped products in Triton, weights by the TMA.

No host synchronization: every grid has its largest possible size, and programs without work leave.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

_BLOCK = tl.constexpr(128)  # values with one scale; weights have one per 128 x 128
_HALF = tl.constexpr(64)  # columns of h whose products are summed up at a time
_E4M3_MAX = tl.constexpr(448.0)
_SCALE_FLOOR = tl.constexpr(1e-6)
_TOKENS = 64  # of a tile


@triton.jit
def _scale_of(amax):
    """The scale of blocks of values; IEEE division."""
    return tl.maximum(tl.div_rn(amax, _E4M3_MAX), _SCALE_FLOOR)


@triton.jit
def _quantize(values, scale):
    """float32 -> e4m3 codes of rows of values with a scale each; IEEE divisions."""
    scaled = tl.div_rn(values, tl.broadcast_to(scale[:, None], values.shape))
    return tl.minimum(tl.maximum(scaled, -_E4M3_MAX), _E4M3_MAX).to(tl.float8e4nv)


@triton.jit
def _lay_out(counts, tiles, experts, TOKENS: tl.constexpr, COLUMNS: tl.constexpr):
    """Cut every expert's list into tiles: their number, then expert, first row, rows of each."""
    expert = tl.arange(0, COLUMNS)
    # Other programs' atomics are in L2; a cached line may be older.
    count = tl.load(counts + expert, mask=expert < experts, other=0, volatile=True)
    needed = tl.cdiv(count, TOKENS)
    first = tl.cumsum(needed, axis=0) - needed
    tl.store(tiles, tl.sum(needed, axis=0))
    for index in range(0, tl.max(needed, axis=0)):
        at = tiles + 1 + 3 * (first + index)
        start = index * TOKENS
        tl.store(at, expert, mask=index < needed)
        tl.store(at + 1, start + 0 * expert, mask=index < needed)
        tl.store(at + 2, tl.minimum(count - start, TOKENS), mask=index < needed)


@triton.jit(do_not_specialize=["m"])
def _prepare(
    hidden, ids, expert_weights, output, codes, scales, weights, counts, members, tiles,
    m, experts,
    H: tl.constexpr, TOPK: tl.constexpr, SLOTS: tl.constexpr, COLUMNS: tl.constexpr,
    BLOCKS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """One token per program: quantize, zero its output, join its experts' lists."""
    token = tl.program_id(0).to(tl.int64)
    block = tl.arange(0, BLOCKS)
    at = block[:, None] * _BLOCK + tl.arange(0, _BLOCK)[None, :]
    values = tl.load(hidden + token * H + at, mask=at < H, other=0.0).to(tl.float32)
    slot = tl.arange(0, SLOTS)
    route = token * TOPK + slot
    expert = tl.load(ids + route, mask=slot < TOPK, other=-1)
    valid = (expert >= 0) & (expert < experts)
    place = tl.atomic_add(counts + expert, 1, mask=valid, sem="relaxed")
    tl.store(members + expert.to(tl.int64) * (m * TOPK) + place, route.to(tl.int32), mask=valid)
    # Zero, or NaN if any value of the row is not finite: then the token's output must be NaN.
    weight = tl.load(expert_weights + route, mask=slot < TOPK, other=0.0)
    weight += tl.sum(tl.sum(values * 0.0, axis=1), axis=0)
    tl.store(weights + route, weight, mask=slot < TOPK)
    scale = _scale_of(tl.max(tl.abs(values), axis=1))
    tl.store(codes + token * H + at, _quantize(values, scale), mask=at < H)
    tl.store(scales + token * (H // _BLOCK) + block, scale, mask=block < H // _BLOCK)
    tl.store(output + token * H + at, tl.zeros((BLOCKS, _BLOCK), tl.float32), mask=at < H)
    # All threads' atomics before the one that says that this token is counted.
    tl.debug_barrier()
    if tl.atomic_add(counts + experts, 1, sem="acq_rel") == m - 1:
        _lay_out(counts, tiles, experts, TOKENS, COLUMNS)


@triton.jit
def _routes_of(tiles, members, tile, list_length, TOKENS: tl.constexpr):
    """-> expert of a tile, its rows' routes, and which of its rows exist."""
    expert = tl.load(tiles + 1 + 3 * tile).to(tl.int64)
    first = tl.load(tiles + 2 + 3 * tile)
    row = tl.arange(0, TOKENS)
    valid = row < tl.load(tiles + 3 + 3 * tile)
    route = tl.load(members + expert * list_length + first + row, mask=valid, other=0)
    return expert, route.to(tl.int64), valid


@triton.jit
def _half_of_h(
    codes, scales, w13, w13_scales, expert, token, valid, column,
    H: tl.constexpr, INTER: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """h of a tile from ``column`` on, as float32."""
    depth = tl.arange(0, _BLOCK)
    rows_at = codes + token[:, None] * H + depth[None, :]
    scales_at = scales + token * (H // _BLOCK)
    row = (expert * (2 * INTER) + column).to(tl.int32)
    gate_scale_at = w13_scales + (row // _BLOCK).to(tl.int64) * (H // _BLOCK)
    gate = tl.zeros((TOKENS, _HALF), tl.float32)
    up = tl.zeros((TOKENS, _HALF), tl.float32)
    for block in range(0, H // _BLOCK):
        a = tl.load(rows_at, mask=valid[:, None], other=0.0)
        b_gate = w13.load([row, block * _BLOCK])
        b_up = w13.load([row + INTER, block * _BLOCK])
        scale = tl.load(scales_at + block, mask=valid, other=0.0)
        gate_scale = scale * tl.load(gate_scale_at + block)
        up_scale = scale * tl.load(gate_scale_at + (INTER // _BLOCK) * (H // _BLOCK) + block)
        gate += tl.dot(a, tl.trans(b_gate)) * gate_scale[:, None]
        up += tl.dot(a, tl.trans(b_up)) * up_scale[:, None]
        rows_at += _BLOCK
    return gate / (1.0 + tl.exp(-gate)) * up


@triton.jit(do_not_specialize=["m"])
def _gate_up(
    codes, scales, w13, w13_scales, members, tiles, h_codes, h_scales, m,
    H: tl.constexpr, INTER: tl.constexpr, TOPK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """A block of h of a tile, quantized."""
    tile = tl.program_id(0) // (INTER // _BLOCK)
    if tile >= tl.load(tiles):
        return
    expert, route, valid = _routes_of(tiles, members, tile, m * TOPK, TOKENS)
    token = route // TOPK
    part = tl.program_id(0) % (INTER // _BLOCK)
    column = part * _BLOCK
    # One half waits in registers: products of all 128 columns at once would not fit there.
    left = _half_of_h(
        codes, scales, w13, w13_scales, expert, token, valid, column, H, INTER, TOKENS
    )
    right = _half_of_h(
        codes, scales, w13, w13_scales, expert, token, valid, column + _HALF, H, INTER, TOKENS
    )
    amax = tl.maximum(tl.max(tl.abs(left), axis=1), tl.max(tl.abs(right), axis=1))
    scale = _scale_of(amax)
    at = route[:, None] * INTER + column + tl.arange(0, _HALF)[None, :]
    tl.store(h_codes + at, _quantize(left, scale), mask=valid[:, None])
    tl.store(h_codes + at + _HALF, _quantize(right, scale), mask=valid[:, None])
    tl.store(h_scales + route * (INTER // _BLOCK) + part, scale, mask=valid)


@triton.jit(do_not_specialize=["m"])
def _down(
    h_codes, h_scales, w2, w2_scales, weights, members, tiles, output, m,
    H: tl.constexpr, INTER: tl.constexpr, TOPK: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """A block of the output's columns of a tile, weighted and added."""
    tile = tl.program_id(0) // (H // _BLOCK)
    if tile >= tl.load(tiles):
        return
    expert, route, valid = _routes_of(tiles, members, tile, m * TOPK, TOKENS)
    part = tl.program_id(0) % (H // _BLOCK)
    depth = tl.arange(0, _BLOCK)
    row = (expert * H + part * _BLOCK).to(tl.int32)
    scale_at = w2_scales + (row // _BLOCK).to(tl.int64) * (INTER // _BLOCK)
    total = tl.zeros((TOKENS, _BLOCK), tl.float32)
    for block in range(0, INTER // _BLOCK):
        at = route[:, None] * INTER + block * _BLOCK + depth[None, :]
        a = tl.load(h_codes + at, mask=valid[:, None], other=0.0)
        scale = tl.load(h_scales + route * (INTER // _BLOCK) + block, mask=valid, other=0.0)
        b = w2.load([row, block * _BLOCK])
        total += tl.dot(a, tl.trans(b)) * (scale * tl.load(scale_at + block))[:, None]
    weight = tl.load(weights + route, mask=valid, other=0.0)
    at = output + (route // TOPK)[:, None] * H + part * _BLOCK + depth[None, :]
    tl.atomic_add(at, total * weight[:, None], mask=valid[:, None], sem="relaxed")


def _rows_of(weights, rows):
    """All experts' rows, to be loaded so many at a time."""
    return TensorDescriptor.from_tensor(weights.view(-1, weights.shape[-1]), [rows, 128])


def custom_kernel(data):
    """Compute a MoE layer with blockwise FP8, behind its router, on a Hopper GPU.

    Args:
        data: The problem's named tuple: ``hidden`` bfloat16 ``[m, h]``; ``ids`` int32 and
            ``expert_weights`` float32 ``[m, topk]``; ``w13`` float8_e4m3fn ``[e, 2 i, h]`` and
            ``w2`` ``[e, h, i]`` with ``w13_scales`` and ``w2_scales``; ``output`` float32
            ``[m, h]``.

    Returns:
        ``data.output``. Its last bits depend on the order of atomic additions.
    """
    m, h = data.hidden.shape
    topk = data.ids.shape[1]
    experts, _, inter = data.w2.shape
    routes = m * topk
    # Each expert in use wastes at most _TOKENS - 1 rows of its last tile.
    used = min(experts, routes)
    most_tiles = min(routes, (routes + used * (_TOKENS - 1)) // _TOKENS)

    def empty(*shape, dtype=torch.float32):
        return torch.empty(shape, dtype=dtype, device=data.hidden.device)

    # Routes of each expert, then tokens done.
    counts = torch.zeros(experts + 1, dtype=torch.int32, device=data.hidden.device)
    members = empty(experts, routes, dtype=torch.int32)
    tiles = empty(1 + 3 * most_tiles, dtype=torch.int32)
    weights = empty(routes)
    codes, scales = empty(m, h, dtype=torch.float8_e4m3fn), empty(m, h // 128)
    h_codes, h_scales = empty(routes, inter, dtype=torch.float8_e4m3fn), empty(routes, inter // 128)
    _prepare[(m,)](
        data.hidden, data.ids, data.expert_weights, data.output, codes, scales, weights, counts,
        members, tiles, m, experts, H=h, TOPK=topk, SLOTS=triton.next_power_of_2(topk),
        COLUMNS=triton.next_power_of_2(experts), BLOCKS=triton.next_power_of_2(h // 128),
        TOKENS=_TOKENS, num_warps=4,
    )  # fmt: skip
    sizes = {"H": h, "INTER": inter, "TOPK": topk, "TOKENS": _TOKENS}
    _gate_up[(most_tiles * (inter // 128),)](
        codes, scales, _rows_of(data.w13, 64), data.w13_scales, members, tiles, h_codes, h_scales,
        m, num_warps=4, num_stages=4, **sizes,
    )  # fmt: skip
    _down[(most_tiles * (h // 128),)](
        h_codes, h_scales, _rows_of(data.w2, 128), data.w2_scales, weights, members, tiles,
        data.output, m, num_warps=4, num_stages=4, **sizes,
    )  # fmt: skip
    return data.output
