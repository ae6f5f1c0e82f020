"""One mutant's trial: build it, run it under schedules until something is found, judge what was.

Runs in a process of its own, forked from one that has torch, the emulator's runtime, the inputs and
the references in memory; what it returns is plain data.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cases import Case, schedules
from mutant import FAILED, FILES, UNWRITTEN, WRONG, Expectation, Mutant, files_of, kernels_of
from objects import of_finding, plain_name

from kernelbench.base.seeds import derive
from kernelbench.build import compiler
from kernelbench.emulator import findings
from kernelbench.emulator.findings import EmulatorReport
from kernelbench.emulator.runtime import Runtime
from kernelbench.emulator.settings import Emulation
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.project.model import Step


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant; None of it depends on the mutant's expectation.

    Attributes:
        status: ``finding``, ``wrong`` (outputs), ``failed`` (the call, without a finding),
            ``not found``, ``refused`` (by the compiler), ``stuck`` (the watchdog ended it) or
            ``died`` (the process ended by a signal).
        kind: The first finding's class, :data:`~mutant.WRONG` or :data:`~mutant.FAILED`.
        objects: What the first finding names; in a hang, every barrier that lacks something.
        headline: What the report's first line names; in a hang, one barrier of ``objects``.
        roles: The functions of the first finding's two places.
        others: Classes of further findings of the same run.
    """

    status: str
    kind: str = ""
    objects: tuple[str, ...] = ()
    headline: str = ""
    roles: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    text: str = ""
    case: str = ""
    runs: int = 0
    build_s: float = 0.0
    run_s: float = 0.0


def write_step(step: Step, folder: Path, mutant: Mutant | None) -> Step:
    """A step's files in another folder, mutated."""
    folder.mkdir(parents=True)
    files = files_of(step.path)
    for name in (*kernels_of(step.path), FILES[1]):
        shutil.copy(files[name], folder)
    if mutant is not None:
        for file in including(step.lineage_path / "common", mutant.file):
            shutil.copy(file, folder)
        # A building block too: the step's own folder is searched first.
        (folder / mutant.file).write_text(mutant.text, encoding="utf-8")
    return dataclasses.replace(step, path=folder, base=None, entry=folder / "launch.cu")


def including(common: Path, name: str) -> set[Path]:
    """The building blocks that include one, themselves or through others.

    A file looks beside itself first: these must stand beside a mutated one to take it.
    """
    direct = {file for file in common.glob("*.cuh") if f'#include "{name}"' in file.read_text()}
    return direct.union(*(including(common, file.name) for file in direct))


def attempt(
    step: Step, given: Sequence[Case], rounds: int, limit_s: float, built: Any = None
) -> Outcome:
    """Build a step and run it until something is found.

    Args:
        step: Where the mutated files are.
        given: Inputs.
        rounds: How many schedules of each case, at most.
        limit_s: How long, at most, after the build.
        built: Called when the build has ended.
    """
    began = time.monotonic()
    # The build is of use to nobody else.
    os.environ[compiler.CACHE_VARIABLE] = str(step.path / "cache")
    try:
        entry = EMULATOR.open(step, check=True)
    except compiler.CompileFailure as error:
        return Outcome("refused", text=str(error), build_s=time.monotonic() - began)
    assert entry.emulation is not None
    kernel = compiled.bind_problem(given[0].problem, entry, step, "cpu")
    symbols = compiled.symbols_of(step)
    constants = entry.describe()
    build_s = time.monotonic() - began
    if built is not None:
        built()
    began = time.monotonic()
    runs = 0
    outcome = Outcome("not found")
    for case, sms, seed in schedules(given, rounds):
        if time.monotonic() - began > limit_s:
            break
        runs += 1
        report, failed, wrong = _run(kernel, entry.emulation, symbols, case, sms, seed)
        if report.findings:
            outcome = _found(report, constants)
        elif failed:
            outcome = Outcome("failed", FAILED, text=failed)
        elif wrong:
            outcome = Outcome("wrong", WRONG, text=wrong)
        if outcome.status != "not found":
            label = f"{case.name}, {sms} SMs, seed {seed}"
            outcome = dataclasses.replace(outcome, case=label)
            break
    return dataclasses.replace(outcome, runs=runs, build_s=build_s, run_s=time.monotonic() - began)


def _run(
    kernel: Any, runtime: Runtime, symbols: Any, case: Case, sms: int, seed: int
) -> tuple[EmulatorReport, str, str]:
    """What the checker found, why the call failed, and what is wrong with the outputs."""
    inputs = case.inputs
    poison = inputs.arena.draw_poison(derive(seed, "mutations", case.name))
    inputs.arena.fill(poison)
    runtime.configure(
        Emulation(sms=sms), check=True, seed=derive(seed, case.name, sms), os_threads=1
    )
    failed = wrong = ""
    try:
        outputs = case.problem.outputs_of(kernel(inputs.data), inputs)
        verdict = case.problem.compare(outputs, case.reference, case.shape, case.input_class)
        wrong = verdict.reason
        if not inputs.arena.guards_intact(poison):
            wrong = wrong or "wrote outside its outputs"
        for operand, original in zip(inputs.operands, case.pristine.operands, strict=True):
            same = torch.equal(operand.view(torch.uint8), original.view(torch.uint8))
            wrong = wrong or ("" if same else "overwrote its inputs")
    except (KernelFault, NotImplementedError) as error:
        failed = str(error)
    return findings.resolve_report(runtime.report(), symbols), failed, wrong


def _found(report: EmulatorReport, constants: dict[str, int]) -> Outcome:
    first = report.findings[0]
    objects = [of_finding(first, constants)]
    headline = objects[0]
    if first.kind == "hang":
        objects = [plain_name(wait.what) for wait in report.waits if wait.needs]
        named = re.search(r" waits for ([^,;(]+)", report.headline())
        headline = plain_name(named[1]) if named else ""
    roles = [first.access.role, first.other.role if first.other else ""]
    return Outcome(
        "finding",
        first.kind,
        tuple(sorted({name for name in objects if name})),
        headline,
        tuple(sorted({role for role in roles if role})),
        tuple(sorted({finding.kind for finding in report.findings[1:]} - {first.kind})),
        report.headline(),
    )


def judge(mutant: Mutant, outcome: Outcome) -> tuple[bool, bool, bool]:
    """Whether it was found, with the right class, and with the right class and object."""
    found = outcome.status in ("finding", "wrong", "failed")
    expected: Expectation = mutant.expect
    if outcome.kind == UNWRITTEN and WRONG in expected.kinds:
        return found, True, True  # it says where the wrong result comes from
    if not found or outcome.kind not in expected.kinds:
        return found, False, False
    if outcome.kind in (WRONG, FAILED):
        return found, True, True
    if outcome.objects:
        return found, True, bool(set(outcome.objects) & expected.objects)
    roles = expected.roles or {mutant.function}
    return found, True, bool(set(outcome.roles) & roles)
