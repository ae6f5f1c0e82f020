"""The op as SGLang's runner core. Needs SGLang; :mod:`kernelbench_moe.sglang_plugin` imports it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.moe.moe_runner.base import (
    MoeRunnerCore,
    RunnerInput,
    RunnerOutput,
    register_post_permute,
    register_pre_permute,
)
from sglang.srt.layers.moe.moe_runner.triton import fused_experts_none_to_triton
from sglang.srt.layers.moe.token_dispatcher.standard import StandardCombineInput
from sglang.srt.layers.moe.topk import TopKOutputChecker
from sglang.srt.layers.moe.utils import (
    RegisteredMoeRunnerBackend,
    get_moe_a2a_backend,
    register_moe_runner_backend_name,
)

from kernelbench_moe.engines import fell_back
from kernelbench_moe.op import RefusedError, moe_layer, refused_layer
from kernelbench_moe.table import BLOCK

NAME = "kernelbench"
register_moe_runner_backend_name(NAME)
_BACKEND = RegisteredMoeRunnerBackend(NAME)


@dataclass
class KernelbenchRunnerInput(RunnerInput):
    """The op's arguments, or why the engine's own path takes the call.

    Attributes:
        operands: Those of :func:`kernelbench_moe.moe_layer`, in its order; empty if refused.
        dispatch_output: As it came.
        refused: One line, or empty.
    """

    operands: tuple[torch.Tensor, ...]
    dispatch_output: Any
    refused: str

    @property
    def runner_backend(self) -> Any:
        """Our name."""
        return _BACKEND


@dataclass
class KernelbenchRunnerOutput(RunnerOutput):
    """``hidden_states``: bfloat16 ``[M, H]``, weighted and summed."""

    hidden_states: torch.Tensor

    @property
    def runner_backend(self) -> Any:
        """Our name."""
        return _BACKEND


class KernelbenchRunnerCore(MoeRunnerCore):
    """Calls the op, and SGLang's Triton path where it cannot.

    Args:
        config: The layer's ``MoeRunnerConfig``.
        own: SGLang's function for dispatched tokens, which takes what the op refuses.
    """

    def __init__(
        self, config: Any, own: Callable[[Any, Any, Any], Any] = fused_experts_none_to_triton
    ) -> None:
        super().__init__(config)
        self._own = own

    @property
    def runner_backend(self) -> Any:
        """Our name: the key of the functions before and behind :meth:`run`."""
        return _BACKEND

    def run(
        self, runner_input: Any, quant_info: Any, running_state: dict[str, Any], hooks: Any = None
    ) -> KernelbenchRunnerOutput:
        """Compute one call; in place where the layer's configuration says so."""
        refused = runner_input.refused
        if not refused:
            hidden = runner_input.operands[0]
            try:
                out = hidden if self.config.inplace else torch.empty_like(hidden)
                return KernelbenchRunnerOutput(moe_layer(*runner_input.operands, out=out))
            except RefusedError as error:
                refused = str(error)
        fell_back("SGLang", refused)
        done = self._own(runner_input.dispatch_output, quant_info, self.config)
        return KernelbenchRunnerOutput(done.hidden_states)


@register_pre_permute("standard", NAME)
def arguments_of(
    dispatch_output: Any, quant_info: Any, runner_config: Any, running_state: dict[str, Any]
) -> KernelbenchRunnerInput:
    """The op's arguments from dispatched tokens: nothing is permuted, the op gathers itself.

    Ids are the rank's own, -1 for experts of other ranks.
    """
    topk = dispatch_output.topk_output
    if not TopKOutputChecker.format_is_standard(topk):
        return KernelbenchRunnerInput((), dispatch_output, f"top-k format {topk.format}")
    ids, weights = topk.topk_ids, topk.topk_weights
    refused = _refused_quantization(quant_info)
    if dispatch_output.hidden_states_scale is not None:
        refused = "tokens were quantized before"
    if refused:
        return KernelbenchRunnerInput((), dispatch_output, refused)
    if ids.dtype is not torch.int32:
        ids = ids.to(torch.int32)
    if runner_config.routed_scaling_factor is not None:
        weights = weights * runner_config.routed_scaling_factor
    operands = (
        dispatch_output.hidden_states, quant_info.w13_weight, quant_info.w13_scale,
        quant_info.w2_weight, quant_info.w2_scale, ids, weights,
    )  # fmt: skip
    return KernelbenchRunnerInput(operands, dispatch_output, "")


@register_post_permute(NAME, "standard")
def combined(
    runner_output: Any, quant_info: Any, runner_config: Any, running_state: dict[str, Any]
) -> Any:
    """What the dispatcher combines: the sums themselves."""
    return StandardCombineInput(hidden_states=runner_output.hidden_states)


def offer_core(result: Any, method: Any, layer: Any, moe_runner_config: Any) -> None:
    """Behind ``Fp8MoEMethod.create_moe_runner``: put our core where Triton's would run.

    Args:
        result: None, what the method returned.
        method: The layer's ``Fp8MoEMethod``, whose ``runner`` was made.
        layer: The layer.
        moe_runner_config: Its ``MoeRunnerConfig``.
    """
    runner = getattr(method, "runner", None)
    if runner is None or not runner.runner_backend.is_triton():
        return
    refused = _refused_layer(method, runner, moe_runner_config)
    if refused:
        fell_back("SGLang", refused)
        return
    runner.runner_core = KernelbenchRunnerCore(moe_runner_config)
    # A fused function would be called in place of the core.
    runner.fused_func = None


def _refused_layer(method: Any, runner: Any, config: Any) -> str:
    block = list(getattr(method, "weight_block_size", None) or ())
    limited = (
        config.gemm1_alpha, config.gemm1_beta, config.gemm1_clamp_limit, config.swiglu_limit,
    )  # fmt: skip
    refused = {
        f"blocks of weights are {block}, expected [{BLOCK}, {BLOCK}]": block != [BLOCK, BLOCK],
        "tokens are dispatched to other ranks": not get_moe_a2a_backend().is_none(),
        "LoRA": runner.lora_enabled,
        f"activation {config.activation}": config.activation != "silu" or not config.is_gated,
        "a SwiGLU with limit, alpha or beta": any(each is not None for each in limited),
        "router weights on the input": config.apply_router_weight_on_input,
        "results of single experts are asked for": config.no_combine,
        f"hidden states are {config.params_dtype}, expected torch.bfloat16": (
            config.params_dtype is not torch.bfloat16
        ),
    }
    return next((what for what, found in refused.items() if found), "") or refused_layer(
        config.hidden_size,
        config.intermediate_size_per_partition,
        config.num_local_experts,
        config.top_k,
    )


def _refused_quantization(info: Any) -> str:
    refused = {
        "weights are not block-scaled FP8": (
            not info.use_fp8_w8a8 or list(info.block_shape or ()) != [BLOCK, BLOCK]
        ),
        "biases": info.b13 is not None or info.b2 is not None,
        "scales of tokens from the checkpoint": (
            info.a13_scale is not None or info.a2_scale is not None
        ),
        "gate and up interleaved": info.fuse_swiglu_interleaved,
        "no scales of weights": info.w13_scale is None or info.w2_scale is None,
    }
    return next((what for what, found in refused.items() if found), "")
