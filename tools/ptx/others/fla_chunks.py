"""flash-linear-attention: linear attention and the gated delta rule by chunks, attention, bf16."""

import torch
from fla.ops.attn.parallel import parallel_attn
from fla.ops.gated_delta_rule import chunk_gated_delta_rule
from fla.ops.linear_attn import chunk_linear_attn
from near import near_as_a_whole
from torch.nn import functional

TIMES, WIDTH = 96, 64


def operands(width):
    for _ in range(3):
        yield torch.randn(1, TIMES, 1, width, device="cuda").bfloat16()


q, k, v = operands(WIDTH)
made = parallel_attn(q, k, v)
wanted = functional.scaled_dot_product_attention(
    *(each.double().transpose(1, 2) for each in (q, k, v)), is_causal=True
).transpose(1, 2)
near_as_a_whole(made[0] if isinstance(made, tuple) else made, wanted, 1e-2)

q, k, v = operands(32)
made, _ = chunk_linear_attn(q, k, v, normalize=False)
weights = torch.einsum("bthk,bshk->bhts", q.double(), k.double()).tril() * 32**-0.5
near_as_a_whole(made, torch.einsum("bhts,bshv->bthv", weights, v.double()), 1e-2)

k = functional.normalize(k, dim=-1)
gate = functional.logsigmoid(torch.randn(1, TIMES, 1, device="cuda"))
beta = torch.randn(1, TIMES, 1, device="cuda").sigmoid()
made, _ = chunk_gated_delta_rule(q, k, v, gate, beta)
state, rows = torch.zeros(32, 32, device="cuda").double(), []
for at in range(TIMES):
    key, value = k[0, at, 0].double(), v[0, at, 0].double()
    state = state * gate[0, at, 0].double().exp()
    state = state + beta[0, at, 0].double() * torch.outer(key, value - key @ state)
    rows.append(q[0, at, 0].double() @ state * 32**-0.5)
near_as_a_whole(made, torch.stack(rows)[None, :, None], 1e-2)
