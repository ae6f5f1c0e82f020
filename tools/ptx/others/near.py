"""What the scripts around kernels of others share: comparisons with double precision."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def parameter(*extents: int) -> torch.Tensor:
    """Normal random numbers on the GPU, with a gradient."""
    return torch.randn(*extents, device="cuda", requires_grad=True)


def near(made: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-4) -> None:
    """Compare with what double precision gives."""
    torch.testing.assert_close(made.double(), wanted.double(), rtol=tolerance, atol=tolerance)


def near_with_gradients(
    made: torch.Tensor, wanted: torch.Tensor, of: Sequence[torch.Tensor], tolerance: float = 1e-4
) -> None:
    """Compare values and the gradients of a random sum of them."""
    near(made, wanted, tolerance)
    weights = torch.randn_like(made)
    # Kernels may work in place on what they are given.
    found = torch.autograd.grad(made, of, weights.clone())
    right = torch.autograd.grad(wanted, of, weights.to(wanted.dtype))
    for each, other in zip(found, right, strict=True):
        near(each, other, tolerance)


def near_as_a_whole(made: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    """The norm of the difference as a share of the norm: for operands of 16 bits."""
    share = float((made.double() - wanted.double()).norm() / wanted.double().norm())
    assert share < tolerance, f"{share} is not below {tolerance}"
