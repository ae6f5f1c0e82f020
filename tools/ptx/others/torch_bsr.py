"""torch's own Triton kernels for matrices of sparse blocks: product, sampled product, softmax."""

import torch
from near import near_as_a_whole
from torch.sparse._triton_ops import bsr_dense_mm, bsr_softmax, sampled_addmm

torch.manual_seed(0)
dense = torch.randn(64, 64, device="cuda").half()
dense *= (torch.rand(4, 4, device="cuda") < 0.5).repeat_interleave(16, 0).repeat_interleave(16, 1)
dense[:, :16] = 1.0  # no row without a block
sparse = dense.to_sparse_bsr((16, 16))
other = torch.randn(64, 32, device="cuda").half()
near_as_a_whole(bsr_dense_mm(sparse, other), dense.double() @ other.double(), 1e-2)
left, right = torch.randn(64, 32, device="cuda").half(), torch.randn(32, 64, device="cuda").half()
made = sampled_addmm(sparse, left, right, beta=0.0)
there = sparse.to_dense() != 0
blocks = there.view(4, 16, 4, 16).any(dim=3).any(dim=1).repeat_interleave(16, 0)
blocks = blocks.repeat_interleave(16, 1)
near_as_a_whole(made.to_dense(), left.double() @ right.double() * blocks, 1e-2)
scores = torch.where(blocks, dense.double(), -torch.inf)
near_as_a_whole(bsr_softmax(sparse).to_dense(), scores.softmax(-1), 1e-2)
