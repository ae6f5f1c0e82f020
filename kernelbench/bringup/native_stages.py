"""The native stages of ``bringup``: functions of the ptx layer, and open points.

Cases run in a process of their own with a bound (:mod:`kernelbench.bringup.parity_runner`); a case
that hangs or faults costs its own line.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from kernelbench.base.errors import KernelbenchError
from kernelbench.base.observer import OnProgress
from kernelbench.base.seeds import derive
from kernelbench.bringup.bringup_record import BringupLine, StageOutcome
from kernelbench.bringup.open_points import POINTS, Point, PointTrial
from kernelbench.bringup.parity_inputs import change_cases, cluster_cases, copy_cases, thread_cases
from kernelbench.bringup.parity_products import (
    control_cases,
    memory_cases,
    pair_loads,
    products,
    wgmma_cases,
)
from kernelbench.bringup.parity_runner import (
    SOURCES,
    ParityCase,
    Ran,
    Words,
    difference,
    emulated,
    emulator_library,
    gpu_library,
    on_gpu,
)
from kernelbench.emulator.settings import Rounding

#: What the tensor cores do to sums, as far as it is modelled.
ROUNDING: Rounding = "hardware"

_FUNCTION = re.compile(r"\bptx::(\w+)(?:<[^<>()]*>)?\(")
_DEFINES = re.compile(r"^(?:.*?PARITY_CASE\((\w+)\)|struct (\w+)|[^(]*?(\w+)\()", re.S)
_ATTRIBUTE = re.compile(r"KB_LAUNCH_BOUNDS\([^)]*\)|KB_DEVICE|KB_GLOBAL")

#: The gravest first.
_GRAVITY: tuple[StageOutcome, ...] = ("DIFFERS", "TIMED OUT", "FAILED", "NOT RUN", "PASS")
_BUILDS_AT_ONCE = 8


@dataclass(frozen=True)
class Suite:
    """Cases of one source."""

    name: str
    stem: str
    backends: tuple[str, ...]  #: Those that run it natively.
    cases: Callable[[np.random.Generator], dict[str, ParityCase]]  #: Makes the cases, by name.

    def works(self, seed: int) -> dict[str, ParityCase]:
        """The cases with inputs of one seed."""
        return self.cases(np.random.default_rng([seed, *self.name.encode()]))


def _exact_products(rng: np.random.Generator) -> dict[str, ParityCase]:
    return {name: product.work() for name, product in products(rng).items()}


_BOTH = ("sm90a", "sm100a")
SUITES = (
    Suite("threads", "parity_threads", _BOTH, thread_cases),
    Suite("copies", "parity_tma", _BOTH, copy_cases),
    Suite("maps", "parity_tma", _BOTH, change_cases),
    Suite("clusters", "parity_clusters", _BOTH, cluster_cases),
    Suite("e4m3", "parity_wgmma", ("sm90a",), lambda rng: wgmma_cases(rng, "e4m3")),
    Suite("f16", "parity_wgmma", ("sm90a",), lambda rng: wgmma_cases(rng, "f16")),
    Suite("tensor-memory", "parity_tensor", ("sm100a",), memory_cases),
    Suite("products", "parity_tensor", ("sm100a",), _exact_products),
    Suite("control", "parity_control", ("sm100a",), control_cases),
    Suite("pair-loads", "parity_control", ("sm100a",), pair_loads),
)


def functions_of(stem: str, case: str) -> frozenset[str]:
    """The functions of the ptx layer that a case calls, by its source.

    A case that a macro defines is taken to call all of its source's.
    """
    blocks = _blocks(stem)
    if case not in blocks:
        return frozenset(_FUNCTION.findall("".join(blocks.values())))
    seen: set[str] = set()
    left = [case]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += [word for word in re.findall(r"\w+", blocks[name]) if word in blocks]
    return frozenset(name for block in seen for name in _FUNCTION.findall(blocks[block]))


@functools.cache
def _blocks(stem: str) -> dict[str, str]:
    """The definitions at the top of a source and of the headers beside it, by name."""
    source = (SOURCES / f"{stem}.cu").read_text(encoding="utf-8")
    named = (SOURCES / name for name in re.findall(r'^#include "(\w+\.cuh)"', source, re.M))
    headers = (each for each in named if each.is_file() and each.name != "parity.cuh")
    found: dict[str, str] = {}
    for text in (source, *(header.read_text(encoding="utf-8") for header in headers)):
        # clang-format closes what stands at the top in the first column, and nothing else.
        for block in re.split(r"^};?\n", text, flags=re.M):
            code = re.sub(r"//.*|^(?:#|using |inline constexpr ).*", "", block, flags=re.M)
            match = _DEFINES.match(_ATTRIBUTE.sub("", code))
            if match is not None:
                name = next(filter(None, match.groups()))
                found[name] = found.get(name, "") + code
    return found


def _worst(name: str, cases: Sequence[tuple[StageOutcome, str]]) -> BringupLine:
    """The line of a function, of its cases with their outcomes and details."""
    worst = min((outcome for outcome, _ in cases), key=_GRAVITY.index)
    details = [detail for outcome, detail in cases if outcome == worst]
    count = f"{len(details)} of {len(cases)} cases"
    return BringupLine(name, worst, f"{count}; {details[0]}" if worst != "PASS" else count)


def build_all(backend: str, progress: OnProgress) -> None:
    """Build every native source for the GPU and for the emulator, several at once.

    What cannot be built fails again, with its reason, where it is needed.
    """
    stems = dict.fromkeys(
        [suite.stem for suite in SUITES if backend in suite.backends]
        + [point.stem for point in POINTS if point.trials and backend in point.backends]
    )
    progress(f"building {len(stems)} sources for the GPU and for the emulator")

    def build(make: Callable[[], object]) -> None:
        with contextlib.suppress(KernelbenchError):
            make()

    with ThreadPoolExecutor(min(_BUILDS_AT_ONCE, os.cpu_count() or 1)) as pool:
        jobs = [lambda stem=stem: gpu_library(stem, backend) for stem in stems]
        jobs += [lambda stem=stem: emulator_library(stem) for stem in stems]
        list(pool.map(build, jobs))


def functions(
    backend: str, seeds: Sequence[int], limit_s: float, progress: OnProgress
) -> Iterator[BringupLine]:
    """A line for each function of the ptx layer that a case calls: its worst case.

    Those that the backend does not have natively are NOT AVAILABLE. On Ctrl-C the lines are of the
    cases that ended, and the interrupt is raised again behind them.
    """
    seen: dict[str, list[tuple[StageOutcome, str]]] = {}
    elsewhere: set[str] = set()
    interrupted = False
    try:
        for suite in SUITES:
            if backend not in suite.backends:
                for work in suite.works(0).values():
                    elsewhere |= functions_of(suite.stem, work.case)
                continue
            for seed in seeds:
                progress(f"{suite.name}: {len(suite.works(seed))} cases on the GPU and emulated")
                for key, case, outcome, detail in _cases(suite, backend, seed, limit_s):
                    for name in functions_of(suite.stem, case):
                        case_of = (outcome, f"{suite.name} {key}: {detail}")
                        seen.setdefault(name, []).append(case_of)
    except KeyboardInterrupt:
        interrupted = True
    for name in sorted(seen):
        yield _worst(name, seen[name])
    for name in sorted(elsewhere - seen.keys()):
        yield BringupLine(name, "NOT AVAILABLE", f"not a function of {backend}")
    if interrupted:
        raise KeyboardInterrupt


def _cases(
    suite: Suite, backend: str, seed: int, limit_s: float
) -> Iterator[tuple[str, str, StageOutcome, str]]:
    """Each case: its name, what it runs, how it ended, and how it differs."""
    works = suite.works(seed)
    try:
        wanted = emulated(suite.stem, works, ROUNDING, limit_s=limit_s)
        ran = on_gpu(suite.stem, backend, works, limit_s=limit_s)
    except KernelbenchError as error:
        for key, work in works.items():
            yield key, work.case, "NOT RUN", str(error)
        return
    for key, work in works.items():
        yield key, work.case, *_judged(ran[key], wanted[key])


def _judged(ran: Ran, wanted: Words) -> tuple[StageOutcome, str]:
    what = difference(ran, wanted)
    if not what:
        return "PASS", ""
    if ran.out is not None:
        return "DIFFERS", what
    if not ran.started:
        return "NOT RUN", what
    return "TIMED OUT" if ran.timed_out else "FAILED", what


def points(
    backend: str, seed: int, limit_s: float, progress: OnProgress, *, planted: bool = False
) -> Iterator[BringupLine]:
    """A line for each open point: CONFIRMED, REFUTED, TIMED OUT, or NOT RUN with the reason.

    Args:
        planted: Whether to run what has been confirmed once more, with a fault planted where there
            is such a variant: a probe that does not see it confirms nothing.
    """
    for point in POINTS:
        progress(f"open point {point.name}")
        outcome, detail = _settle(point, backend, seed, limit_s, planted)
        yield BringupLine(
            point.name, outcome, f"{point.statement}: {detail}" if detail else point.statement
        )


def _settle(
    point: Point, backend: str, seed: int, limit_s: float, planted: bool
) -> tuple[StageOutcome, str]:
    if point.trials is None:
        return "NOT RUN", point.why_not
    if backend not in point.backends:
        return "NOT RUN", f"needs {' or '.join(point.backends)}"
    trials = point.trials(np.random.default_rng(derive(seed, point.name)))
    outcome, detail = _tried(point, trials, backend, limit_s)
    faulty = point.with_faults(trials)
    if outcome != "CONFIRMED" or not planted or not faulty:
        return outcome, detail
    control, said = _tried(point, faulty, backend, limit_s)
    if control == "REFUTED":
        return "CONFIRMED", f"with a fault planted refuted: {said}"
    return "NOT RUN", f"the probe proves nothing: with a fault planted {control} {said}".rstrip()


def _tried(
    point: Point, trials: Mapping[str, PointTrial], backend: str, limit_s: float
) -> tuple[StageOutcome, str]:
    works = {key: trial.work for key, trial in trials.items()}
    try:
        ran = on_gpu(point.stem, backend, works, limit_s=limit_s)
        wanted = _wanted(point, trials, ran, limit_s)
    except KernelbenchError as error:
        return "NOT RUN", str(error)
    refuted = {
        key: what
        for key, words in wanted.items()
        if (what := difference(ran[key], words, any_nan=point.any_nan))
    }
    if refuted:
        key, what = next(iter(refuted.items()))
        return "REFUTED", f"{len(refuted)} of {len(trials)} cases; {key}: {what}"
    broken = {key: found for key, found in ran.items() if found.out is None}
    if broken:
        key, first = next(iter(broken.items()))
        outcome: StageOutcome = "TIMED OUT" if first.timed_out else "NOT RUN"
        return outcome, f"{len(broken)} of {len(trials)} cases failed; {key}: {first.error}"
    return "CONFIRMED", ""


def _wanted(
    point: Point, trials: Mapping[str, PointTrial], ran: Mapping[str, Ran], limit_s: float
) -> dict[str, Words]:
    """What each case that has left something should have left."""
    works = {key: trial.work for key, trial in trials.items() if trial.wanted is None}
    found = emulated(point.stem, works, ROUNDING, limit_s=limit_s) if works else {}
    for key, trial in trials.items():
        if callable(trial.wanted):
            out = ran[key].out
            if out is not None:
                found[key] = trial.wanted(out)
        elif trial.wanted is not None:
            found[key] = trial.wanted
    return {key: words for key, words in found.items() if ran[key].out is not None}
