"""SGLang's entry point ``sglang.srt.plugins``. Written for SGLang 0.5.23."""

from __future__ import annotations

import logging

from kernelbench_moe.engines import enabled, fell_back, log_once

WRITTEN_FOR = "0.5.23"
TARGET = "sglang.srt.layers.quantization.fp8.Fp8MoEMethod.create_moe_runner"
_registered = False


def register() -> None:
    """Offer the op to SGLang's FP8 layers that would run on Triton; may be called again.

    SGLang 0.5.23 gives its FP8 method no runner of a new name, so that a hook behind the method
    that makes a layer's runner puts our core into it. Without SGLang, or with one that lacks what
    is needed, the process is left as it is and a line is logged.
    """
    global _registered
    if _registered or not enabled():
        return
    try:
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

        from kernelbench_moe import sglang_runner
    except (ImportError, AttributeError) as error:
        fell_back("SGLang", f"written for SGLang {WRITTEN_FOR}, here: {error}")
        return
    HookRegistry.register(TARGET, sglang_runner.offer_core, HookType.AFTER)
    _registered = True
    log_once(logging.INFO, "kernelbench-moe: offered to SGLang for block-scaled FP8 experts")
