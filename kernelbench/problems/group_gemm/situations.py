"""What a shape and a number of SMs make a step of the group GEMM do; ``check`` names what is left.

Each of these once hid a bug from shapes and SM counts that did not bring it about.
"""

from __future__ import annotations

from itertools import pairwise

from kernelbench.problems.group_gemm.shape import GroupGemmShape
from kernelbench.project.model import Step

#: Blocks of K from which the steps that share a tile's K among CTAs do so if CTAs are idle.
_SHARED_BLOCKS = 20


def gemm_situations(shape: GroupGemmShape, step: Step, sms: int) -> dict[str, bool]:
    """Whether each situation is reached; without those that no shape can bring about for the step.

    Tiles, stages and cluster are those of the step's ``[config]``; a step without them has none.
    """
    tile = step.config.get("tile")
    if not isinstance(tile, list) or len(tile) != 3:
        return {}
    cluster = int(step.config.get("cluster", [1])[0])
    stages = int(step.config.get("stages", 1))
    groups = list(zip(shape.m, shape.n, shape.k, strict=True))
    row_tiles = [_over(m, tile[0]) for m, _, _ in groups]
    tiles = [
        rows * _over(n, tile[1] * cluster)
        for rows, (_, n, _) in zip(row_tiles, groups, strict=True)
    ]
    blocks = [_over(k, tile[2]) for _, _, k in groups]
    found = {
        "tiles of less than full height": any(m % tile[0] for m, _, _ in groups),
        "a ring of stages that comes round within a tile": max(blocks) > stages,
        "eight groups of one tile": len(groups) >= 8 and max(tiles) == 1,
        "equal neighbouring groups": any(a == b for a, b in pairwise(groups)),
        "neighbouring groups that differ only in M": any(
            a[0] != b[0] and a[1:] == b[1:] for a, b in pairwise(groups)
        ),
    }
    if stages > 1:
        found["a number of k-blocks that is no multiple of the stages"] = any(
            b % stages for b in blocks
        )
    if "persistent" in str(step.config.get("grid", "")):
        clusters = max(1, sms // cluster)
        found |= {
            "several clusters with several tiles each": 2 <= clusters <= sum(tiles) // 2,
            "more clusters than tiles": clusters > sum(tiles),
        }
        found |= _queue(step, sum(tiles) // min(clusters, max(1, sum(tiles))))
    if step.limits.get("nk") != "fixed":
        found |= {
            "neighbouring groups that differ only in K": any(
                a[:2] == b[:2] and a[2] != b[2] for a, b in pairwise(groups)
            ),
            "a group of several row tiles whose K is not the first group's": any(
                rows > 1 and k != groups[0][2]
                for rows, (_, _, k) in zip(row_tiles, groups, strict=True)
            ),
        }
        found |= _parts_of_k(step, tile[2], shape.k)
    if step.config.get("split_k"):
        found["K of a tile that CTAs share"] = sms > sum(tiles) and max(blocks) >= _SHARED_BLOCKS
    return found


def _queue(step: Step, tiles: int) -> dict[str, bool]:
    """Of a step whose warps take tiles from a queue: its phases shift once as many laps are over
    as warps take part, if one arrives too often or not at all."""
    if (slots := int(step.config.get("tile_slots", 0))) == 0:
        return {}
    warps = int(step.config.get("warps", 1))
    return {"a queue of tiles that comes round once for each warp": tiles > slots * (warps - 1)}


def _parts_of_k(step: Step, tile_k: int, sizes: tuple[int, ...]) -> dict[str, bool]:
    if step.limits.get("k_multiple", 64) != 64 or tile_k <= 64:
        return {}
    return {"K an odd multiple of 64": any(k // 64 % 2 for k in sizes)}


def _over(size: int, part: int) -> int:
    return -(-size // part)
