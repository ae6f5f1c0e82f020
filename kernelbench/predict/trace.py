"""One call of a shipped step on the emulator, with a record of each primitive (``timing.hpp``)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelbench.base.errors import IncorrectError, UsageError
from kernelbench.emulator.findings import resolve_report
from kernelbench.emulator.runtime import TIMED_BYTES
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EmulatorExecutor, OpenedStep
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.predict.instructions import instructions_by_block, stretches_of
from kernelbench.project.shipped import shipped_root

if TYPE_CHECKING:
    from kernelbench.emulator.symbols import Place, Symbols
    from kernelbench.project.model import Step
    from kernelbench.project.problem import Inputs, Problem

#: ``Op`` in timing.hpp, in its order.
OPS = (
    "launch", "arrive", "wait", "load", "store", "commit_group", "wait_group", "barrier", "mma",
    "tmem_copy", "tensor_commit", "tmem_load", "tmem_wait", "tmem_store", "cluster_arrive",
    "cluster_wait", "map_publish", "map_acquire", "try_cancel", "reduce", "atomic", "word_wait",
    "accesses", "shuffle", "fence", "async_copy", "async_commit", "async_wait", "warpgroup_mma",
    "warpgroup_commit", "warpgroup_wait", "grid_wait", "grid_trigger", "dense_mma",
)  # fmt: skip
RECORD = np.dtype(
    [
        ("op", "u1"), ("lane", "u1"), ("warp", "u2"), ("cta", "u4"), ("a", "u8"), ("b", "u8"),
        ("c", "u4"), ("x", "u4"), ("pc", "u8"),
    ]
)  # fmt: skip
assert RECORD.itemsize == TIMED_BYTES
#: Whose ``a`` is an address, which differs from one process to the next.
_ADDRESSED = [OPS.index(op) for op in ("load", "async_copy", "reduce", "atomic", "word_wait")]


@dataclass(frozen=True)
class StepTrace:
    """What a call did.

    Attributes:
        records: Of dtype :data:`RECORD`, in the order of the emulation. ``pc`` of a launch has the
            registers of its kernel's threads, 0 if they are not known.
        symbols, module, base: What names the places ``pc``, the library, where it was loaded.
        paths: Of code between records, which name them by their number: of each its instructions,
            its length, itself.
    """

    records: np.ndarray[Any, np.dtype[Any]]
    symbols: Symbols
    module: str = ""
    base: int = 0
    paths: np.ndarray[Any, np.dtype[np.uint32]] = field(default_factory=lambda: np.zeros(0, "u4"))

    @functools.cached_property
    def stretches(self) -> np.ndarray[Any, np.dtype[Any]]:
        """What the paths between records have, of dtype ``STRETCH``."""
        return stretches_of(self.module, self.paths)

    def schedule(self) -> str:
        """A hash of all that a prediction depends on: equal for equal schedules."""
        kept = self.records.copy()
        kept["pc"] = 0
        addressed = np.isin(kept["op"], _ADDRESSED)
        kept["x"] &= 0x7FFFFFFF  # whether the call has written close by goes by addresses, too
        # Which addresses are the same matters, not what they are: numbered as they come first.
        _, first, which = np.unique(kept["a"][addressed], return_index=True, return_inverse=True)
        kept["a"][addressed] = np.argsort(np.argsort(first))[which]
        return hashlib.sha256(kept.tobytes() + self.stretches.tobytes()).hexdigest()

    def found(self, pc: int) -> Place | None:
        """Where an address in the step's library is in the source."""
        # A return address belongs to the instruction before it.
        offset = pc - self.base - 1
        return self.symbols.place({"module": self.module, "offset": offset}) if pc else None

    def place(self, pc: int) -> str:
        """The source line of an address; empty if it is unknown."""
        found = self.found(pc)
        return f"{found.shown}:{found.line}" if found else ""


