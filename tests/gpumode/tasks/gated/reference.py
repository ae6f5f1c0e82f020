import math

import torch
from torch import nn
from utils import full_precision, make_match_reference


class Gated(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x, mask):
        x = self.norm(x) * mask.unsqueeze(-1)
        return self.out(x * self.gate(x).sigmoid())


def generate_input(seqlen: int, bs: int, dim: int, seed: int, nomask: bool, distribution: str):
    gen = torch.Generator(device="cuda")
    gen.manual_seed(seed)
    if distribution == "cauchy":
        zero, two = torch.tensor(0.0, device="cuda"), torch.tensor(2.0, device="cuda")
        x = torch.distributions.Cauchy(zero, two).sample((bs, seqlen, dim))
    else:
        x = torch.randn((bs, seqlen, dim), device="cuda", generator=gen)
    mask = torch.ones(bs, seqlen, device=x.device)
    if not nomask:
        mask = torch.randint(0, 2, (bs, seqlen), device=x.device, generator=gen)
    weights = {
        "norm.weight": torch.randn(dim, device="cuda"),
        "norm.bias": torch.randn(dim, device="cuda"),
        "gate.weight": torch.randn(dim, dim, device="cuda") / math.sqrt(dim),
        "out.weight": torch.randn(dim, dim, device="cuda") / math.sqrt(dim),
    }
    return x, mask, weights, {"dim": dim}


def ref_kernel(data):
    with full_precision():
        x, mask, weights, config = data
        module = Gated(config["dim"]).to("cuda")
        module.norm.weight = nn.Parameter(weights["norm.weight"])
        module.norm.bias = nn.Parameter(weights["norm.bias"])
        module.gate.weight = nn.Parameter(weights["gate.weight"])
        module.out.weight = nn.Parameter(weights["out.weight"])
        return module(x, mask)


check_implementation = make_match_reference(ref_kernel, rtol=2e-2, atol=2e-2)
