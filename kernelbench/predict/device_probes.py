"""A device's file from what probes find on the GPU at hand: ``kernelbench calibrate --model``."""

from __future__ import annotations

import ctypes
import datetime
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kernelbench.base.errors import EnvironmentProblem
from kernelbench.build import compiler
from kernelbench.machine import devices
from kernelbench.predict.model import DEVICES, DeviceModel, device

#: ``Probe`` in device_probes.cu, in its order.
PROBES = (
    "latency_l2", "latency_hbm", "port_bytes", "global_load", "atomic", "reduce",
    "shuffle", "fence_gpu", "cluster_barrier", "word",
)  # fmt: skip
_SOURCE = Path(__file__).with_name("device_probes.cu")
#: Operations of a probe, as in device_probes.cu; bytes that one takes through the SM's port.
_STEPS, _PORT_BYTES = 256, 24576
_REPS = 100
_LINE = re.compile(r"(?P<name>\w+) = \{ value = (?P<value>[^,]+), (?P<rest>.*) \}")


def probed_file() -> str:
    """The text of a device's file for the first GPU: probed there, else as a GPU alike has it.

    A fitted cost stays: it stands for more than its name says. Its source says what was probed.

    Raises:
        EnvironmentProblem: Without a GPU of a modelled architecture, or nvcc.
    """
    found = devices.gpus()
    if not found:
        raise EnvironmentProblem(devices.gpu_problem() or "no GPU 0")
    like = _like(found[0].name, found[0].capability)
    flags = ["-O3", "-std=c++17", *compiler.cuda_arch_flags(found[0].capability)]
    library = ctypes.CDLL(str(compiler.compile_shared("probes of a model", [_SOURCE], flags)))
    samples = {name: _run(library, name) for name in PROBES}
    return file_text(like, found[0].name, samples)


def _like(name: str, capability: tuple[int, int]) -> DeviceModel:
    """The model of a GPU, or the first of its architecture."""
    models = [device(each) for each in DEVICES]
    alike = [each for each in models if each.arch == "sm_{}{}a".format(*capability)]
    if not alike:
        raise EnvironmentProblem(f"{name}: there are models of GPUs for {models[0].arch} and more")
    return next((each for each in alike if each.device == name), alike[0])


def _run(library: ctypes.CDLL, name: str) -> npt.NDArray[np.float64]:
    took = np.zeros(_REPS, np.uint64)
    place = took.ctypes.data_as(ctypes.c_void_p)
    if status := library.kb_model_probe(0, PROBES.index(name), _REPS, place):
        raise EnvironmentProblem(f"the probe of {name} failed on GPU 0: CUDA error {status}")
    cycles = took / _STEPS
    if name == "port_bytes":
        return _PORT_BYTES / cycles
    return cycles / 2 if name == "word" else cycles  # there and back


def file_text(like: DeviceModel, name: str, samples: Mapping[str, npt.NDArray[np.float64]]) -> str:
    """The text of a device's file, with the median of each probe and nine tenths of its values."""
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    text = _SOURCE.with_name(f"{like.name}.toml").read_text(encoding="utf-8")
    head = f"# Made by `kernelbench calibrate --model` on {today}, from {like.name}.toml.\n"
    lines = [head + f'device = "{name}"' if line.startswith("device =") else line
             for line in text.splitlines()]  # fmt: skip
    return "\n".join(_probed(line, like, samples, today) for line in lines) + "\n"


def _probed(
    line: str, like: DeviceModel, samples: Mapping[str, npt.NDArray[np.float64]], today: str
) -> str:
    match = _LINE.fullmatch(line)
    if match is None or match["name"] not in samples:
        return line
    found, before = samples[match["name"]], like.costs[match["name"]]
    low, high = np.quantile(found, [0.05, 0.95])
    said = f"probes.cu on {today}, {len(found)} times: 90 % within {low:.1f} to {high:.1f}"
    if before.kind == "fitted":
        return line.replace(f'"{before.source}"', f'"{before.source}; {said}"')
    rest = re.sub('kind = ".*', f'kind = "probed", source = "{said}"', match["rest"])
    return f"{match['name']} = {{ value = {np.median(found):.4g}, {rest} }}"