def locked_registers(step: Step) -> dict[str, int]:
    """Registers of a thread by a kernel's name, as nvcc has compiled those of a step that ships.

    Of another step they are taken to be its parent's: it would seem to fit as often as it likes.
    """
    lock = shipped_root() / "results" / "code.lock"
    locked = tomllib.loads(lock.read_text()) if lock.is_file() else {}
    known = locked.get(step.name) or locked.get(step.parent or "", {})
    builds = known.get(step.arch, {}).values()
    kernels = [each for build in builds for each in build["kernels"].items()]
    return {_function(symbol): int(kernel["registers"]) for symbol, kernel in kernels}


def _function(symbol: str) -> str:
    """``f`` of ``_ZN2kb4step1fE…``: names stand there behind their lengths."""
    rest, name = symbol.removeprefix("_ZN"), ""
    while found := re.match(r"\d+", rest):
        start, length = found.end(), int(found[0])
        name, rest = rest[start : start + length], rest[start + length :]
    return name


def traced_inputs(problem: Problem, shape: Any) -> Inputs:
    """Inputs of the call that is traced, on the CPU: their values change no schedule."""
    return problem.make_inputs(shape, problem.input_classes[0], 1, "cpu")


def trace(step: Step, problem: Problem, data: Any, sms: int, *, limit_s: float = 0.0) -> StepTrace:
    """Call a compiled step once, without the checker.

    Args:
        data: Inputs on the CPU.
        sms: Streaming multiprocessors of the GPU that is stood for.
        limit_s: Seconds after which a launch is ended, as a hang; 0 for never.

    Raises:
        UsageError: If the step is not a compiled one.
        IncorrectError: If the call fails, with the emulator's first finding.
        KernelbenchError: If the step cannot be built.
    """
    opened = _opened(step, problem, sms, limit_s)
    module, base = _loaded_at(opened.library)
    opened.runtime.time(base, instructions_by_block(module))
    try:
        _called(opened, step, data)
        records = np.frombuffer(opened.runtime.timed(), RECORD)
        paths = np.frombuffer(opened.runtime.timed_paths(), np.uint32)
    finally:
        opened.runtime.configure(Emulation(sms=sms))
    traced = StepTrace(records.copy(), opened.symbols, module, base, paths.copy())
    launches = np.flatnonzero(records["op"] == OPS.index("launch"))
    registers = locked_registers(step)
    for first, end in zip(launches, [*launches[1:], len(records)], strict=True):
        pcs = records["pc"][first + 1 : end]
        place = traced.found(int(pcs[np.argmax(pcs > 0)])) if pcs.any() else None
        traced.records["pc"][first] = registers.get(place.kernel, 0) if place else 0
    return traced


def result_of(step: Step, problem: Problem, data: Any, sms: int, *, limit_s: float = 0.0) -> Any:
    """What a step returns, computed by the library that :func:`trace` runs without any values.

    Raises:
        As :func:`trace`.
    """
    return _called(_opened(step, problem, sms, limit_s), step, data)


def _opened(step: Step, problem: Problem, sms: int, limit_s: float) -> OpenedStep:
    if step.kind != "step" or not step.compiled:
        raise UsageError(
            f"--predict: {step.in_words}; only compiled steps (launch.cu) can be predicted"
        )
    opened = EmulatorExecutor(recording=True).opened(step, problem, "cpu", sms)
    opened.runtime.configure(Emulation(sms=sms), limit_s=limit_s)
    return opened


def _called(opened: OpenedStep, step: Step, data: Any) -> Any:
    result, why = None, ""
    try:
        result = opened.kernel(data)
    except KernelFault as error:
        why = str(error)
    found = resolve_report(opened.runtime.report(), opened.symbols)
    if why or found.faults:
        hint = f"`kernelbench check {step.name}` says more"
        raise IncorrectError(f"{step.name}: {found.headline() or why}", hint)
    return result


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _loaded_at(library: ctypes.CDLL | None) -> tuple[str, int]:
    info = _DlInfo()
    if library is None:
        return "", 0
    ctypes.CDLL(None).dladdr(ctypes.cast(library.kb_run, ctypes.c_void_p), ctypes.byref(info))
    return os.fsdecode(info.file or b""), info.base or 0
