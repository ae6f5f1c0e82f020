"""C = A Bᵀ in float16: A is [m, k], B is [n, k], and a step writes C."""

import torch

from kernelbench import TensorProblem


class Gemm(TensorProblem):
    class Shape:
        m: int
        n: int
        k: int

    def make_inputs(self, shape, input_class, seed, device):
        draw = torch.Generator(device).manual_seed(seed)
        options = {"generator": draw, "device": device, "dtype": torch.float16}
        return torch.randn(shape.m, shape.k, **options), torch.randn(shape.n, shape.k, **options)

    def outputs(self, shape):  # what comes last in a step's data, to be written
        return {"c": ((shape.m, shape.n), torch.float16)}

    def reference(self, inputs):
        a, b = inputs
        return a.double() @ b.double().T

    def magnitudes(self, inputs):  # the sum of |a b|, which the error is relative to
        return self.reference([tensor.abs() for tensor in inputs])

    def depth(self, shape):  # k additions in float32, of tensor cores that cut where others round
        return 2 * shape.k

    def work(self, shape):
        return 2 * shape.m * shape.n * shape.k
