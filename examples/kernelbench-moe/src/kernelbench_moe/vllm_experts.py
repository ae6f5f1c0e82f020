"""The op as vLLM's modular experts. Needs vLLM; :mod:`kernelbench_moe.vllm_plugin` imports it."""

from __future__ import annotations

from typing import Any

import torch
import vllm.model_executor.layers.fused_moe.modular_kernel as mk
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.experts.triton_moe import TritonExperts
from vllm.model_executor.layers.quantization.utils.quant_utils import (
    kFp8Dynamic128Sym,
    kFp8Static128BlockSym,
)
from vllm.platforms import current_platform

from kernelbench_moe.engines import fell_back
from kernelbench_moe.op import RefusedError, moe_layer, refused_layer


class KernelbenchExperts(TritonExperts):
    """A ``FusedMoEExpertsModular`` that calls the op, and Triton's experts where it cannot.

    Weights, scales and workspaces are those of the base class. The tokens come unquantized: the op
    quantizes them itself, and so does the base class.
    """

    @staticmethod
    def is_supported_config(
        cls: type[mk.FusedMoEExperts],
        moe_config: Any,
        weight_key: Any,
        activation_key: Any,
        activation_format: Any,
    ) -> tuple[bool, str | None]:
        """Whether layers of this kind may come here; the reason is logged, and vLLM goes on."""
        supported, reason = TritonExperts.is_supported_config(
            cls, moe_config, weight_key, activation_key, activation_format
        )
        if supported:
            reason = _refused_config(moe_config) or None
        if reason:
            fell_back("vLLM", reason)
        return not reason, reason

    @property
    def expects_unquantized_inputs(self) -> bool:
        """The op reads bfloat16; the base class then quantizes in ``apply``."""
        return True

    @staticmethod
    def supports_lora() -> bool:
        """Not what the op computes."""
        return False

    @staticmethod
    def _supports_current_device() -> bool:
        return current_platform.is_cuda() and current_platform.is_device_capability(90)

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return False

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return (weight_key, activation_key) == (kFp8Static128BlockSym, kFp8Dynamic128Sym)

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return activation == MoEActivation.SILU

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        # With expert parallelism ids are global, and tokens come from other ranks.
        return not moe_parallel_config.use_ep and moe_parallel_config.dp_size == 1

    @staticmethod
    def _supports_batch_invariance() -> bool:
        # Experts' shares are added to the output in the order in which they are ready.
        return False

    def apply(
        self,
        output: torch.Tensor,
        hidden_states: torch.Tensor,
        w1: torch.Tensor,
        w2: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        activation: MoEActivation,
        global_num_experts: int,
        expert_map: torch.Tensor | None,
        a1q_scale: torch.Tensor | None,
        a2_scale: torch.Tensor | None,
        workspace13: torch.Tensor,
        workspace2: torch.Tensor,
        expert_tokens_meta: Any,
        apply_router_weight_on_input: bool,
    ) -> Any:
        """Write the weighted sums to ``output``, bfloat16 or float32 ``[M, H]``."""
        ids = topk_ids if topk_ids.dtype is torch.int32 else topk_ids.to(torch.int32)
        operands = (hidden_states, w1, self.w1_scale, w2, self.w2_scale, ids, topk_weights)
        reason = self._refused_call(
            activation, expert_map, a1q_scale, a2_scale, apply_router_weight_on_input
        )
        if not reason:
            try:
                moe_layer(*operands, out=output)
                return None
            except RefusedError as error:
                reason = str(error)
        fell_back("vLLM", reason)
        return super().apply(
            output, hidden_states, w1, w2, topk_weights, topk_ids, activation, global_num_experts,
            expert_map, a1q_scale, a2_scale, workspace13, workspace2, expert_tokens_meta,
            apply_router_weight_on_input,
        )  # fmt: skip

    def _refused_call(
        self,
        activation: MoEActivation,
        expert_map: torch.Tensor | None,
        a1q_scale: torch.Tensor | None,
        a2_scale: torch.Tensor | None,
        apply_router_weight_on_input: bool,
    ) -> str:
        quant = self.quant_config
        clamped = (quant.gemm1_clamp_limit, quant.gemm1_alpha, quant.gemm1_beta)
        refused = {
            "router weights on the input": apply_router_weight_on_input,
            "an expert map": expert_map is not None,
            "tokens quantized before, or by scales of the checkpoint": (
                a1q_scale is not None or a2_scale is not None or self.a1_scale is not None
            ),
            "biases": self.w1_bias is not None or self.w2_bias is not None,
            "a SwiGLU with limit, alpha or beta": any(each is not None for each in clamped),
            "a hook behind the second product": self.post_gemm2_hook is not None,
            f"activation {activation}": activation != MoEActivation.SILU,
            "no scales of weights": self.w1_scale is None or self.w2_scale is None,
        }
        return next((what for what, found in refused.items() if found), "")


def _refused_config(config: Any) -> str:
    if config.in_dtype is not torch.bfloat16:
        return f"hidden states are {config.in_dtype}, expected torch.bfloat16"
    if config.has_bias:
        return "biases"
    limits = (config.swiglu_limit, config.swiglu_alpha, config.swiglu_beta)
    if any(each is not None for each in limits):
        return "a SwiGLU with limit, alpha or beta"
    return refused_layer(
        config.hidden_dim,
        config.intermediate_size_per_partition,
        config.num_local_experts,
        config.experts_per_token,
    )
