"""Liger Kernel: softmax, SwiGLU, GeGLU, rotary embedding in place, forward and backward."""

import torch
from liger_kernel.ops.geglu import LigerGELUMulFunction
from liger_kernel.ops.rope import LigerRopeFunction
from liger_kernel.ops.softmax import LigerSoftmaxFunction
from liger_kernel.ops.swiglu import LigerSiLUMulFunction
from near import near, near_with_gradients, parameter
from torch.nn import functional


def turned(x, cos, sin):
    """Halves of the last dimension as pairs, rotated."""
    first, second = x.double().chunk(2, dim=-1)
    return x.double() * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]


a, b = parameter(6, 200), parameter(6, 200)
near_with_gradients(LigerSoftmaxFunction.apply(a), a.double().softmax(-1), (a,))
near_with_gradients(
    LigerSiLUMulFunction.apply(a, b), functional.silu(a.double()) * b.double(), (a, b)
)
near_with_gradients(
    LigerGELUMulFunction.apply(a, b),
    functional.gelu(a.double(), approximate="tanh") * b.double(), (a, b),
)  # fmt: skip
q, k = parameter(1, 4, 16, 32), parameter(1, 2, 16, 32)
angles = torch.randn(1, 16, 16, device="cuda").repeat(1, 1, 2)
cos, sin = angles.cos(), angles.sin()
q_made, k_made = LigerRopeFunction.apply(q.clone(), k.clone(), cos, sin)
near(k_made, turned(k, cos.double(), sin.double()))
near_with_gradients(q_made, turned(q, cos.double(), sin.double()), (q,))
