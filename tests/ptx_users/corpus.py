"""What Triton 3.6 made of the scripts here (``make_corpus.py``), and how it is launched."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from kernelbench.ptx import PtxModule, PtxReport, load
from kernelbench.ptx.hosts.triton_arguments import tensor_map

HERE = Path(__file__).parent
_F16, _SWIZZLE_128 = 6, 3


def text_of(name: str) -> str:
    """The PTX of ``matmul_90``."""
    return gzip.decompress((HERE / "corpus" / f"{name}.ptx.gz").read_bytes()).decode()


def with_fences(text: str) -> str:
    """The proxy fence that Triton 3.6.0 leaves out, behind each wait for cp.async copies."""
    return re.sub(r"(cp\.async\.wait_group\s+\d+;)", r"\1\n\tfence.proxy.async;", text)


class Case:
    """A kernel of the corpus with its arguments.

    Args:
        want: What ``arrays[output]`` has to be.
    """

    def __init__(
        self, arrays: dict[str, torch.Tensor], output: str, want: torch.Tensor, grid: Any,
        numbers: tuple[int | float, ...], shared: int, tolerance: float = 0.0, maps: int = 0,
    ) -> None:  # fmt: skip
        self.arrays, self.output, self.want = arrays, output, want
        self.grid, self.numbers, self.shared = grid, numbers, shared
        self.tolerance, self.maps = tolerance, maps

    def launch(self, module: PtxModule, check: int) -> PtxReport:
        """Run it; the numbers behind the arrays are the kernel's, then two scratch pointers."""
        args: list[Any] = []
        for at, array in enumerate(self.arrays.values()):
            args += map_arguments(array) if at < self.maps else [array.data_ptr()]
        return module.launch(
            module.kernels[0], self.grid, None, [*args, *self.numbers, 0, 0],
            shared=self.shared, memory=self.arrays, check=check,
        )  # fmt: skip

    def is_right(self) -> bool:
        """Whether the output is what it has to be."""
        found, limit = self.arrays[self.output].float(), self.tolerance
        return torch.allclose(found, self.want.float(), rtol=limit, atol=limit)


def map_arguments(array: torch.Tensor) -> list[Any]:
    """A tensor descriptor of boxes of 64 × 64 halves, as Triton passes it."""
    descriptor = SimpleNamespace(shape=array.shape, strides=array.stride(), padding="zero")
    meta = {
        "block_size": [64, 64], "elem_size": 2, "elem_type": _F16, "swizzle": _SWIZZLE_128,
        "fp4_padded": False,
    }  # fmt: skip
    return [
        tensor_map(array.data_ptr(), descriptor, meta), *array.shape, *array.stride()
    ]  # fmt: skip


def _whole(*extents: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randint(-4, 5, extents).to(dtype)


def softmax() -> Case:
    x = torch.randn(3, 700)
    arrays = {"x": x, "y": torch.full_like(x, torch.nan)}
    return Case(arrays, "y", torch.softmax(x, dim=1), 3, (700,), 16, 1e-6)


def layer_norm() -> Case:
    x, weight, bias = torch.randn(3, 600).half(), torch.randn(600), torch.randn(600)
    arrays = {"x": x, "weight": weight, "bias": bias, "y": torch.full_like(x, torch.nan)}
    want = torch.nn.functional.layer_norm(x.float(), (600,), weight, bias, 1e-5)
    return Case(arrays, "y", want, 3, (600, 1e-5), 512, 2e-3)


def matmul() -> Case:
    a, b, c = _whole(100, 256), _whole(64, 256), torch.full((100, 64), torch.nan).half()
    want = a.float() @ b.float().T
    return Case({"a": a, "b": b, "c": c}, "c", want, (2, 1), (100, 64, 256), 49152)


def matmul_rows() -> Case:
    half = torch.bfloat16
    a, b = _whole(100, 256, dtype=half), _whole(256, 128, dtype=half)
    c = torch.full((100, 128), torch.nan, dtype=half)
    want = (a.float() @ b.float()).to(half)
    return Case({"a": a, "b": b, "c": c}, "c", want, (2, 1), (100, 128, 256), 73728)


def matmul_tma() -> Case:
    a, b, c = _whole(100, 256), _whole(128, 256), torch.full((100, 128), torch.nan).half()
    want = a.float() @ b.float().T
    return Case({"a": a, "b": b, "c": c}, "c", want, (2, 2), (256,), 49176, maps=3)


CASES: dict[str, Callable[[], Case]] = {
    "softmax_90": softmax,
    "layer_norm_90": layer_norm,
    "matmul_90": matmul,
    "matmul_rows_90": matmul_rows,
    "matmul_tma_90": matmul_tma,
}


def module_of(name: str, *, fenced: bool = False) -> PtxModule:
    """A kernel of the corpus."""
    text = text_of(name)
    return load(f"{name}.ptx", text=with_fences(text) if fenced else text)
