"""What a shape makes a step of the fused MoE do; ``check`` names what is left.

Each of these once hid a bug from shapes that did not bring it about.
"""

from __future__ import annotations

from kernelbench.problems.fused_moe.shape import MoeShape
from kernelbench.project.model import Step

_CROWD = 64


def moe_situations(shape: MoeShape, step: Step, sms: int) -> dict[str, bool]:
    """Whether each situation is reached, by the shape's sizes and the kind of its routing."""
    from kernelbench.problems.fused_moe.fp8 import BLOCK  # imports torch

    routes = shape.m * shape.topk
    blocks = shape.k // BLOCK
    crowded = (shape.m if shape.routing == "one" else routes / shape.e) > _CROWD
    stages = int(step.config.get("stages", 1))
    average = routes / shape.e
    empty = shape.routing != "uniform" or routes < shape.e
    return {
        "an expert with more than 64 tokens": crowded,
        "an expert with more than 64 tokens and an odd number of blocks of K": crowded
        and blocks % 2 == 1,
        "experts without tokens": empty and shape.e > shape.topk,
        "one block of K and experts without tokens": blocks == 1 and empty and shape.e > shape.topk,
        "a pipeline that comes round": blocks > stages,
        "experts without tokens and a pipeline that comes round": blocks > stages
        and empty
        and shape.e > shape.topk,
        "17 to 40 tokens an expert on average": 17 <= average <= 40,
        "41 to 72 tokens an expert on average": 41 <= average <= 72,
        "more than 72 tokens an expert on average": average > 72,
        "several tiles of N": shape.n > BLOCK,
        "one token": shape.m == 1,
        "more tokens than SMs": shape.m > sms,
        "fewer tokens than SMs": shape.m < sms,
        "weights that are not renormalized": not shape.renormalize,
        "a softcap": shape.softcap > 0,
    }
