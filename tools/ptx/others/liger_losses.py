"""Liger Kernel: cross entropy with its gradient in place, KL divergence, both of a linear layer."""

import torch
from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction
from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction
from liger_kernel.ops.kl_div import LigerKLDivLossFunction
from near import near, parameter
from torch.nn import functional


def first(made):
    """The loss, where other things come with it."""
    return made[0] if isinstance(made, tuple) else made


def same_gradients(made, wanted, of):
    near(made, wanted)
    for each, other in zip(
        torch.autograd.grad(made, of), torch.autograd.grad(wanted, of), strict=True
    ):
        near(each, other)


x = parameter(6, 300)
target = torch.randint(0, 300, (6,), device="cuda")
target[2] = -100
made = first(LigerCrossEntropyFunction.apply(x * 1, target, None, -100, 0.0, 0.1, "mean"))
wanted = functional.cross_entropy(x.double(), target, label_smoothing=0.1)
same_gradients(made, wanted, (x,))

p = torch.randn(6, 200, device="cuda").log_softmax(-1).requires_grad_()
q = torch.randn(6, 200, device="cuda").softmax(-1)
wanted = functional.kl_div(p.double(), q.double(), reduction="batchmean")
same_gradients(LigerKLDivLossFunction.apply(p, q, "batchmean"), wanted, (p,))

x, w = parameter(16, 64), parameter(128, 64)
target = torch.randint(0, 128, (16,), device="cuda")
wanted = functional.cross_entropy(x.double() @ w.double().T, target)
same_gradients(first(LigerFusedLinearCrossEntropyFunction.apply(x, w, target)), wanted, (x, w))
