"""Running a task that says ``cuda`` on a machine without a GPU.

Most tasks name the device literally: ``torch.randn(..., device="cuda")``,
``torch.Generator(device="cuda")``, ``x.cuda()``. While :func:`redirected` is active all of these
mean the CPU, and ``torch.cuda.synchronize`` does nothing. That is sound because a task's result is
defined by values, not by where they are. ``torch.cuda.is_available`` stays False. What only a GPU
can do (Triton, CUDA sources, formats that torch lacks on a CPU) raises as it does without this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_GENERATOR = torch.Generator
_SYNCHRONIZE = torch.cuda.synchronize


class _CpuGenerator(_GENERATOR):
    """``torch.Generator`` of the CPU, whatever device is named."""

    def __new__(cls, device: Any = "cpu") -> _CpuGenerator:
        return super().__new__(cls, _on_cpu(device))  # type: ignore[call-arg]


class _CpuMode(TorchFunctionMode):
    """Replaces the device in every call of torch."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        named = {key: _on_cpu(value) for key, value in (kwargs or {}).items()}
        return func(*map(_on_cpu, args), **named)


def _on_cpu(value: Any) -> Any:
    if isinstance(value, str) and value.partition(":")[0] == "cuda":
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value


def _nothing(device: Any = None) -> None:
    """``torch.cuda.synchronize`` where nothing runs by itself."""


@contextlib.contextmanager
def redirected(device: str) -> Iterator[None]:
    """While it is active ``cuda`` means the CPU, if ``device`` is the CPU; else nothing changes."""
    if device != "cpu":
        yield
        return
    torch.Generator = _CpuGenerator  # type: ignore[misc]
    if not torch.cuda.is_available():
        torch.cuda.synchronize = _nothing
    try:
        with _CpuMode():
            yield
    finally:
        torch.Generator = _GENERATOR  # type: ignore[misc]
        torch.cuda.synchronize = _SYNCHRONIZE
