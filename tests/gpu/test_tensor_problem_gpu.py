"""Tensor problems on a GPU: steps that return tensors of their own, in order or not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import launch

from kernelbench.lineages.scaffold import new_project
from kernelbench.measure.correctness import Checker
from kernelbench.problems.tensor.problem import TensorProblem
from kernelbench.project.error_attribution import guarded

pytestmark = pytest.mark.gpu


class Triple(TensorProblem):
    """3 x, on enough values for a copy to overtake it."""

    class Shape:
        """Fields."""

        count: int

    depth = 1

    def make_inputs(self, shape, input_class, seed, device):
        draw = torch.Generator(device).manual_seed(seed)
        return torch.randn(shape.count, generator=draw, device=device)

    def reference(self, x):
        return 3 * x.double()


def no_wait(x: torch.Tensor) -> torch.Tensor:
    """On a stream of its own, that waits for nobody."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        return 3 * x


def no_join(x: torch.Tensor) -> torch.Tensor:
    """On a stream of its own, that nobody waits for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        return 3 * x


@pytest.mark.parametrize(
    ("step", "status", "said"),
    [
        (lambda x: 3 * x, "pass", ""),
        (no_wait, "wrong", "read its inputs before they were written"),
        (no_join, "wrong", "still being written"),
    ],
)
def test_ordering(step: object, status: str, said: str) -> None:
    problem = guarded(Triple, "triple")
    shape = problem.parse_shape("n", {"count": 1 << 22})
    found = Checker(step, problem, shape, "cuda:0", 1, lambda *_: None, 60).check("normal")  # type: ignore[arg-type]
    assert (found.status, said in found.reason) == (status, True), found.reason


@pytest.mark.parametrize("template", ["rmsnorm", "gemm"])
def test_the_templates_triton_steps_are_right(template: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    new_project(tmp_path / "p", template)
    found = launch("run", template, "--reps", 20, "--no-save", root=tmp_path / "p", gpu=True)
    assert found.code == 0, found.out + found.err
    assert "→ 4 passed of 4" in found.out
