"""vLLM's entry point ``vllm.general_plugins``. Written for vLLM 0.33.0."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from kernelbench_moe.engines import enabled, fell_back, log_once

WRITTEN_FOR = "0.33.0"


def register() -> None:
    """Offer the op to vLLM where it selects experts for FP8 layers; may be called again.

    vLLM 0.33.0 has no register of such classes: the function that names those of a backend is
    wrapped, so that ours stands before Triton's, whose layout of weights it shares. Without vLLM,
    or with one that lacks what is needed, the process is left as it is and a line is logged.
    """
    if not enabled():
        return
    try:
        from vllm.model_executor.layers.fused_moe.oracle import fp8

        from kernelbench_moe.vllm_experts import KernelbenchExperts

        classes, triton = fp8.backend_to_kernel_cls, fp8.Fp8MoeBackend.TRITON
    except (ImportError, AttributeError) as error:
        fell_back("vLLM", f"written for vLLM {WRITTEN_FOR}, here: {error}")
        return
    if getattr(classes, "offers", None) is KernelbenchExperts:
        return

    @functools.wraps(classes)
    def with_ours(backend: Any) -> list[type]:
        found = classes(backend)
        return [KernelbenchExperts, *found] if backend == triton else found

    offering: Callable[[Any], list[type]] = with_ours
    offering.offers = KernelbenchExperts  # type: ignore[attr-defined]
    fp8.backend_to_kernel_cls = offering
    log_once(logging.INFO, "kernelbench-moe: offered to vLLM for block-scaled FP8 experts")
