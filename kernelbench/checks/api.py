"""``kernelbench.check``: look for hangs, races and misused barriers on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base import seeds
from kernelbench.base.callbacks import OnProgress, OnWarning
from kernelbench.base.errors import KernelbenchError, UsageError, ended_early
from kernelbench.checks import allowances, store
from kernelbench.checks.checker import ScheduleChecker
from kernelbench.checks.report import CHECK_SCHEMA, CheckReport
from kernelbench.checks.rows import CheckRequest, CheckRow, StepCheck
from kernelbench.emulator.settings import (
    DEFAULT_EMULATION,
    MAX_SMS,
    ROUNDINGS,
    Emulation,
    Rounding,
)
from kernelbench.machine.environment import cpu_name
from kernelbench.machine.toolchain import cpu_count
from kernelbench.project.context import Context, parse_results
from kernelbench.records import run_record
from kernelbench.runs.api import warn_in_python
from kernelbench.runs.plan import plan_check
from kernelbench.runs.runner import StepRun
from kernelbench.runs.settings import (
    MEASURING,
    Names,
    at_least,
    call_text,
    names_of,
    one_of,
    require_results,
    step_names,
)

#: The defaults, of the command line too.
SCHEDULES = 100
#: One cluster or several of each size that steps have, with several tiles each; and a B200's.
SMS = (1, 2, 3, 4, 10, 148)
#: Seconds for a step, its build included, if nobody says how many schedules it shall be: with the
#: start of the command it takes a minute.
BUDGET_S = 55.0
MAX_FINDINGS = 20


@dataclass(frozen=True)
class CheckPlan:
    """What a check is about to do."""

    steps: tuple[StepRun, ...]
    request: CheckRequest


def check(
    steps: Names,
    shapes: Names | None = None,
    *,
    schedules: int | None = None,
    budget_s: float | None = None,
    sms: Sequence[int] = SMS,
    inputs: Names | None = None,
    sequence: bool = True,
    seed: int | None = None,
    jobs: int | None = None,
    max_findings: int = MAX_FINDINGS,
    strict: bool = False,
    allow: Mapping[str, str] | None = None,
    timeout_s: float = MEASURING.timeout_s,
    mma_rounding: Rounding = DEFAULT_EMULATION.mma_rounding,
    save: bool = False,
    results: str | Path | None = None,
    command: str | None = None,
    on_plan: Callable[[CheckPlan], None] | None = None,
    on_progress: OnProgress | None = None,
    on_row: Callable[[CheckRow], None] | None = None,
    on_saved: Callable[[Path], None] | None = None,
    on_warning: OnWarning = warn_in_python,
) -> CheckReport:
    """Run compiled steps on the CPU under many seeded schedules, and compare every result's bits.

    A shape ends at the first wrong result or finding that ends a launch. What is not right is in
    :attr:`CheckReport.failures`.

    Args:
        steps: A step's name, a range, a lineage's name or a step's folder; or several.
        shapes: By name or ad hoc; a few small ones of the problem's choice if None.
        schedules: For each shape, input class and number of SMs; at most 100 if None.
        budget_s: Seconds for each step, about, 0 for no limit: every shape and number of SMs is
            tried once, then again in rounds until the time is over. If None: 55 where ``schedules``
            is None, else no limit.
        sms: Numbers of SMs to emulate.
        inputs: Input classes; the problem's first if None.
        sequence: Whether to make calls in sequence, too, in which values, addresses and shapes
            change from one to the next.
        seed: Of inputs and schedules; drawn anew if None.
        jobs: Shapes to check at the same time; one per core if None.
        max_findings: Different findings to keep per launch.
        strict: Whether a step that rests on an assumption of the emulator is not right.
        allow: Reasons by identity, for findings that may be there; ``step.toml`` may have more.
        timeout_s: Seconds after which one schedule counts as hung.
        mma_rounding: How the sums of an MMA are rounded.
        save: Whether to keep the report in ``results`` (the project's, if None).
        command: What the report says made it; the Python call if None.
        on_plan, on_progress: Told what will run, and what is going on.
        on_row: Told of each shape when its step is done; on_saved: where the record is.
        on_warning: Told what a user must know (a Python warning).

    Raises:
        UsageError: For what does not exist, cannot be checked or is out of range.
        EnvironmentProblem: For what this machine lacks.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the report up to there.
    """
    if budget_s is None:
        budget_s = BUDGET_S if schedules is None else 0.0
    at_least("budget_s", budget_s, 0)
    schedules = SCHEDULES if schedules is None else schedules
    asked = _request(tuple(sms), schedules, seed, timeout_s, max_findings, jobs)
    allow = dict(allow or {})
    allowances.require_allowances(allow)
    asked = replace(asked, sequence=sequence, budget_s=budget_s, strict=strict, allow=allow)
    one_of("mma_rounding", mma_rounding, ROUNDINGS)
    steps, shapes = step_names(steps), names_of(shapes)
    emulation = Emulation(mma_rounding=mma_rounding)
    context = Context.find()
    folder = parse_results(results, context.project)
    if save:
        require_results(folder, "choose another with --results, or give --no-save")
    runs = plan_check(context, steps, shapes, names_of(inputs), emulation, warn=on_warning)
    if on_plan is not None:
        on_plan(CheckPlan(tuple(runs), asked))
    report = make_report(
        [(run, asked) for run in runs], asked, mma_rounding,
        command or call_text("check", *steps, *shapes), on_progress, on_row,
    )  # fmt: skip
    if save:
        _save(folder, report, on_saved)
    return report


def make_report(
    planned: Sequence[tuple[StepRun, CheckRequest]],
    asked: CheckRequest,
    mma_rounding: Rounding,
    command: str,
    on_progress: OnProgress | None,
    on_row: Callable[[CheckRow], None] | None,
) -> CheckReport:
    """Check steps, each as is asked of it.

    Args:
        asked: What the report says was asked of all.

    Raises:
        KernelbenchError: What ended it early; its ``partial`` is the report up to there.
        Interrupted: After Ctrl-C, likewise.
    """
    done, failure = _check_all(planned, on_progress, on_row)
    report = CheckReport(
        schema=CHECK_SCHEMA,
        id=run_record.new_id(),
        device=cpu_name(),
        created=run_record.now_iso(),
        command=command,
        seed=asked.seed,
        sms=asked.sms,
        inputs=planned[0][0].classes,
        mma_rounding=mma_rounding,
        request=asked,
        complete=failure is None,
        steps=done,
        unmatched=allowances.unmatched(asked.allow, [row for step in done for row in step.rows]),
    )
    if failure is not None:
        raise ended_early(failure, report)
    return report


def _check_all(
    planned: Sequence[tuple[StepRun, CheckRequest]],
    on_progress: OnProgress | None,
    on_row: Callable[[CheckRow], None] | None,
) -> tuple[tuple[StepCheck, ...], BaseException | None]:
    """The steps that were checked, and what ended it early."""
    done: list[StepCheck] = []
    failure: BaseException | None = None
    checker = ScheduleChecker(planned[0][1].jobs, on_progress or (lambda _text: None))
    try:
        with contextlib.closing(checker.run(planned)) as found:
            for step in found:
                done.append(step)
                if on_row is not None:
                    for row in step.rows:
                        on_row(row)
    except (KernelbenchError, KeyboardInterrupt) as error:
        failure = error
    return tuple(done), KeyboardInterrupt() if checker.interrupted else failure


def _save(folder: Path, report: CheckReport, on_saved: Callable[[Path], None] | None) -> None:
    try:
        path = store.save_check(folder, report)
    except KernelbenchError as error:
        raise ended_early(error, report) from error
    if on_saved is not None:
        on_saved(path)


def _request(
    sms: tuple[int, ...],
    schedules: int,
    seed: int | None,
    timeout_s: float,
    max_findings: int,
    jobs: int | None,
) -> CheckRequest:
    at_least("schedules", schedules, 1)
    at_least("max_findings", max_findings, 1)
    at_least("timeout_s", timeout_s, 0.1)
    at_least("jobs", jobs if jobs is not None else 1, 1)
    at_least("seed", seed or 0, 0)
    if not sms or not all(1 <= number <= MAX_SMS for number in sms):
        raise UsageError(f"sms is {sms}: expected numbers from 1 to {MAX_SMS}")
    return CheckRequest(
        tuple(dict.fromkeys(sms)),
        schedules,
        seeds.new_seed() if seed is None else seed,
        timeout_s,
        max_findings,
        cpu_count() if jobs is None else jobs,
    )
