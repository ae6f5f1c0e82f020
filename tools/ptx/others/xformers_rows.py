"""xFormers: RMS norm with and without a sum, rotary embedding of a padded batch, rows by index."""

import torch
from near import near
from torch.nn import functional
from xformers.ops._triton.k_index_select_cat import index_select_cat_fwd
from xformers.ops._triton.rmsnorm_kernels import _rms_norm_add_forward, _rms_norm_forward

x, y, w = (torch.randn(8, 96, device="cuda") for _ in range(3))
w = w[0]
near(_rms_norm_forward(x, w, 1e-6), functional.rms_norm(x.double(), (96,), w.double(), 1e-6))
total = x.double() + y.double()
near(_rms_norm_add_forward(x, y, w, 1e-6), functional.rms_norm(total, (96,), w.double(), 1e-6))
rows = torch.tensor([5, 1, 6], device="cuda")
made = torch.empty(3, 96, device="cuda")
index_select_cat_fwd(made, y.contiguous(), rows)
near(made, y[rows])
