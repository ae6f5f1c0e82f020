"""Sums of device activities per repetition, from torch's profiler (CUPTI).

Used where a call cannot be captured in a CUDA graph. Repetitions are fenced by marker kernels
(``torch.cuda._sleep``), two each. A step that sleeps itself upsets the count, which is an error: it
cannot be timed this way.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

_MARKER = "spin_kernel"


class ProfilerError(RuntimeError):
    """The profiler returned no usable timeline."""


def activity_sums(body: Callable[[], None], device: torch.device, reps: int) -> list[float]:
    """Run ``body`` and return, per fenced repetition, its kernels, copies and fills in µs.

    Raises:
        ProfilerError: If the timeline does not hold ``2 * reps`` markers.
    """
    with profile(activities=[ProfilerActivity.CUDA], acc_events=False) as session:
        body()
        torch.cuda.synchronize(device)
    activities = sorted(
        (event.time_range.start, event.time_range.end, event.name)
        for event in session.events()
        if event.device_type == DeviceType.CUDA
    )
    sums: list[float] = []
    current: float | None = None
    markers = 0
    for start, end, name in activities:
        if _MARKER in name:
            markers += 1
            if current is None:
                current = 0.0
            else:
                sums.append(current)
                current = None
        elif current is not None:
            current += end - start
    if markers != 2 * reps:
        raise ProfilerError(
            f"the profiler saw {markers} of {2 * reps} markers on the device timeline"
        )
    return sums
