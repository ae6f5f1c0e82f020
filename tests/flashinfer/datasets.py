"""A small FlashInfer-Trace dataset and a SOL-ExecBench problem, as files."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import torch

RMSNORM = {
    "name": "rmsnorm_h64",
    "op_type": "rmsnorm",
    "tags": ["status:verified"],
    "description": "Root mean square normalization.",
    "axes": {"batch_size": {"type": "var"}, "hidden": {"type": "const", "value": 64}},
    "constraints": ["hidden % 8 == 0"],
    "inputs": {
        "x": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"}},
    "reference": (
        "import torch\n\n"
        "def run(x, weight, eps):\n"
        "    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)\n"
        "    return (x.float() * scale * weight.float()).to(x.dtype)\n"
    ),
}
#: Accumulates into an input, with an expression axis and inputs of its own making.
INDEX_ADD = {
    "name": "index_add_h8",
    "op_type": None,
    "custom_inputs_entrypoint": "get_inputs",
    "axes": {
        "rows": {"type": "var", "description": None},
        "hidden": {"type": "const", "value": 8},
        "picked": {"type": "expr", "expression": "rows * 2 + 1"},
    },
    "inputs": {
        "sums": {"shape": ["rows", "8"], "dtype": "float32"},
        "values": {"shape": ["picked", "hidden"], "dtype": "float32"},
        "index": {"shape": ["picked"], "dtype": "int64"},
    },
    "outputs": {"output": {"shape": ["rows", "hidden"], "dtype": "float32"}},
    "reference": (
        "import torch\n\n"
        "def get_inputs(axes_and_scalars, device):\n"
        "    rows, picked = axes_and_scalars['rows'], axes_and_scalars['picked']\n"
        "    return {\n"
        "        'sums': torch.randn(rows, 8, device=device),\n"
        "        'values': torch.randn(picked, 8, device=device),\n"
        "        'index': torch.randint(0, rows, (picked,), device=device),\n"
        "    }\n\n"
        "@torch.no_grad()\n"
        "def run(sums, values, index):\n"
        "    sums.index_add_(0, index, values)\n"
        "    return sums\n"
    ),
}


def solution(name: str, content: str, **spec: Any) -> dict[str, Any]:
    """A solution of the RMS norm in one file."""
    return {
        "name": name,
        "definition": "rmsnorm_h64",
        "author": "somebody",
        "description": f"{name}, of these tests",
        "spec": {
            "language": "python",
            "target_hardware": ["NVIDIA_H100"],
            "entry_point": "src/main.py::run",
            **spec,
        },
        "sources": [{"path": "src/main.py", "content": content}],
    }


RETURNS = solution(
    "returns_v1",
    "import torch\nfrom scaling import scaled\n\n"
    "def run(x, weight, eps):\n    return scaled(x, eps) * weight\n",
    destination_passing_style=False,
)
RETURNS["sources"].append(
    {
        "path": "src/scaling.py",
        "content": "import torch\n\ndef scaled(x, eps):\n"
        "    return (x.float() / (x.float().square().mean(-1, True) + eps).sqrt()).to(x.dtype)\n",
    }
)
WRITES = solution(
    "writes v2",
    "import torch\n\ndef run(x, weight, eps, y):\n"
    "    y.copy_(x.float() * torch.rsqrt(x.float().pow(2).mean(-1, True) + eps) * weight)\n",
)
#: By name: its parameters are in another order, and it does not say how it gives its result.
REORDERED = solution(
    "reordered",
    "def run(eps, weight, x):\n"
    "    return {'y': x / (x.float().pow(2).mean(-1, True) + eps).sqrt().to(x.dtype) * weight}\n",
)
WRONG = solution("wrong", "def run(x, weight, eps):\n    return x * weight\n")
TRITON = solution("in_triton", "import triton\n\ndef run(x, weight, eps):\n    ...\n")
TRITON["spec"]["language"] = "triton"
CUDA = solution("in_cuda", "void run() {}\n", language="cuda", entry_point="src/main.py::run")


def write_safetensors(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    """A safetensors file of these tensors."""
    names = {torch.bfloat16: "BF16", torch.float32: "F32", torch.int64: "I64"}
    header: dict[str, Any] = {"__metadata__": {"made": "by a test"}}
    data = b""
    for key, tensor in tensors.items():
        raw = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        header[key] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_json(path: Path, value: Any) -> None:
    """A JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_lines(path: Path, values: list[Any]) -> None:
    """A JSONL file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))


def workload(uuid: str, batch: int, stored: bool = False) -> dict[str, Any]:
    """A workload of the RMS norm, inside a trace as datasets keep it."""
    drawn = {"type": "random"}
    file = {"type": "safetensors", "path": "blob/workloads/x.safetensors", "tensor_key": "x"}
    inputs = {
        "x": file if stored else drawn,
        "weight": drawn,
        "eps": {"type": "scalar", "value": 1e-5},
    }
    body = {"uuid": uuid, "axes": {"batch_size": batch}, "inputs": inputs}
    return {"definition": "rmsnorm_h64", "solution": None, "workload": body, "evaluation": None}


def trace(uuid: str, ms: float, status: str = "PASSED") -> dict[str, Any]:
    """A trace of ``returns_v1``."""
    return {
        **workload(uuid, 4),
        "solution": "returns_v1",
        "evaluation": {
            "status": status,
            "timestamp": "2026-01-01T00:00:00",
            "correctness": {"max_absolute_error": 0.0} if status == "PASSED" else None,
            "performance": {"latency_ms": ms} if status == "PASSED" else None,
            "environment": {"hardware": "NVIDIA_H100", "libs": {}},
        },
    }


def flashinfer_trace(root: Path) -> Path:
    """A dataset of one definition, three workloads, six solutions and two traces."""
    write_json(root / "definitions" / "rmsnorm" / "rmsnorm_h64.json", RMSNORM)
    write_lines(
        root / "workloads" / "rmsnorm" / "rmsnorm_h64.jsonl",
        [workload("aaa", 4), workload("bbb", 7), workload("ccc", 3, stored=True)],
    )
    stored = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    write_safetensors(root / "blob" / "workloads" / "x.safetensors", {"x": stored})
    for each in (RETURNS, WRITES, REORDERED, WRONG, TRITON, CUDA):
        write_json(root / "solutions" / "somebody" / f"{each['name']}.json", each)
    traces = [trace("aaa", 0.008), trace("bbb", 0.01), trace("ccc", 0, "RUNTIME_ERROR")]
    write_lines(root / "traces" / "rmsnorm" / "rmsnorm_h64.jsonl", traces)
    return root


def sol_problem(root: Path) -> Path:
    """A problem in one folder."""
    write_json(root / "definition.json", INDEX_ADD)
    custom = {name: {"type": "custom"} for name in ("sums", "values", "index")}
    tolerance = {"max_atol": 1e-5, "max_rtol": 1e-5, "required_matched_ratio": 0.99}
    write_lines(
        root / "workload.jsonl",
        [
            {"uuid": "one", "axes": {"rows": 5}, "inputs": custom, "tolerance": tolerance},
            {"uuid": "two", "axes": {"rows": 9}, "inputs": custom},
        ],
    )
    answer = {
        "name": "in_place",
        "definition": "index_add_h8",
        "author": "somebody",
        "spec": {
            "languages": ["pytorch"],
            "target_hardware": ["LOCAL"],
            "entry_point": "kernel.py::go",
            "destination_passing_style": True,
        },
        "sources": [
            {
                "path": "kernel.py",
                "content": "import torch\n\ndef go(sums, values, index, output):\n"
                "    torch.index_add(sums, 0, index, values, out=output)\n",
            }
        ],
    }
    write_json(root / "solution_python.json", answer)
    return root
