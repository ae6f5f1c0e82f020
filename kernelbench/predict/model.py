"""A device's costs, each with its source, and the replay of a trace on them."""

from __future__ import annotations

import ctypes
import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from kernelbench.base.errors import KernelbenchError, UsageError
from kernelbench.build import compiler
from kernelbench.machine.toolchain import emulator_compiler
from kernelbench.predict.instructions import STRETCH
from kernelbench.predict.trace import OPS, StepTrace

CostKind = Literal["published", "probed", "fitted", "guess"]
REPLAY = Path(__file__).with_name("replay.cpp")
#: ``Costs`` in replay.cpp, in its order.
COSTS = (
    "clock_ghz", "sms", "shared_per_sm", "hbm_gb_s", "l2_gb_s", "port_bytes", "latency_l2",
    "latency_hbm", "instruction", "issue", "arrive", "wait", "tma_issue", "store_latency",
    "store_kib", "mma_column", "mma_least", "mma_latency", "tmem_copy", "tmem_latency",
    "tmem_register", "tmem_store_register", "shared_load", "shared_store", "global_load",
    "global_load_more", "global_store", "map_publish", "map_acquire", "try_cancel",
    "cluster_barrier", "reduce", "word", "atomic", "shuffle", "fence_gpu", "cta_start", "launch",
    "end", "wgmma_column", "wgmma_shared", "wgmma_latency", "async_copy", "call", "registers",
    "float_slot", "integer_slot", "special_slot", "special_latency", "shared_latency", "handoff",
    "fetch",
)  # fmt: skip
#: What an operation takes, where the device's file need not have it; None: the model lacks it.
_NEEDS: Mapping[str, tuple[str, ...] | None] = {
    "load": ("tma_issue", "port_bytes"), "store": ("store_latency", "store_kib"),
    "mma": ("mma_column", "mma_least", "mma_latency"), "tmem_copy": ("tmem_copy",),
    "tmem_load": ("tmem_latency", "tmem_register"),
    "tmem_store": ("tmem_store_register",), "map_publish": ("map_publish",),
    "map_acquire": ("map_acquire",), "try_cancel": ("try_cancel",),
    "cluster_arrive": ("cluster_barrier",), "reduce": ("reduce", "word"), "atomic": ("atomic",),
    "word_wait": ("word",), "shuffle": ("shuffle",), "fence": ("fence_gpu",),
    "accesses": (
        "shared_load", "shared_store", "global_load", "global_load_more", "global_store",
    ),
    "async_copy": ("async_copy", "port_bytes"),
    "warpgroup_mma": ("wgmma_column", "wgmma_shared", "wgmma_latency"),
    "dense_mma": None,
}  # fmt: skip
_OPTIONAL = frozenset(
    (*COSTS[COSTS.index("call") :], *(name for names in _NEEDS.values() for name in names or ()))
)
#: As PTX has them, for messages.
_IN_PTX = {
    "load": "cp.async.bulk to shared memory", "store": "cp.async.bulk to global memory",
    "mma": "tcgen05.mma of FP4", "tmem_copy": "tcgen05.cp", "tmem_load": "tcgen05.ld",
    "tmem_store": "tcgen05.st", "map_publish": "tensormap.cp_fenceproxy",
    "map_acquire": "fence.proxy.tensormap", "try_cancel": "clusterlaunchcontrol.try_cancel",
    "cluster_arrive": "barrier.cluster", "reduce": "red", "atomic": "atom",
    "word_wait": "a wait for global memory", "shuffle": "shfl", "fence": "fence.acq_rel",
    "accesses": "ld and st", "async_copy": "cp.async", "warpgroup_mma": "wgmma",
    "dense_mma": "tcgen05.mma other than FP4",
}  # fmt: skip
#: ``Cause`` in replay.cpp, in its order.
CAUSES = (
    "issue", "launch and start", "another warp's arrival", "named barrier", "cluster barrier",
    "bulk store", "tensor core", "tensor map publish/acquire", "launch control", "global word",
    "loads and stores", "tcgen05.ld", "copy: latency", "copy: HBM", "copy: L2",
    "copy: SM port", "copy: TMA unit", "end of the grid before", "instructions",
)  # fmt: skip


