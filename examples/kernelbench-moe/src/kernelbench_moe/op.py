"""``kernelbench_moe::moe_layer``: checks of a call, and its implementations by device."""

from __future__ import annotations

import ctypes
import functools
import importlib
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from kernelbench_moe.engines import log_once
from kernelbench_moe.table import BLOCK, CPU_STEP, LIMITS, TABLE, most_tokens, step_for

_ALIGNMENT = 16
_CAPABILITY = (9, 0)
#: Steps keep other memory for small calls than for large ones.
_SMALL_CALLS = 64


class RefusedError(ValueError):
    """A call that no step of the table takes; nothing was launched or written."""


class LayerData(NamedTuple):
    """What a step of the lineage is called with, in its order."""

    hidden: torch.Tensor
    ids: torch.Tensor
    expert_weights: torch.Tensor
    w13: torch.Tensor
    w13_scales: torch.Tensor
    w2: torch.Tensor
    w2_scales: torch.Tensor
    output: torch.Tensor


def moe_layer(
    hidden: torch.Tensor,
    w13: torch.Tensor,
    w13_scales: torch.Tensor,
    w2: torch.Tensor,
    w2_scales: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """Compute Σ_e weight_e · w2[e] q(silu(gate) · up), with gate, up = w13[e] q(token).

    q is the quantization to e4m3 by blocks of 128 values with the scale max(amax / 448, 1e-6). The
    kernels go to the current stream. A call neither waits for the device nor allocates memory of
    its own after the first call with these sizes on its stream, which also compiles the step: make
    that one before a CUDA graph is recorded.

    Args:
        hidden: bfloat16 ``[M, H]``, the tokens; M may be 0.
        w13: float8_e4m3fn ``[E, 2 I, H]``: an expert's rows of the gate, then those of up.
        w13_scales: float32 ``[E, 2 I / 128, H / 128]``.
        w2: float8_e4m3fn ``[E, H, I]``.
        w2_scales: float32 ``[E, H / 128, I / 128]``.
        topk_ids: int32 ``[M, topk]``. What is not in 0 … E - 1 is no expert and adds nothing.
        topk_weights: float32 ``[M, topk]``.
        out: Where to write ``[M, H]``, bfloat16 or float32; need not be zeroed. A bfloat16 ``out``
            may be ``hidden`` itself. Without it a tensor is allocated.
        out_dtype: Of that tensor: torch.bfloat16 or torch.float32.

    Returns:
        ``out``. A token with an expert is NaN throughout if its hidden row is not finite or one of
        its weights is NaN; no other token is affected.

    Raises:
        RefusedError: A ValueError of one line, for a call that :func:`why_not` refuses.
        RuntimeError: In one line, if the step cannot be compiled or launched.
    """
    if out is None:
        dense = torch.contiguous_format
        out = torch.empty_like(hidden, dtype=out_dtype, memory_format=dense)
    _OP(out, hidden, w13, w13_scales, w2, w2_scales, topk_ids, topk_weights)
    return out


def why_not(
    hidden: torch.Tensor,
    w13: torch.Tensor,
    w13_scales: torch.Tensor,
    w2: torch.Tensor,
    w2_scales: torch.Tensor,
    topk_ids: torch.Tensor,
    topk_weights: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> str:
    """Why :func:`moe_layer` would refuse a call, in one line; empty if it takes it.

    It reads sizes, dtypes and addresses only: nothing is launched, nothing waited for.
    """
    for name, tensor, dimensions in (
        ("hidden", hidden, 2), ("w13", w13, 3), ("w2", w2, 3), ("topk_ids", topk_ids, 2),
    ):  # fmt: skip
        if tensor.dim() != dimensions:
            return f"{name}: expected {dimensions} dimensions, found shape {list(tensor.shape)}"
    (m, h), topk = hidden.shape, topk_ids.shape[1]
    e, _, i = w2.shape
    refused = _refused_sizes(m, h, i, e, topk) or _refused_device(hidden.device)
    if refused:
        return refused
    outputs = (torch.bfloat16, torch.float32)
    expected: list[tuple[str, torch.Tensor, tuple[torch.dtype, ...], tuple[int, ...]]] = [
        ("hidden", hidden, (torch.bfloat16,), (m, h)),
        ("w13", w13, (torch.float8_e4m3fn,), (e, 2 * i, h)),
        ("w13_scales", w13_scales, (torch.float32,), (e, 2 * i // BLOCK, h // BLOCK)),
        ("w2", w2, (torch.float8_e4m3fn,), (e, h, i)),
        ("w2_scales", w2_scales, (torch.float32,), (e, h // BLOCK, i // BLOCK)),
        ("topk_ids", topk_ids, (torch.int32,), (m, topk)),
        ("topk_weights", topk_weights, (torch.float32,), (m, topk)),
    ]
    if out is not None:
        expected.append(("out", out, outputs, (m, h)))
    for name, tensor, dtypes, shape in expected:
        refused = _refused_tensor(name, tensor, dtypes, shape, hidden.device)
        if refused:
            return refused
    return ""


def refused_layer(h: int, i: int, e: int, topk: int) -> str:
    """Why no call of a layer would be taken, whatever its tokens; empty if some are."""
    return _refused_sizes(1, h, i, e, topk)


def _refused_sizes(m: int, h: int, i: int, e: int, topk: int) -> str:
    step = step_for(m)
    if not step:
        return f"M = {m}: the table ends at {TABLE[-1].tokens} tokens; split the call"
    limits = LIMITS[step]
    for name, value, largest in (("H", h, limits.hidden), ("I", i, limits.intermediate)):
        if not 0 < value <= largest or value % BLOCK:
            return f"{name} = {value}: {step} takes multiples of {BLOCK} up to {largest}"
    for name, value, largest in (("E", e, limits.experts), ("topk", topk, limits.topk)):
        if not 0 < value <= largest:
            return f"{name} = {value}: {step} takes 1 to {largest}"
    if m * topk > limits.routes:
        return f"M · topk = {m * topk}: {step} takes up to {limits.routes}; split the call"
    return ""


def _refused_device(device: torch.device) -> str:
    if device.type == "cpu":
        return ""
    if device.type != "cuda":
        return f"tensors on {device}: expected a Hopper GPU"
    major, minor = _capability(device)
    if (major, minor) != _CAPABILITY:
        return f"{device} has compute capability {major}.{minor}: the steps are built for 9.0"
    if _launched_on and device not in _launched_on:
        # A step keeps its workspaces by stream, and two devices' default streams look the same.
        return (
            f"tensors on {device}, calls before were on {min(map(str, _launched_on))}: use one "
            "process for each GPU"
        )
    return ""


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _refused_tensor(
    name: str,
    tensor: torch.Tensor,
    dtypes: tuple[torch.dtype, ...],
    shape: tuple[int, ...],
    device: torch.device,
) -> str:
    if tensor.dtype in dtypes and tensor.shape == shape and tensor.device == device:
        if not tensor.is_contiguous():
            return f"{name}: expected a dense tensor, found strides {tensor.stride()}"
        if tensor.data_ptr() % _ALIGNMENT:
            return f"{name}: its address is no multiple of {_ALIGNMENT}"
        return ""
    wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    found = str(tensor.dtype).removeprefix("torch.")
    return (
        f"{name}: expected {wanted} {list(shape)} on {device}, "
        f"found {found} {list(tensor.shape)} on {tensor.device}"
    )


def load_step(name: str) -> Callable[[LayerData], Any]:
    """The step's ``custom_kernel``; nvcc compiles it at the first call ever.

    Raises:
        RuntimeError: If the package was not built, or nvcc is missing or fails.
    """
    found: Callable[[LayerData], Any] = _module(name).custom_kernel
    return found


@functools.cache
def _module(name: str) -> Any:
    module = f"{__package__}.steps.{name}"
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise RuntimeError(
            f"kernelbench-moe: step {name} is not there; install the package, which exports it"
        ) from None


#: The device of the calls so far, and what they have reserved memory for.
_launched_on: set[torch.device] = set()
_reserved: set[tuple[int | str, ...]] = set()
#: What accepted calls look like: to explain a refusal takes longer than to launch a step.
_accepted: set[Any] = set()


def _on_cpu(out: torch.Tensor, *operands: torch.Tensor) -> None:
    if _some(out, operands):
        _run(out, operands, load_step(CPU_STEP))


def _on_cuda(out: torch.Tensor, *operands: torch.Tensor) -> None:
    if not _some(out, operands):
        return
    if out.device.index == torch.cuda.current_device():
        _launch(out, operands)
    else:
        with torch.cuda.device(out.device):
            _launch(out, operands)


def _launch(out: torch.Tensor, operands: tuple[torch.Tensor, ...]) -> None:
    """On the current device and stream; ``current_stream`` would build an object around it."""
    name, stream = step_for(len(out)), torch._C._cuda_getCurrentRawStream(out.device.index)
    if _reserve(name, stream, operands):
        _admit(name, stream, operands)
    _launched_on.add(out.device)
    module = _module(name)

    def step(data: LayerData) -> None:
        # ``custom_kernel`` would look at the tensors again.
        sizes = (*data.hidden.shape, data.w2.shape[2], len(data.w2), data.ids.shape[1])
        pointers = map(torch.Tensor.data_ptr, data)
        module._entry.call(module.MoeLayerCall(*sizes, *pointers, stream))

    _run(out, operands, step)


def _some(out: torch.Tensor, operands: tuple[torch.Tensor, ...]) -> bool:
    """Refuse a wrong call; whether a right one has tokens."""
    tensors = (out, *operands)
    look = tuple((each.dtype, each.shape, each.device, each.is_contiguous()) for each in tensors)
    if look not in _accepted or any(each.data_ptr() % _ALIGNMENT for each in tensors):
        refused = why_not(*operands, out=out)
        if refused:
            raise RefusedError(f"moe_layer: {refused}")
        _accepted.add(look)
    return len(out) > 0


def _run(
    out: torch.Tensor, operands: tuple[torch.Tensor, ...], step: Callable[[LayerData], Any]
) -> None:
    """Steps write float32."""
    hidden, w13, w13_scales, w2, w2_scales, ids, weights = operands
    output = out if out.dtype is torch.float32 else torch.empty_like(out, dtype=torch.float32)
    step(LayerData(hidden, ids, weights, w13, w13_scales, w2, w2_scales, output))
    if output is not out:
        out.copy_(output)


def _reserve(name: str, stream: int, operands: tuple[torch.Tensor, ...]) -> bool:
    """Compile a step, and make it keep all memory that calls on the stream will need.

    By calls without experts. Memory that grew later would be freed below the graphs that use it.

    Returns:
        Whether it is the stream's own; a stream that is recorded has that of another.
    """
    hidden, w13, w13_scales, w2, w2_scales, ids, _ = operands
    h, topk = hidden.shape[1], ids.shape[1]
    sizes = (name, h, w2.shape[2], topk)
    if (stream, *sizes) in _reserved:
        return True
    if torch.cuda.is_current_stream_capturing():
        own = any(known[0] == stream for known in _reserved)
        if not own and any(known[1:] == sizes for known in _reserved):
            return False  # it gets the memory of the stream that was called on last
        raise RuntimeError(
            f"moe_layer: first call of {name} with H = {h}, I = {sizes[2]}, topk = {topk} on its "
            "stream while a CUDA graph is recorded; make one call with as many tokens before"
        )
    step = load_step(name)
    largest = min(most_tokens(name), LIMITS[name].routes // topk)
    tokens = torch.zeros((largest, h), dtype=hidden.dtype, device=hidden.device)
    output = torch.empty((largest, h), dtype=torch.float32, device=hidden.device)
    none = torch.full((largest, topk), -1, dtype=torch.int32, device=hidden.device)
    weights = torch.zeros((largest, topk), dtype=torch.float32, device=hidden.device)
    small = range(min(largest, _SMALL_CALLS), 0, -1)
    for m in (largest, *(m for m in small if step_for(m) == name)):
        data = LayerData(
            tokens[:m], none[:m], weights[:m], w13, w13_scales, w2, w2_scales, output[:m]
        )
        step(data)
    _reserved.add((stream, *sizes))
    return True


#: What the launcher was told.
_admitted: set[tuple[int | str, ...]] = set()


def _admit(name: str, stream: int, operands: tuple[torch.Tensor, ...]) -> None:
    """Let calls like this one be launched from C++, which takes the host less time."""
    hidden, _, _, w2, _, ids, _ = operands
    (e, h, i), topk, device = w2.shape, ids.shape[1], hidden.get_device()
    like = (name, stream, h, i, e, topk)
    launcher = None if like in _admitted else load_launcher(name)
    if launcher is not None:
        last = min(most_tokens(name), LIMITS[name].routes // topk)
        before = (row.tokens for row in TABLE if row.tokens < most_tokens(name))
        first = max(before, default=0) + 1
        run = ctypes.cast(_module(name)._entry._library.kb_run, ctypes.c_void_p)
        launcher.kbm_admit(first, last, h, i, e, topk, device, stream, run, _stream_reader())
    _admitted.add(like)


@functools.cache
def load_launcher(name: str, *flags: str) -> ctypes.CDLL | None:
    """``launcher.cpp`` with ``round.cu``, for the op's CUDA tensors; built by what builds the step.

    None, and a line in the log, where it cannot be: Python launches the steps then.
    """
    folder = Path(torch.__file__).parent
    # Its version is a part of what the compiled file is found by.
    version = re.sub(r"\W", "_", torch.__version__)
    try:
        library = _module(name).build_standalone(
            "kernelbench_moe",
            {
                source: Path(__file__).with_name(source).read_text("utf-8")
                for source in ("launcher.cpp", "round.cu")
            },
            ["-std=c++20", "-O2", "--cudart", "static", "-arch=sm_90", f"-DKBM_TORCH_{version}",
             *flags, "-isystem", str(folder / "include"), f"-L{folder / 'lib'}", "-lc10",
             "-ltorch_cpu"],
        )  # fmt: skip
        loaded = ctypes.CDLL(str(library))
    except (OSError, RuntimeError) as error:
        log_once(logging.WARNING, f"kernelbench-moe: launched from Python: {error}")
        return None
    number, address = ctypes.c_int64, ctypes.c_void_p
    loaded.kbm_admit.argtypes = [*(number,) * 7, *(address,) * 3]
    loaded.kbm_admit.restype = None
    return loaded


@functools.cache
def _stream_reader() -> ctypes.c_void_p:
    """The C function of torch that reads a device's current stream."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cuda.so"))
    return ctypes.cast(library.aoti_torch_get_current_cuda_stream, ctypes.c_void_p)


_LIBRARY = torch.library.Library("kernelbench_moe", "DEF")
_OPERANDS = (
    "(Tensor(a!) out, Tensor hidden, Tensor w13, Tensor w13_scales, Tensor w2, "
    "Tensor w2_scales, Tensor topk_ids, Tensor topk_weights) -> ()"
)
_LIBRARY.define(f"moe_layer{_OPERANDS}")
_LIBRARY.define(f"moe_layer_by_python{_OPERANDS}")
_LIBRARY.impl("moe_layer", _on_cpu, "CPU")
# Until the launcher has the key CUDA.
_LIBRARY.impl("moe_layer", _on_cuda, "CompositeExplicitAutograd")
_LIBRARY.impl("moe_layer_by_python", _on_cuda, "CompositeExplicitAutograd")
torch.library.register_fake("kernelbench_moe::moe_layer", lambda out, *operands: None)
#: Without the search for an overload that ``torch.ops.kernelbench_moe.moe_layer`` makes.
_OP = torch.ops.kernelbench_moe.moe_layer.default
