"""A step of ours that runs by the PTX which nvcc makes of it, beside the direct build."""

from __future__ import annotations

import contextlib
import ctypes
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelbench.emulator.settings import DEFAULT_EMULATION, Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds.compiled import bind_problem, common_folder
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.project.context import Context
from kernelbench.project.problem import Inputs, judging
from kernelbench.project.problem_loading import load_problem
from kernelbench.ptx.library import Translated, library_of, load_library
from kernelbench.ptx.sources import PtxSymbols
from kernelbench.ptx.step_kernels import kernels_replaced


@dataclass(frozen=True)
class Call:
    """What one call of a step gave.

    Attributes:
        outputs: Flattened copies; none if the call failed.
        found: Class of each finding with the PTX line of its access, None for one that is not of
            the PTX.
        wrong: Why the outputs are, in one line; empty if they are right.
        seconds: CPU time.
    """

    outputs: Sequence[torch.Tensor]
    found: frozenset[tuple[str, int | None]]
    wrong: str
    seconds: float

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong."""
        return not self.found and not self.wrong


@dataclass(frozen=True)
class Case:
    """A shape with inputs and what must come out."""

    shape: Any
    inputs: Inputs
    reference: Any
    input_class: str


class PtxStep:
    """A step with its host code, loaded for the emulator; there is one per process.

    Args:
        check: Whether for the checker.
    """

    def __init__(self, name: str, *, check: bool) -> None:
        self._context = Context.find()
        (self.step,) = self._context.lineages.select([name])
        self.problem = judging(load_problem(self._context.lineage_for(self.step)), self.step)
        self.check = check
        self._entry = EMULATOR.open(self.step, check=check)
        self._kernel = bind_problem(self.problem, self._entry, self.step, "cpu")
        self.runtime = EMULATOR.runtime(self.step)

    def case(self, shape: str, input_class: str = "", seed: int = 1) -> Case | None:
        """Inputs of a shape, of the problem's first class by default; None if it takes another."""
        (parsed,) = self._context.shapes_for(self.problem, [shape])
        if self.problem.broken_limit(parsed, self.step.limits):
            return None
        kind = input_class or self.problem.input_classes[0]
        inputs = self.problem.make_inputs(parsed, kind, seed, "cpu")
        return Case(parsed, inputs, self.problem.reference(inputs, parsed, kind), kind)

    def build(self, source: Translated) -> ctypes.CDLL:
        """A translation of the step's PTX, built for this mode and loaded."""
        return load_library(library_of(source, common_folder(self.step), check=self.check))

    @contextlib.contextmanager
    def replaced(self, source: Translated, library: ctypes.CDLL) -> Iterator[None]:
        """While it lasts, the step's kernels are those of a translation."""
        entries = source.translation.entries
        with kernels_replaced(self._entry.library, self._entry.path, library, entries):
            yield

    def call(
        self,
        case: Case,
        seed: int = 0,
        emulation: Emulation = DEFAULT_EMULATION,
        symbols: PtxSymbols | None = None,
        limit_s: float = 0.0,
    ) -> Call:
        """One call, on one thread, so that a seed always gives the same schedule."""
        inputs = case.inputs
        inputs.arena.fill(inputs.arena.draw_poison(seed))
        self.runtime.configure(
            emulation, check=self.check, seed=seed, os_threads=1, limit_s=limit_s
        )
        outputs: list[torch.Tensor] = []
        began, wrong = time.process_time(), ""
        try:
            outputs = self.problem.outputs_of(self._kernel(inputs.data), inputs)
        except (KernelFault, NotImplementedError) as error:
            wrong = str(error)
        seconds = time.process_time() - began
        if not wrong:
            verdict = self.problem.compare(outputs, case.reference, case.shape, case.input_class)
            wrong = verdict.reason
        found = frozenset(
            (str(each["class"]), symbols.line(each.get("pc")) if symbols is not None else None)
            for each in self.runtime.report()["findings"]
        )
        return Call([each.flatten().clone() for each in outputs], found, wrong, seconds)


def symbols_of(source: Translated) -> PtxSymbols:
    """What leads from findings to lines of the PTX."""
    return PtxSymbols(source.module, source.translation.layouts, Path(source.module.name))