class _Bubble(ctypes.Structure):
    _fields_ = (
        ("pc", ctypes.c_uint64),
        ("cause", ctypes.c_uint32),
        ("pad", ctypes.c_uint32),
        ("cycles", ctypes.c_double),
    )


#: ``Span`` in replay.cpp: ``cause`` is a place in :data:`CAUSES`, or its length of a warp's life.
SPAN = np.dtype(
    [
        ("launch", "u4"), ("row", "u4"), ("cause", "u4"), ("pad", "u4"), ("pc", "u8"),
        ("from", "f8"), ("to", "f8"),
    ]
)  # fmt: skip


class _Spans(ctypes.Structure):
    _fields_ = (("at", ctypes.c_void_p), ("room", ctypes.c_uint64), ("count", ctypes.c_uint64))


@dataclass(frozen=True)
class Cost:
    """A value of a device's file: cycles, unless its unit says otherwise."""

    value: float
    kind: CostKind
    source: str


@dataclass(frozen=True)
class PathPart:
    """A part of the critical path: what it waits for or does, where, for how long."""

    cause: str
    pc: int
    us: float


@dataclass(frozen=True)
class DeviceModel:
    """A device's model, as its file has it.

    Attributes:
        host: By the first step of a class of hosts, what a call takes beside the device, in us.
        spread: Of held-out figures: 90 % of the residuals of a time, and of a change between
            neighbours, are within this part of it.
    """

    name: str
    device: str
    arch: str
    costs: Mapping[str, Cost]
    host: Mapping[str, Cost]
    spread: Mapping[str, Cost]

    def values(self, **other: float) -> dict[str, float]:
        """The costs by name, some replaced."""
        return {name: cost.value for name, cost in self.costs.items()} | other

    def require(self, trace: StepTrace) -> None:
        """Refuse a trace with an operation that has no cost.

        Raises:
            UsageError: With the operation's name.
        """
        for op in np.unique(trace.records["op"]):
            name = OPS[op]
            needed = _NEEDS.get(name, ())
            lacking = None if needed is None else [n for n in needed if n not in self.costs]
            if lacking is None:
                raise UsageError(f"--predict: {_IN_PTX[name]} is not in the model of predictions")
            if lacking:
                raise UsageError(
                    f"{self.name}.toml: {_IN_PTX[name]} has no cost ({', '.join(lacking)})",
                    "add it with its source, or predict another step",
                )


#: Whose files ship; of an architecture the first one is taken unless another one is named.
DEVICES = ("b200", "h200", "h100")


@functools.cache
def device(name: str = "b200") -> DeviceModel:
    """A device that ships, by its file's name, or one of a file of one's own.

    Raises:
        UsageError: If there is none, or the file is not such a one.
    """
    if name not in DEVICES:
        if name.endswith(".toml") and Path(name).is_file():
            return read_device(Path(name))
        raise UsageError(
            f"--predict-on {name}: there are models of {', '.join(DEVICES)}",
            "or name a .toml file, as `kernelbench calibrate --model` makes",
        )
    return read_device(Path(__file__).with_name(f"{name}.toml"))


def read_device(path: Path) -> DeviceModel:
    """A device's file.

    Raises:
        UsageError: If a value lacks kind or source, or a cost is unknown or missing.
    """
    raw = tomllib.loads(path.read_text())
    costs = {name: _cost(path, name, each) for name, each in raw["costs"].items()}
    for name in costs:
        if name not in COSTS:
            raise UsageError(f"{path.name}: unknown cost {name!r}")
    for name in COSTS:
        if name not in costs and name not in _OPTIONAL:
            raise UsageError(f"{path.name}: the cost {name!r} is missing", "add it with its source")
    return DeviceModel(
        path.stem,
        raw["device"],
        raw["arch"],
        costs,
        {name: _cost(path, name, each, "us") for name, each in raw.get("host", {}).items()},
        {name: _cost(path, name, each) for name, each in raw.get("spread", {}).items()},
    )


