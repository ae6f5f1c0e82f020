"""Stand-in for GPU MODE's ``utils`` module: what submissions import from it."""

from __future__ import annotations

import random

import torch


def set_seed(seed: int = 42) -> None:
    """Seed Python's and torch's generators."""
    random.seed(seed)
    torch.manual_seed(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    """The first GPU where there is one and ``use_cuda``, else the CPU."""
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")
