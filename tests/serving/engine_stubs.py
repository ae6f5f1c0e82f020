"""What the plug-ins of ``examples/kernelbench-moe`` use of vLLM and SGLang, in little.

Names and signatures are those of vLLM 0.33.0 and SGLang 0.5.23, read in their wheels; bodies are
what a test needs: how an engine selects, prepares, calls and finalizes.
"""

from __future__ import annotations

import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch


def _install(monkeypatch: pytest.MonkeyPatch, modules: dict[str, dict[str, Any]]) -> None:
    """Modules by dotted name, with the packages above them."""
    for name, contents in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                module = types.ModuleType(path)
                module.__path__ = []
                monkeypatch.setitem(sys.modules, path, module)
                if end > 1:
                    setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        for key, value in contents.items():
            setattr(sys.modules[name], key, value)


# vLLM


class FusedMoEActivationFormat(Enum):
    Standard = ("standard",)


class MoEActivation(Enum):
    SILU = "silu"
    GELU = "gelu"


class Fp8MoeBackend(Enum):
    TRITON = "TRITON"
    MARLIN = "MARLIN"


class FusedMoEExperts(ABC):  # noqa: B024 (what is abstract is not used here)
    post_gemm2_hook: Any = None

    def __init__(self, moe_config: Any, quant_config: Any) -> None:
        self.moe_config, self.quant_config = moe_config, quant_config

    @property
    def expects_unquantized_inputs(self) -> bool:
        return False

    @staticmethod
    def is_supported_config(
        cls: type[FusedMoEExperts],
        moe_config: Any,
        weight_key: Any,
        activation_key: Any,
        activation_format: FusedMoEActivationFormat,
    ) -> tuple[bool, str | None]:
        refused = {
            "current device": not cls._supports_current_device(),
            "activation": not cls._supports_activation(moe_config.activation),
            "quantization scheme": not cls._supports_quant_scheme(weight_key, activation_key),
            "parallel config": not cls._supports_parallel_config(moe_config.moe_parallel_config),
            "LoRA": moe_config.is_lora_enabled and not cls.supports_lora(),
        }
        found = [what for what, wrong in refused.items() if wrong]
        return not found, f"kernel does not support {found[0]}" if found else None

    @staticmethod
    def supports_lora() -> bool:
        return False

    @property
    def a1_scale(self) -> torch.Tensor | None:
        return self.quant_config.a1_scale

    @property
    def a2_scale(self) -> torch.Tensor | None:
        return self.quant_config.a2_scale

    @property
    def w1_scale(self) -> torch.Tensor | None:
        return self.quant_config.w1_scale

    @property
    def w2_scale(self) -> torch.Tensor | None:
        return self.quant_config.w2_scale

    @property
    def w1_bias(self) -> torch.Tensor | None:
        return self.quant_config.w1_bias

    @property
    def w2_bias(self) -> torch.Tensor | None:
        return self.quant_config.w2_bias


class FusedMoEExpertsModular(FusedMoEExperts):
    @abstractmethod
    def workspace_shapes(
        self,
        M: int,
        N: int,
        K: int,
        topk: int,
        global_num_experts: int,
        local_num_experts: int,
        expert_tokens_meta: Any,
        activation: MoEActivation,
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]: ...

    @abstractmethod
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
    ) -> Any: ...


