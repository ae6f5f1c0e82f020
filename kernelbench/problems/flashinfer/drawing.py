"""Shapes, types and random values of a definition's tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelbench.problems.flashinfer.models import DTYPES, TensorSpec

if TYPE_CHECKING:
    import torch


def torch_dtype(spec: TensorSpec) -> Any:
    """torch's dtype of a tensor."""
    import torch

    return getattr(torch, DTYPES[spec.dtype])


def tensor_extents(spec: TensorSpec, axes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of the tensor itself: two FP4 values are one element of it."""
    extents = [axes[name] if name in axes else int(name) for name in spec.shape or ()]
    if DTYPES[spec.dtype] == "float4_e2m1fn_x2" and extents:
        extents[-1] //= 2
    return tuple(extents)


def random_tensor(
    extents: Sequence[int], spec: TensorSpec, generator: torch.Generator, device: str
) -> torch.Tensor:
    """Normal values for floating-point types, uniform ones for others.

    Eight-bit floats are clamped to ±2, integers lie within ±1024 (``int8``: all), as in the
    datasets' own evaluations.
    """
    import torch

    dtype = torch_dtype(spec)
    size = tuple(extents)
    if dtype is torch.float4_e2m1fn_x2:
        drawn = torch.randint(0, 256, size, dtype=torch.uint8, device=device, generator=generator)
        return drawn.view(dtype)
    if dtype.is_floating_point:
        values = torch.randn(size, device=device, generator=generator)
        return (values.clamp(-2, 2) if dtype.itemsize == 1 else values).to(dtype)
    special = {torch.bool: (0, 2), torch.uint8: (0, 256), torch.int8: (-128, 128)}
    low, high = special.get(dtype, (-1024, 1024))
    return torch.randint(low, high, size, device=device, generator=generator).to(dtype)
