"""``kernelbench.ab``: is the candidate really faster?"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Unpack, get_args

from kernelbench.base.errors import KernelbenchError, UsageError, ended_early
from kernelbench.base.observer import Observer
from kernelbench.compare.comparer import ArmFailure, Comparer, VerdictRules, identical
from kernelbench.compare.comparison import Comparison, NotTimed, append_to_ledger, judge
from kernelbench.compare.session_plan import plan_sessions
from kernelbench.compare.session_samples import SessionSamples
from kernelbench.machine.arch import arch_named
from kernelbench.machine.environment import cpu_name
from kernelbench.project.context import parse_results
from kernelbench.project.registry import require_runnable
from kernelbench.records.metrics import METRICS, TIMES, Metric, is_time
from kernelbench.records.run_record import Environment
from kernelbench.runs.plan import plan, resolve_context
from kernelbench.runs.runner import Runner, StepRun, warnings_of
from kernelbench.runs.settings import (
    Measuring,
    MeasuringOptions,
    Names,
    at_least,
    call_text,
    names_of,
    one_of,
    require_results,
)
from kernelbench.stats.defaults import ALPHA, MARGIN, SESSIONS
from kernelbench.worker.launcher import Launcher


def ab(
    base: str | Path,
    cand: str | Path,
    shapes: Names | None = None,
    *,
    sessions: int | None = None,
    metric: Metric = "device",
    alpha: float = ALPHA,
    margin: float = MARGIN,
    power: float | None = None,
    detect: float | None = None,
    batch: int = 1,
    inputs: str | None = None,
    executor: str = "auto",
    task: str | Path | None = None,
    check: bool = False,
    why: str = "",
    save: bool = False,
    results: str | Path | None = None,
    command: str | None = None,
    observer: Observer | None = None,
    **measuring: Unpack[MeasuringOptions],
) -> Comparison:
    """Say whether ``cand`` is really faster or slower than ``base``.

    Both run interleaved in randomized ABBA quads; the verdict comes from paired block differences,
    corrected for the number of comparisons. Naming one step twice times it against itself. Both
    are checked before they are timed; where they cannot be timed, nothing runs.

    Args:
        base: A step's name, its folder, or a Python file with ``custom_kernel(data)``.
        cand: Likewise, the candidate.
        shapes: By name or ad hoc; the problem's benchmark shapes if None.
        sessions: Fresh processes per shape, 3 if None; 5 for figures to publish.
        metric: What decides. On a GPU both times are taken, or device time beside another metric.
        alpha: Level of the tests.
        margin: Change below which nobody cares, as a fraction.
        power: In place of ``sessions``: as many as call a slowdown of ``detect`` SLOWER with this
            probability, by this device's calibration.
        detect: The slowdown, a fraction; twice the margin if None.
        batch: Device replays per event pair, for kernels of a few microseconds.
        inputs: Input class to check and time; if None all are checked and the first is timed.
        executor: What runs them; ``auto`` picks the best that this machine has.
        task: Folder of a GPU MODE task in place of the project's problems.
        check: Whether both are checked also where they cannot be timed.
        why: The hypothesis, kept in the ledger.
        save: Whether to add the comparison to the ledger.
        results: Folder of the ledger and of this device's calibration; the project's if None.
        command: What the ledger says made it; the Python call if None.
        observer: Told what happens.
        measuring: The fields of :class:`~kernelbench.runs.settings.Measuring`: ``reps``, ``l2``,
            ``device``, ``seed``, ``timeout_s``, ``budget_s``.

    Raises:
        UsageError: For what does not exist or is out of range.
        NotTimed: If the times of the two would stand for no device here.
        ArmFailure: If one of them is wrong, hangs, faults, or is faster than its device allows.
        EnvironmentProblem: For what this machine lacks, and if the ledger cannot be written.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the comparison of the shapes
            before it, which is saved, too.
    """
    observer = observer or Observer()
    _require_ranges(sessions, metric, alpha, margin, batch)
    _require_power(power, detect, sessions)
    base, cand = str(base), str(cand)
    context, settings = resolve_context(task, measuring)
    folder = parse_results(results, context.project)
    for spec in (base, cand):
        require_runnable(context.lineages.select_one(spec, "ab compares one step with one step"))
    plans = plan(
        context, [base, cand], names_of(shapes), executor, names_of(inputs), settings.device,
        warn=observer.warning,
    )  # fmt: skip
    found = _planned(plans[0], plans[-1], settings, metric, batch, sessions or SESSIONS, why)
    if found.same_code and base != cand:
        return replace(found, not_timed="")
    if found.not_timed:
        raise NotTimed(_checked(found, plans, settings, observer) if check else found)
    if save:
        require_results(folder)
    rules = VerdictRules(folder, found.timing, alpha, margin, found.seed)
    if power is not None:
        found = _with_power(found, plans[0], rules, power, detect, observer)
    with contextlib.ExitStack() as ending:  # the sessions' processes end beside the verdict
        environment, everything, failure = _collect(found, plans, settings, observer, ending)
        found = replace(found, device=environment.device, complete=failure is None)
        found = replace(found, lines=judge(everything, replace(rules, device=found.device)))
        found = _saved(folder, found, command or call_text("ab", base, cand)) if save else found
    if failure is not None:
        raise ended_early(failure, found)
    return found


def _require_ranges(
    sessions: int | None, metric: Metric, alpha: float, margin: float, batch: int
) -> None:
    if sessions is not None:
        at_least("sessions", sessions, 1)
    at_least("batch", batch, 1)
    one_of("metric", metric, get_args(Metric))
    if not 0 < alpha < 0.5:
        raise UsageError(f"alpha is {alpha}: expected a number between 0 and 0.5")
    if not 0 <= margin < 1:
        raise UsageError(f"margin is {margin}: expected a fraction from 0 to 1")


def _require_power(power: float | None, detect: float | None, sessions: int | None) -> None:
    if power is None:
        if detect is not None:
            raise UsageError("detect is what a power is of", "say power, too (--power 95%)")
        return
    if sessions is not None:
        raise UsageError(
            "sessions and power are two ways to say one thing", "leave one of them out"
        )
    if not 0 < power < 1:
        raise UsageError(f"power is {power}: expected a number between 0 and 1")
    if detect is not None and not 0 < detect < 1:
        raise UsageError(f"detect is {detect}: expected a fraction between 0 and 1")


def _with_power(
    found: Comparison,
    first: StepRun,
    rules: VerdictRules,
    power: float,
    detect: float | None,
    observer: Observer,
) -> Comparison:
    """The comparison with as many sessions as the power takes."""
    detect = 2 * rules.margin if detect is None else detect
    rules = replace(rules, device=first.target.gpu.name if first.target.gpu else cpu_name())
    planned = plan_sessions(rules, found.shapes, found.metric, power=power, detect=detect)
    observer.planned(planned)
    return replace(found, sessions=planned.sessions, plan=planned)


def _planned(
    first: StepRun,
    second: StepRun,
    settings: Measuring,
    metric: Metric,
    batch: int,
    sessions: int,
    why: str,
) -> Comparison:
    """The comparison before anything is measured."""
    if first.problem.name != second.problem.name:
        raise UsageError(
            f"{first.step.name} and {second.step.name} solve different problems "
            f"({first.problem.name}, {second.problem.name})"
        )
    on_gpu = first.target.gpu is not None and second.target.gpu is not None
    # Times in any case: what they cost tells what another metric means.
    metrics = TIMES if is_time(metric) else ("device", metric)
    metrics = metrics if on_gpu else ("call",)
    same_code = identical(first.step, second.step)
    not_timed, settled_by = _cannot_time(first, second, metric)
    return Comparison(
        first.step,
        second.step,
        metric,
        settings.timing(*metrics, batch=batch),
        settings.seed,
        sessions,
        tuple(shape.name for shape in first.shapes),
        why,
        same_code=same_code,
        not_timed=not_timed,
        settled_by=settled_by,
    )


def _cannot_time(first: StepRun, second: StepRun, metric: Metric) -> tuple[str, str]:
    """Why the deciding metric cannot be measured for both arms here, and what to do about it.

    Both are empty if it can be measured.
    """
    for step_plan in (first, second):
        if not step_plan.target.timed:
            arch = step_plan.step.arch
            executor = step_plan.target.executor.name
            why = f"runs on the {executor} here, whose times stand for no device"
            known = arch_named(arch)
            gpu = f"a GPU for {arch}" if arch not in ("", "any") else "an NVIDIA GPU"
            gpu = known.gpus if known else gpu
            return f"{step_plan.step.name} {why}", f"run it on {gpu}"
    if first.target != second.target:
        return (
            f"the steps run on different devices ({first.target.device}, {second.target.device})",
            "name an --executor that runs both",
        )
    if first.target.gpu is None and metric != "call":
        return (
            f"{METRICS[metric].title} needs a GPU",
            "--metric call compares wall-clock times on this CPU",
        )
    return "", ""


def _checked(
    found: Comparison, plans: Sequence[StepRun], settings: Measuring, observer: Observer
) -> Comparison:
    """With the check of both arms, which may be one step."""
    plans = plans[:1] if plans[0].step is plans[-1].step else plans
    with Launcher() as launcher:
        runner = Runner(
            launcher, seed=settings.seed, timing=None, call_limit_s=settings.timeout_s,
            on_progress=observer.progress,
        )  # fmt: skip
        rows = [row for step_plan in plans for row in runner.run(step_plan)]
    return replace(found, checks=tuple(rows))


def _collect(
    found: Comparison,
    plans: Sequence[StepRun],
    settings: Measuring,
    observer: Observer,
    ending: contextlib.ExitStack,
) -> tuple[Environment, list[SessionSamples], BaseException | None]:
    """Measure shape by shape; after a failure, the shapes that every metric has samples of.

    ``ending`` waits for the processes' ends.

    Raises:
        KernelbenchError, Interrupted: If there is nothing to keep.
    """
    skipped = {arm.step.name: arm.skip for arm in plans}
    for step, reasons in skipped.items():
        for shape, reason in reasons.items():
            observer.warning(f"{step} cannot run {shape}: {reason}")
    everything: list[SessionSamples] = []
    failure: BaseException | None = None
    first = plans[0]
    launcher = ending.enter_context(Launcher())
    launcher.begin()
    comparer = ending.enter_context(Comparer(
        launcher, found.base, found.cand, first.lineage, first.target, first.classes,
        found.timing, found.seed, settings.timeout_s, observer.progress,
    ))  # fmt: skip
    try:
        for shape in first.shapes:
            if any(shape.name in reasons for reasons in skipped.values()):
                continue
            everything.append(SessionSamples(shape))
            comparer.collect(everything[-1], found.sessions)
            observer.row(everything[-1])
    except ArmFailure as error:
        everything, failure = everything[:-1], error
    except (KernelbenchError, KeyboardInterrupt) as error:
        metrics = set(found.timing.metrics)
        everything = [c for c in everything if metrics <= c.sessions.keys()]
        failure = error
    if comparer.environment is None or not everything:
        nothing = UsageError("no shape is left that both steps can run")
        raise ended_early(failure or nothing, None)
    for warning in warnings_of(comparer.environment):
        observer.warning(warning)
    return comparer.environment, everything, failure


def _saved(folder: Path, found: Comparison, command: str) -> Comparison:
    try:
        identifier = append_to_ledger(folder, found, command)
    except (KernelbenchError, KeyboardInterrupt) as error:
        raise ended_early(error, found) from error
    return replace(found, ledger_id=identifier)
