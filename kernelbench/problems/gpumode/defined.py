"""Memory that a task's generator allocates and does not write gets known values.

``torch.empty`` gives what was there before: on a GPU zeros at one time, a tensor that was freed at
another. Two draws with one seed would differ by chance, and a submission be blamed for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelbench.problems.gpumode.trees import is_strided
from kernelbench.problems.restoring_arena import plain
from kernelbench.project.arena import bits

_UNWRITTEN = frozenset(
    (torch.empty, torch.empty_like, torch.empty_strided, torch.empty_permuted,
     torch.Tensor.new_empty, torch.Tensor.new_empty_strided)
)  # fmt: skip


class _DefinedMode(TorchFunctionMode):
    """Fills what these functions give: of any type, with elements whose bits are 1."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func in _UNWRITTEN and is_strided(made) and made.device.type != "meta":
            bits(plain(made)).fill_(1)
        return made


@contextlib.contextmanager
def defined() -> Iterator[None]:
    """While it is active torch allocates no tensor without values."""
    with _DefinedMode():
        yield
