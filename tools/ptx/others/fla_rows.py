"""flash-linear-attention: norms, softmax and sums along rows, two recurrences."""

import torch
from fla.modules.l2norm import l2norm
from fla.modules.layernorm import rms_norm
from fla.ops.hgrn import fused_recurrent_hgrn
from fla.ops.linear_attn import fused_recurrent_linear_attn
from fla.ops.utils.cumsum import chunk_global_cumsum
from fla.ops.utils.softmax import softmax_fwd
from near import near
from torch.nn import functional

x, w = torch.randn(3, 20, 64, device="cuda"), torch.randn(64, device="cuda")
near(l2norm(x), functional.normalize(x.double(), dim=-1))
near(rms_norm(x, w, None), functional.rms_norm(x.double(), (64,), w.double(), 1e-5))
near(softmax_fwd(x), x.double().softmax(-1))
near(chunk_global_cumsum(x), x.double().cumsum(1))

x, gate = torch.randn(2, 33, 64, device="cuda"), torch.randn(2, 33, 64, device="cuda")
gate = functional.logsigmoid(gate)
made, _ = fused_recurrent_hgrn(x, gate)
state = torch.zeros(2, 64, device="cuda").double()
for at in range(33):
    state = gate[:, at].double().exp() * state + x[:, at].double()
near(made[:, 32], state)

q, k, v = (torch.randn(1, 20, 2, 32, device="cuda") for _ in range(3))
made, _ = fused_recurrent_linear_attn(q, k, v)
weights = torch.einsum("bthk,bshk->bhts", q.double(), k.double()).tril() * 32**-0.5
near(made, torch.einsum("bhts,bshv->bthv", weights, v.double()), 1e-3)
