"""Calls of emulated steps, timed on request: the half of ``tools/bench.py`` that loads libraries.

It calls libraries that another revision may have built, found in a compile cache by their names, so
that two revisions are compared by what they compiled and not by the Python around it. Requests and
answers are lines of JSON on stdin and stdout; two revisions need two processes, since a process can
hold one emulator runtime only.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

from kernelbench.emulator.runtime import Runtime, load_emulated
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.kinds.loaded_step import LoadedStep
from kernelbench.kinds.protocol import CompiledProblem
from kernelbench.project.context import Context
from kernelbench.project.problem_loading import load_problem
from kernelbench.project.shapes import resolve_shape

SEED = 1
LEAST_S = 0.3


class _AnyRuntime(Runtime):
    """A runtime of any revision: what it lacks is not called here."""

    def _declare(self) -> None:
        self._library.kb_emu_report.restype = ctypes.c_char_p
        with contextlib.suppress(AttributeError):
            super()._declare()


class Bench:
    """The runtime of one compile cache, and the steps that were asked for."""

    def __init__(self, cache: Path) -> None:
        self._libraries: dict[str, Path] = {}
        metas = sorted(
            (cache / "builds").glob("*/meta.json"), key=lambda file: file.stat().st_mtime
        )
        for file in metas:
            self._libraries[json.loads(file.read_text())["name"]] = file.parent / "lib.so"
        self._context = Context.find()
        self._calls: dict[tuple[str, str, bool], Any] = {}

    @functools.cached_property
    def _runtime(self) -> Runtime:
        return _AnyRuntime(self._library("emulator runtime"))

    def _library(self, name: str) -> Path:
        if name not in self._libraries:
            raise LookupError(f"nothing called {name} is built")
        return self._libraries[name]

    def seconds(self, step: str, shape: str, check: bool) -> float:
        """How long one call of a step takes, and of its library for the checker if ``check``.

        The mean of as many calls as fit into :data:`LEAST_S`, at least one.
        """
        kernel, data = self._loaded(step, shape, check)
        # As `run` does, and `check`, in which a seed must always give the same schedule.
        self._runtime.configure(
            DEFAULT_EMULATION, check=check, seed=SEED, os_threads=1 if check else 0
        )
        calls, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < LEAST_S or not calls:
            kernel(data)
            calls += 1
        if found := self._runtime.report()["findings"]:
            raise RuntimeError(f"{step} on {shape}: {len(found)} findings")
        return took / calls

    def _loaded(self, name: str, shape_name: str, check: bool) -> Any:
        key = name, shape_name, check
        if key not in self._calls:
            step = self._context.lineages.get(name)
            problem = load_problem(self._context.lineage_for(step))
            shape = resolve_shape(shape_name, problem, self._context.shapes)
            inputs = problem.make_inputs(shape, problem.input_classes[0], SEED, "cpu")
            path = self._library(f"{name} ({'emulator, checked' if check else 'emulator'})")
            runtime = self._runtime  # before the library, which finds what it calls there
            library = load_emulated(path)
            library.kb_run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
            entry = LoadedStep(library, path, runtime)
            kernel = cast(CompiledProblem, problem).bind(entry, step, "cpu")
            self._calls[key] = kernel, inputs.data
        return self._calls[key]


def main() -> None:
    """Answer requests ``[step, shape, check]`` until stdin ends."""
    bench = Bench(Path(sys.argv[1]))
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"seconds": bench.seconds(*json.loads(line))}
        except Exception as error:  # said by the parent, which goes on with the rest
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
