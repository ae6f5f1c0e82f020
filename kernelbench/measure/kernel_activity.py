"""What ran on the device and for how long, from torch's profiler (CUPTI).

Sums per repetition are used where a call cannot be captured in a CUDA graph. Repetitions are fenced
by marker kernels (``torch.cuda._sleep``), two each. A step that sleeps itself upsets the count,
which is an error: it cannot be timed this way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_MARKER = "spin_kernel"


class ProfilerError(RuntimeError):
    """The profiler returned no usable timeline."""


@dataclass(frozen=True)
class Activity:
    """A kernel, copy or fill on the device."""

    name: str
    #: ``start_us``, ``end_us``: On the profiler's own clock.
    start_us: float
    end_us: float


def device_activities(body: Callable[[], None], device: torch.device) -> list[Activity]:
    """Run ``body`` and return what ran on the device, by start."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=False) as session:
        body()
        torch.cuda.synchronize(device)
    found = [
        Activity(event.name, event.time_range.start, event.time_range.end)
        for event in session.events()
        if event.device_type == DeviceType.CUDA
    ]
    return sorted(found, key=lambda activity: (activity.start_us, activity.end_us))


def activity_sums(body: Callable[[], None], device: torch.device, reps: int) -> list[float]:
    """Run ``body`` and return, per fenced repetition, its kernels, copies and fills in µs.

    Args:
        body: What is profiled; it enqueues all repetitions.
        device: The GPU.
        reps: How many repetitions it fences.

    Raises:
        ProfilerError: If the timeline does not hold ``2 * reps`` markers.
    """
    sums: list[float] = []
    current: float | None = None
    markers = 0
    for activity in device_activities(body, device):
        if _MARKER in activity.name:
            markers += 1
            if current is None:
                current = 0.0
            else:
                sums.append(current)
                current = None
        elif current is not None:
            current += activity.end_us - activity.start_us
    if markers != 2 * reps:
        raise ProfilerError(
            f"the profiler saw {markers} of {2 * reps} markers on the device timeline"
        )
    return sums
