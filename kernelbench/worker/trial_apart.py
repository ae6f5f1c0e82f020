"""The calls of :mod:`kernelbench.measure.stream_trial` in a submission's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.measure.stream_trial import StreamTrial
from kernelbench.project.problem import Inputs, Kernel
from kernelbench.worker.requests import Trial


@dataclass(frozen=True)
class TrialData:
    """What a trial needs; see :class:`kernelbench.measure.stream_trial.StreamTrial`."""

    current: Inputs
    stale: Inputs
    poison: torch.Tensor


def run_trial(kernel: Kernel, data: TrialData, request: Trial, device: torch.device) -> Any:
    """What the call returned; on a busy device with the early copies of the outputs.

    Copies of outputs that the step allocates itself are in the result's form, in host memory.
    """
    trial = StreamTrial(kernel, device, data.current, data.stale, data.poison)
    stream = torch.cuda.Stream(device) if request.own_stream else torch.cuda.default_stream(device)
    if request.way == "late inputs":
        return trial.on_late_inputs(stream)
    like = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in request.like]
    result, snapshot, copies = trial.on_busy_device(
        stream, like, lambda found: matching(found, like)
    )
    early = dict(zip(map(id, matching(result, like)), copies, strict=True))
    return {"result": result, "snapshot": snapshot, "early": replaced(result, early.get)}


def matching(result: Any, like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in a result that have these shapes and types, in this order.

    Raises:
        ValueError: If they are not there.
    """
    left = list(_tensors(result))
    found = []
    for one in like:
        which = next((t for t in left if t.shape == one.shape and t.dtype == one.dtype), None)
        if which is None:
            raise ValueError("returned other tensors than in the call before")
        left = [t for t in left if t is not which]
        found.append(which)
    return found


def replaced(result: Any, other: Callable[[int], Any]) -> Any:
    """A result of lists, tuples and dictionaries with tensors replaced, by identity."""
    if type(result) is list:
        return [replaced(item, other) for item in result]
    if isinstance(result, tuple):
        return tuple(replaced(item, other) for item in result)
    if type(result) is dict:
        return {key: replaced(item, other) for key, item in result.items()}
    found = other(id(result))
    return result if found is None else found


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in _tensors(item)]
    return []
