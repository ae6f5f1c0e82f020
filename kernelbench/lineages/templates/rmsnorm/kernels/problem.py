"""y = x / sqrt(mean(x²) + 1e-6) · weight, for each row of x, in bfloat16."""

import torch

from kernelbench import TensorProblem


class RMSNorm(TensorProblem):
    name = "rmsnorm"

    class Shape:
        rows: int
        columns: int

    def make_inputs(self, shape, input_class, seed, device):
        draw = torch.Generator(device).manual_seed(seed)
        options = {"generator": draw, "device": device, "dtype": torch.bfloat16}
        x = torch.randn(shape.rows, shape.columns, **options)
        return x, torch.randn(shape.columns, **options)

    def reference(self, inputs):
        x, weight = (tensor.double() for tensor in inputs)
        return x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6) * weight

    def depth(self, shape):  # a square and the additions of a row, then mean, root and products
        return shape.columns + 8
