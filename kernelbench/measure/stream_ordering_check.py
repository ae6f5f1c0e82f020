"""Calls that show whether a step's work is ordered with the current CUDA stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from kernelbench.project.arena import bits
from kernelbench.project.problem import Inputs, Kernel, refill

#: Some 5 ms, far longer than a step takes to start.
_LATE_CYCLES = 10_000_000
_BUSY_SIZE = 6144
_BUSY_PRODUCTS = 4


class CallTrial(Protocol):
    """See :class:`StreamOrderingCheck`."""

    def on_late_inputs(self, stream: torch.cuda.Stream) -> Any:
        """What a call returns whose inputs come late."""

    def on_busy_device(
        self,
        stream: torch.cuda.Stream,
        like: Sequence[torch.Tensor],
        outputs_of: Callable[[Any], list[torch.Tensor]],
    ) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        """What one returns while the device is busy, with copies that were queued behind it.

        Args:
            stream: The current stream of the call.
            like: Outputs of an earlier call, where the step allocates them itself; else empty.
            outputs_of: The outputs in a result.
        """


class Elsewhere(Protocol):
    """The process that a submission is called in."""

    def poison_free_memory(self, like: Sequence[torch.Tensor], seed: int) -> None:
        """See :func:`kernelbench.measure.returned_memory.poison_free_memory`."""

    def stream_ordering_check(
        self, device: torch.device, current: Inputs, stale: Inputs, poison: torch.Tensor
    ) -> CallTrial:
        """The calls that show whether work is ordered with the current stream.

        Args:
            device: The GPU.
            current: Inputs of the call.
            stale: Others, which a call must not have read.
            poison: What outputs hold before.
        """


class StreamOrderingCheck:
    """Two ways to call a step such that missing dependencies give wrong bits.

    Args:
        kernel: The step.
        current: Inputs that hold the right values; stale: the same shapes with other values.
        poison: Bits to put in the outputs before each call.
    """

    def __init__(
        self,
        kernel: Kernel,
        device: torch.device,
        current: Inputs,
        stale: Inputs,
        poison: torch.Tensor,
    ) -> None:
        self._kernel = kernel
        self._device = device
        self._current = current
        self._stale = stale
        self._poison = poison
        self._values = [operand.clone() for operand in current.operands]

    def on_late_inputs(self, stream: torch.cuda.Stream) -> Any:
        """Call behind a long delay, after which ``stream`` writes the inputs.

        Work that does not wait for the current stream reads the stale values. Returns the result.
        """
        refill(self._current, self._stale)
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(stream):
            torch.cuda._sleep(_LATE_CYCLES)
            for operand, value in zip(self._current.operands, self._values, strict=True):
                bits(operand).copy_(bits(value), non_blocking=True)
            self._current.arena.fill(self._poison)
            result = self._kernel(self._current.data)
        torch.cuda.synchronize(self._device)
        return result

    def on_busy_device(
        self,
        stream: torch.cuda.Stream,
        like: Sequence[torch.Tensor],
        outputs_of: Callable[[Any], list[torch.Tensor]],
    ) -> tuple[Any, torch.Tensor, list[torch.Tensor]]:
        """Call while every SM is taken for milliseconds, and queue a copy of the outputs behind it.

        The copy engine needs no SM, so the copy overtakes work that the current stream does not
        wait for. Returns the result, the copy of the arena, and copies of the outputs that the step
        allocated itself, in host memory.

        Args:
            stream: The current stream of the call.
            like: Outputs of an earlier call, where the step allocates them itself; else empty.
            outputs_of: The outputs in a result.
        """
        flat = self._current.arena.flat
        snapshot = torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)
        if like:
            # Memory that the step gets may hold the last call's outputs: these are of other values.
            refill(self._current, self._stale)
        copies = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in like]
        load = torch.randn(_BUSY_SIZE, _BUSY_SIZE, device=self._device, dtype=torch.float16)
        product = torch.empty_like(load)
        self._current.arena.fill(self._poison)
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(torch.cuda.Stream(self._device)):
            for _ in range(_BUSY_PRODUCTS):
                torch.mm(load, load, out=product)
        with torch.cuda.stream(stream):
            result = self._kernel(self._current.data)
            snapshot.copy_(flat, non_blocking=True)
            if copies:
                for copy, output in zip(copies, outputs_of(result), strict=True):
                    copy.copy_(output, non_blocking=True)
        torch.cuda.synchronize(self._device)
        return result, snapshot, copies