def _cost(path: Path, name: str, raw: Mapping[str, Any], value: str = "value") -> Cost:
    try:
        found = Cost(float(raw[value]), raw["kind"], raw["source"])
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path.name}: {name} takes {value}, kind and source") from error
    if found.kind not in get_args(CostKind) or not found.source:
        raise UsageError(f"{path.name}: {name}: kind is one of {', '.join(get_args(CostKind))}")
    return found


@functools.cache
def _library() -> ctypes.CDLL:
    path = compiler.compile_shared(
        "replay of predictions",
        [REPLAY],
        ("-std=c++20", "-O2", "-Wall"),
        compiler=emulator_compiler(),
        link_flags=(),
    )
    library = ctypes.CDLL(str(path))
    library.kb_replay.argtypes = [
        ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p,
        ctypes.POINTER(_Bubble), ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64,
        ctypes.POINTER(_Spans),
    ]  # fmt: skip
    library.kb_replay.restype = ctypes.c_double
    return library


def _in_c(costs: Mapping[str, float]) -> ctypes.Array[ctypes.c_double]:
    """``Costs`` of replay.cpp."""
    return (ctypes.c_double * len(COSTS))(*(costs.get(name, 0.0) for name in COSTS))


_NO_STRETCHES = np.zeros(0, STRETCH)


def replay(
    records: np.ndarray[Any, np.dtype[Any]],
    costs: Mapping[str, float],
    bubbles: int = 0,
    free: tuple[str, Sequence[int]] | None = None,
    stretches: np.ndarray[Any, np.dtype[Any]] = _NO_STRETCHES,
) -> tuple[float, list[PathPart]]:
    """The device time of a trace's launches, in us, and the longest parts of its critical path.

    Args:
        records: Of dtype :data:`~kernelbench.predict.trace.RECORD`.
        costs: By the names of :data:`COSTS`.
        bubbles: How many parts of the critical path.
        free: One of :data:`CAUSES` and the places where it costs nothing; ``issue`` and
            ``launch and start`` then cost nothing anywhere.
        stretches: Of the paths that records name; of dtype
            :data:`~kernelbench.predict.instructions.STRETCH`.

    Raises:
        KernelbenchError: If warps of the trace wait for what never comes.
    """
    records = np.ascontiguousarray(records)
    found = (_Bubble * max(1, bubbles))()
    cause, places = free or (None, ())
    pcs = (ctypes.c_uint64 * max(1, len(places)))(*sorted(places))
    us = _library().kb_replay(
        records.ctypes.data, len(records), stretches.ctypes.data, len(stretches), _in_c(costs),
        found, bubbles,
        CAUSES.index(cause) if cause else len(CAUSES), pcs, len(places), None,
    )  # fmt: skip
    if us < 0:
        raise KernelbenchError("a prediction's replay does not end: its trace is not complete")
    clock = costs["clock_ghz"] * 1e3
    return us, [
        PathPart(CAUSES[b.cause], b.pc, b.cycles / clock) for b in found[:bubbles] if b.cycles > 0
    ]


def spans(
    records: np.ndarray[Any, np.dtype[Any]],
    costs: Mapping[str, float],
    stretches: np.ndarray[Any, np.dtype[Any]] = _NO_STRETCHES,
) -> np.ndarray[Any, np.dtype[Any]]:
    """What the warps of each launch's first CTA do and wait for, its SM's units, the critical path.

    Args:
        records: Of dtype :data:`~kernelbench.predict.trace.RECORD`.
        costs: By the names of :data:`COSTS`.
        stretches: As :func:`replay` takes them.

    Returns:
        Of dtype :data:`SPAN`, times in us. Behind a launch's warps come rows of its tensor core,
        of bulk copies and of the critical path.
    """
    records = np.ascontiguousarray(records)
    found = np.empty(len(records), SPAN)
    while True:
        log = _Spans(found.ctypes.data, len(found), 0)
        _library().kb_replay(
            records.ctypes.data, len(records), stretches.ctypes.data, len(stretches),
            _in_c(costs), None, 0, len(CAUSES), None, 0, ctypes.byref(log),
        )  # fmt: skip
        if log.count <= len(found):
            return found[: log.count]
        found = np.empty(log.count, SPAN)