class TritonExperts(FusedMoEExpertsModular):
    """Notes the calls that it gets."""

    calls: list[dict[str, Any]]

    def __init__(self, moe_config: Any, quant_config: Any) -> None:
        super().__init__(moe_config, quant_config)
        self.calls = []

    @staticmethod
    def is_supported_config(
        cls: type[FusedMoEExperts],
        moe_config: Any,
        weight_key: Any,
        activation_key: Any,
        activation_format: FusedMoEActivationFormat,
    ) -> tuple[bool, str | None]:
        return FusedMoEExperts.is_supported_config(
            cls, moe_config, weight_key, activation_key, activation_format
        )

    @staticmethod
    def activation_format() -> FusedMoEActivationFormat:
        return FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device() -> bool:
        return True

    @staticmethod
    def _supports_no_act_and_mul() -> bool:
        return True

    @staticmethod
    def _supports_quant_scheme(weight_key: Any, activation_key: Any) -> bool:
        return True

    @staticmethod
    def _supports_activation(activation: MoEActivation) -> bool:
        return True

    @staticmethod
    def _supports_parallel_config(moe_parallel_config: Any) -> bool:
        return True

    @staticmethod
    def _supports_batch_invariance() -> bool:
        return True

    @staticmethod
    def supports_lora() -> bool:
        return True

    def workspace_shapes(
        self, M: int, N: int, K: int, topk: int, *rest: Any
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return (M, topk, max(N // 2, K)), (M, topk, max(N, K)), (M, K)

    def apply(self, output: torch.Tensor, hidden_states: torch.Tensor, *rest: Any) -> Any:
        self.calls.append({"output": output, "hidden_states": hidden_states, "rest": rest})
        output.fill_(7)


def vllm_moe_config(**changes: Any) -> SimpleNamespace:
    """``FusedMoEConfig`` of a layer with hidden 256, intermediate 128, 8 experts of top-2."""
    fields = {
        "num_experts": 8,
        "experts_per_token": 2,
        "hidden_dim": 256,
        "num_local_experts": 8,
        "activation": MoEActivation.SILU,
        "moe_parallel_config": SimpleNamespace(use_ep=False, dp_size=1),
        "in_dtype": torch.bfloat16,
        "has_bias": False,
        "is_lora_enabled": False,
        "swiglu_limit": None,
        "swiglu_alpha": None,
        "swiglu_beta": None,
        "intermediate_size_per_partition": 128,
    }
    return SimpleNamespace(**fields | changes)


def vllm_quant_config(w1_scale: torch.Tensor, w2_scale: torch.Tensor, **changes: Any) -> Any:
    """``FusedMoEQuantConfig`` of block-scaled FP8."""
    fields = dict.fromkeys(
        ("a1_scale", "a2_scale", "w1_bias", "w2_bias", "gemm1_alpha", "gemm1_beta")
    )
    fields |= {"gemm1_clamp_limit": None, "w1_scale": w1_scale, "w2_scale": w2_scale}
    return SimpleNamespace(**fields | changes)


def stub_vllm(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Put vLLM's modules in place; returns ``oracle.fp8``, whose ``select`` is as vLLM's."""
    base = "vllm.model_executor.layers.fused_moe"
    keys = {"kFp8Dynamic128Sym": "dynamic-128", "kFp8Static128BlockSym": "block-128"}
    platform = SimpleNamespace(is_cuda=lambda: True, is_device_capability=lambda cap: cap == 90)
    oracle = f"{base}.oracle.fp8"

    def backend_to_kernel_cls(backend: Fp8MoeBackend) -> list[type[FusedMoEExperts]]:
        return [TritonExperts] if backend == Fp8MoeBackend.TRITON else []

    def select(config: Any, weight_key: Any, activation_key: Any) -> type[FusedMoEExperts] | None:
        for cls in sys.modules[oracle].backend_to_kernel_cls(Fp8MoeBackend.TRITON):
            supported, _ = cls.is_supported_config(
                cls, config, weight_key, activation_key, FusedMoEActivationFormat.Standard
            )
            if supported:
                return cls
        return None

    _install(
        monkeypatch,
        {
            f"{base}.modular_kernel": {
                "FusedMoEExperts": FusedMoEExperts,
                "FusedMoEExpertsModular": FusedMoEExpertsModular,
            },
            f"{base}.activation": {"MoEActivation": MoEActivation},
            f"{base}.experts.triton_moe": {"TritonExperts": TritonExperts},
            "vllm.model_executor.layers.quantization.utils.quant_utils": keys,
            "vllm.platforms": {"current_platform": platform},
            oracle: {
                "Fp8MoeBackend": Fp8MoeBackend,
                "backend_to_kernel_cls": backend_to_kernel_cls,
                "select": select,
            },
        },
    )
    return sys.modules[oracle]


def run_modular(
    experts: Any, hidden: torch.Tensor, w1: Any, w2: Any, ids: Any, weights: Any
) -> Any:
    """As ``FusedMoEKernelModularImpl.apply``: prepare, experts, finalize without a copy."""
    output = hidden.new_empty(hidden.shape)
    m, (_, n, k) = len(hidden), w1.shape
    tokens, scale = hidden, None
    if not experts.expects_unquantized_inputs:
        tokens, scale = hidden.to(torch.float8_e4m3fn), torch.ones(m, k // 128)
    shapes = experts.workspace_shapes(m, n, k, ids.shape[1], len(w1), len(w1), None, None)
    workspaces = [torch.empty(shape, dtype=hidden.dtype) for shape in shapes[:2]]
    assert shapes[2] == tuple(output.shape)
    experts.apply(
        output=output,
        hidden_states=tokens,
        w1=w1,
        w2=w2,
        topk_weights=weights,
        topk_ids=ids,
        activation=MoEActivation.SILU,
        global_num_experts=len(w1),
        expert_map=None,
        a1q_scale=scale,
        a2_scale=experts.a2_scale,
        workspace13=workspaces[0],
        workspace2=workspaces[1],
        expert_tokens_meta=None,
        apply_router_weight_on_input=False,
    )
    return output


# SGLang


class MoeA2ABackend(Enum):
    NONE = "none"
    DEEPEP = "deepep"

    def is_none(self) -> bool:
        return self is MoeA2ABackend.NONE


@dataclass(frozen=True)
class RegisteredMoeRunnerBackend:
    value: str

    def is_triton(self) -> bool:
        return self.value == "triton"


@dataclass
class MoeRunnerConfig:
    num_experts: int | None = 8
    num_local_experts: int | None = 8
    hidden_size: int | None = 256
    intermediate_size_per_partition: int | None = 128
    top_k: int | None = 2
    params_dtype: torch.dtype | None = torch.bfloat16
    activation: str = "silu"
    is_gated: bool = True
    apply_router_weight_on_input: bool = False
    inplace: bool = True
    no_combine: bool = False
    routed_scaling_factor: float | None = None
    gemm1_alpha: float | None = None
    gemm1_beta: float | None = None
    gemm1_clamp_limit: float | None = None
    swiglu_limit: float | None = None


class RunnerInput(ABC):
    @property
    @abstractmethod
    def runner_backend(self) -> Any: ...


class RunnerOutput(ABC):
    @property
    @abstractmethod
    def runner_backend(self) -> Any: ...


class MoeRunnerCore(ABC):
    def __init__(self, config: MoeRunnerConfig) -> None:
        self.config = config

    @abstractmethod
    def run(
        self, runner_input: Any, quant_info: Any, running_state: dict[str, Any], hooks: Any = None
    ) -> Any: ...

    @property
    @abstractmethod
    def runner_backend(self) -> Any: ...


@dataclass
class TritonMoeQuantInfo:
    w13_weight: torch.Tensor
    w2_weight: torch.Tensor
    b13: torch.Tensor | None = None
    b2: torch.Tensor | None = None
    use_fp8_w8a8: bool = True
    w13_scale: torch.Tensor | None = None
    w2_scale: torch.Tensor | None = None
    a13_scale: torch.Tensor | None = None
    a2_scale: torch.Tensor | None = None
    block_shape: list[int] | None = field(default_factory=lambda: [128, 128])
    fuse_swiglu_interleaved: bool = False


class StandardTopKOutput(NamedTuple):
    topk_weights: torch.Tensor
    topk_ids: torch.Tensor
    router_logits: torch.Tensor | None
    format: str = "standard"


class StandardDispatchOutput(NamedTuple):
    hidden_states: torch.Tensor
    hidden_states_scale: torch.Tensor | None
    topk_output: Any
    format: Any = SimpleNamespace(value="standard")


class StandardCombineInput(NamedTuple):
    hidden_states: torch.Tensor


class SglangStub:
    """What was registered, and the settings of the process."""

    def __init__(self) -> None:
        self.hooks: list[tuple[str, Any, Any]] = []
        self.pre: dict[tuple[str, str], Any] = {}
        self.post: dict[tuple[str, str], Any] = {}
        self.names: set[str] = set()
        self.a2a = MoeA2ABackend.NONE
        self.own_calls: list[Any] = []

    def own(self, dispatch_output: Any, quant_info: Any, runner_config: Any) -> Any:
        """``fused_experts_none_to_triton``."""
        self.own_calls.append((dispatch_output, quant_info, runner_config))
        return StandardCombineInput(torch.full_like(dispatch_output.hidden_states, 7))

    def registering(self, functions: dict[tuple[str, str], Any]) -> Any:
        """``register_pre_permute`` or ``register_post_permute``."""

        def register(first: str, second: str) -> Any:
            def decorate(function: Any) -> Any:
                assert (first, second) not in functions
                functions[first, second] = function
                return function

            return decorate

        return register


class MoeRunner:
    """As SGLang's for the Triton backend."""

    def __init__(self, stub: SglangStub, config: MoeRunnerConfig, lora_enabled: bool = False):
        self.stub, self.config, self.lora_enabled = stub, config, lora_enabled
        self.runner_backend = RegisteredMoeRunnerBackend("triton")
        self.runner_core: Any = "triton's core"
        self.fused_func: Any = None if lora_enabled else stub.own

    def run(self, dispatch_output: Any, quant_info: Any) -> Any:
        if self.fused_func is not None and not self.lora_enabled:
            return self.fused_func(dispatch_output, quant_info, self.config)
        name, core = dispatch_output.format.value, self.runner_core
        key, state = core.runner_backend.value, {}
        given = self.stub.pre[name, key](dispatch_output, quant_info, self.config, state)
        assert isinstance(given, RunnerInput) and given.runner_backend.value == key
        output = core.run(given, quant_info, state, hooks=None)
        assert isinstance(output, RunnerOutput) and output.runner_backend.value == key
        return self.stub.post[key, name](output, quant_info, self.config, state)


class Fp8MoEMethod:
    """Makes a runner, as SGLang's does; ``weight_block_size`` is the checkpoint's."""

    def __init__(self, stub: SglangStub, weight_block_size: list[int] | None) -> None:
        self.stub, self.weight_block_size, self.runner = stub, weight_block_size, None

    def create_moe_runner(self, layer: Any, moe_runner_config: Any, lora: bool = False) -> None:
        self.runner = MoeRunner(self.stub, moe_runner_config, lora)
        for _, hook, _ in self.stub.hooks:
            assert hook(None, self, layer, moe_runner_config) is None


def stub_sglang(monkeypatch: pytest.MonkeyPatch) -> SglangStub:
    """Put SGLang's modules in place."""
    stub = SglangStub()
    moe = "sglang.srt.layers.moe"
    _install(
        monkeypatch,
        {
            "sglang.srt.plugins.hook_registry": {
                "HookType": SimpleNamespace(AFTER="after"),
                "HookRegistry": SimpleNamespace(
                    register=lambda target, hook, kind: stub.hooks.append((target, hook, kind))
                ),
            },
            f"{moe}.moe_runner.base": {
                "MoeRunnerCore": MoeRunnerCore,
                "RunnerInput": RunnerInput,
                "RunnerOutput": RunnerOutput,
                "register_pre_permute": stub.registering(stub.pre),
                "register_post_permute": stub.registering(stub.post),
            },
            f"{moe}.moe_runner.triton": {"fused_experts_none_to_triton": stub.own},
            f"{moe}.token_dispatcher.standard": {"StandardCombineInput": StandardCombineInput},
            f"{moe}.topk": {
                "TopKOutputChecker": SimpleNamespace(
                    format_is_standard=lambda given: isinstance(given, StandardTopKOutput)
                )
            },
            f"{moe}.utils": {
                "RegisteredMoeRunnerBackend": RegisteredMoeRunnerBackend,
                "get_moe_a2a_backend": lambda: stub.a2a,
                "register_moe_runner_backend_name": stub.names.add,
            },
        },
    )
    return stub
