"""out[i] = x[i] / sqrt(mean(x[i]²) + eps) * w, in float32."""

from dataclasses import dataclass

from kernelbench.problems.returned import check_tensors
from kernelbench.project.arena import GuardedOutputs
from kernelbench.project.problem import Inputs, OutputVerdict, Work
from kernelbench.project.shapes import check_fields, positive_int

UNIT_ROUNDOFF = 2.0**-24
#: Roundings beside those of the sum: square, division, eps, root (2 ulp), two products; doubled.
OTHER_ROUNDINGS = 16


@dataclass(frozen=True)
class Matrix:
    name: str
    rows: int
    columns: int

    def describe(self):
        return f"rows={self.rows} columns={self.columns}"


class RmsNorm:
    name = "rms_norm"
    input_classes = ("normal",)
    benchmark_shapes = ("large",)

    def parse_shape(self, name, fields):
        check_fields(fields, ("rows", "columns"), ())
        return Matrix(name, *(positive_int(key, fields[key]) for key in ("rows", "columns")))

    def make_inputs(self, shape, input_class, seed, device):
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        x = torch.randn(shape.rows, shape.columns, generator=generator, device=device)
        w = torch.randn(shape.columns, generator=generator, device=device)
        arena = GuardedOutputs([(shape.rows, shape.columns)], torch.float32, device)
        (out,) = arena.views
        return Inputs((x, w, out, 1e-6), [x, w], [out], arena)

    def outputs_of(self, result, inputs):
        return check_tensors([result], inputs.outputs)

    def reference(self, inputs, shape, input_class):
        x, w = (operand.double() for operand in inputs.operands)
        return x * (x.square().mean(1, keepdim=True) + 1e-6).rsqrt() * w

    def compare(self, outputs, reference, shape, input_class):
        """Within half the bound of a sum of positive terms (a root halves it), and the rest.

        The sum's is γ_k = k u / (1 - k u), Higham, Accuracy and Stability of Numerical Algorithms,
        2nd ed., section 4.2.
        """
        (out,) = outputs
        error = (out.double() - reference).abs()
        steps = (shape.columns + OTHER_ROUNDINGS) * UNIT_ROUNDOFF
        wrong = ~(error <= steps / (1 - steps) * reference.abs())  # NaN is wrong
        exact = bool((out == reference.float()).all())
        largest = float(error.max()) if bool(error.isfinite().all()) else None
        if not bool(wrong.any()):
            return OutputVerdict(True, exact, largest)
        row, column = wrong.nonzero()[0].tolist()
        found, expected = float(out[row, column]), float(reference[row, column])
        return OutputVerdict(
            False, exact, largest, f"[{row}, {column}]: {found}, expected {expected}"
        )

    def broken_limit(self, shape, limits):
        return ""

    def work(self, shape, inputs=None):
        size = 4.0 * shape.rows * shape.columns
        return Work(4.0 * shape.rows * shape.columns, size + 4.0 * shape.columns, size, "fp32")


PROBLEM = RmsNorm()
