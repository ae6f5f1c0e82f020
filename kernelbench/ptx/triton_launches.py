"""What runners of Triton's launches share: memory of a launch's own, launches that only tune."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from kernelbench.ptx.cuda_on_cpu import LiveTensors
from kernelbench.ptx.triton_arguments import Given

_ALIGNMENT = 128


class TritonLaunches:
    """What a :class:`kernelbench.ptx.triton_driver.KernelRunner` does beside running."""

    def __init__(self, live: LiveTensors) -> None:
        self._live = live
        self._tuning = False
        self._scratch: list[Any] = []

    def allocate(self, size: int) -> int:
        """Memory of a kernel's own, until its launch is over; its address, 0 for none."""
        import torch

        if not size:
            return 0
        self._scratch.append(torch.zeros(size + _ALIGNMENT, dtype=torch.uint8))
        return -(-int(self._scratch[-1].data_ptr()) // _ALIGNMENT) * _ALIGNMENT

    @contextlib.contextmanager
    def tuning(self) -> Iterator[None]:
        """Launches are compiled and not run."""
        self._tuning = True
        try:
            yield
        finally:
            self._tuning = False

    def _options(self, given: Given, metadata: Any) -> dict[str, Any]:
        """What a launch takes beside its arguments, by :class:`PtxModule`'s names."""
        named = given.tensors | {f"scratch {at}": each for at, each in enumerate(self._scratch)}
        return {
            "shared": metadata.shared,
            "cluster": metadata.num_ctas if metadata.num_ctas > 1 else None,
            "cooperative": bool(metadata.launch_cooperative_grid),
            "memory": self._live.storages(named),
        }
