"""y = 2 x in float32: replace it by what your kernels compute."""

import torch

from kernelbench import TensorProblem


class Blank(TensorProblem):
    class Shape:  # the fields of a shape in shapes.yaml
        rows: int
        columns: int

    depth = 1  # the most roundings on a way from an input to an output; or tolerance = (rtol, atol)

    def make_inputs(self, shape, input_class, seed, device):  # what a step gets
        draw = torch.Generator(device).manual_seed(seed)
        return torch.randn(shape.rows, shape.columns, generator=draw, device=device)

    def reference(self, x):  # what it should return, in float64
        return 2 * x.double()
