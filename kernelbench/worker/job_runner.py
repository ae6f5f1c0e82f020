"""The body of a worker: carry out a job and report what happens, message by message.

The messages are those of :mod:`kernelbench.worker.messages`.
"""

from __future__ import annotations

import dataclasses
import random
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kernelbench.base.errors import (
    EnvironmentProblem,
    KernelbenchError,
    ProblemError,
    describe_internal_error,
)
from kernelbench.base.seeds import derive
from kernelbench.build.compiler import CompileFailure
from kernelbench.executors.executor import Target
from kernelbench.isolation.isolated_kernel import IsolatedKernel, Submissions
from kernelbench.isolation.isolated_timing import generator_lost
from kernelbench.isolation.requests import Load
from kernelbench.isolation.sandbox import SandboxProcess
from kernelbench.kinds.callables import (
    LoadError,
    describe_exception,
    untimed_setup_of,
    with_untimed_setup,
)
from kernelbench.kinds.compiled import BUILD_LIMIT_S
from kernelbench.machine.environment import read_environment
from kernelbench.measure import ceilings_bench
from kernelbench.measure.correctness import Checker
from kernelbench.measure.injected_delay import DelayInjector
from kernelbench.measure.results import CheckResult, status_of
from kernelbench.measure.timing import abba, single_arm
from kernelbench.project.error_attribution import is_machine_fault
from kernelbench.project.problem import Case, Kernel, Problem, Work, judging
from kernelbench.project.problem_loading import load_problem
from kernelbench.records.run_record import ResultStatus
from kernelbench.worker import replays, schedules
from kernelbench.worker.jobs import (
    Arm,
    CeilingsJob,
    CheckJob,
    CompareJob,
    Job,
    ReplayJob,
    RunJob,
    Timing,
)
from kernelbench.worker.messages import (
    ArmChecked,
    ArmFailed,
    ArmName,
    CeilingsMeasured,
    ClassChecked,
    DelayInjected,
    EnvironmentRead,
    FloorRead,
    JobFailed,
    Reporter,
    ShapeBegins,
    TimingFailed,
)
from kernelbench.worker.series import ON_HOST, draw_series


def attempt(work: Callable[[], None], report: Reporter) -> None:
    """Do a worker's work and report what no step is to blame for; RuntimeError of CUDA's errors."""
    try:
        work()
    except KernelbenchError as error:
        report(JobFailed(status_of(error), str(error)))
    except Exception as error:
        if is_machine_fault(error):
            reason = describe_exception(error)
            report(JobFailed("machine", reason))
        elif isinstance(error, RuntimeError) and "CUDA error" in str(error):
            raise
        else:
            report(JobFailed("harness", describe_internal_error(error), traceback.format_exc()))


def execute_job(job: Job, report: Reporter, apart: Sequence[SandboxProcess] = ()) -> None:
    """Carry out one job.

    Args:
        apart: Where submissions have processes of their own: these, the last of which idles.
    """
    torch.set_grad_enabled(False)
    if isinstance(job, CeilingsJob):
        report.phase("ceilings", 600, "machine")
        report(CeilingsMeasured(ceilings_bench.measure(job.device_index)))
        return
    if isinstance(job, CheckJob):
        # Shapes run side by side; threads of each that wait for one another would cost more.
        torch.set_num_threads(max(1, job.os_threads))
        schedules.run_schedules(job, report)
        return
    if isinstance(job, ReplayJob):
        torch.set_num_threads(1)
        replays.run_replay(job, report)
        return
    report.phase("environment", 120, "machine")
    if job.target.gpu is not None:
        torch.cuda.set_device(job.target.device)
    environment = read_environment(job.target.device, job.target.gpu)
    report(EnvironmentRead(environment))
    submissions = [Submissions(each, apart[-1], job.target.device) for each in apart[:-1]]
    if isinstance(job, RunJob):
        _run(job, report, submissions)
    else:
        _compare(job, report, submissions)


def _run(job: RunJob, report: Reporter, apart: Sequence[Submissions]) -> None:
    problem = judging(load_problem(job.lineage), job.arm.step)
    kernel = _load(job, job.arm, problem, report, apart)
    for shape in job.shapes:
        report(ShapeBegins(shape.name))
        if isinstance(kernel, CheckResult):
            for input_class in job.classes:
                report(ClassChecked(shape.name, input_class, kernel))
            continue
        right = True
        for input_class in job.classes:
            result = _checker(job, job.arm, kernel, problem, shape, report).check(input_class)
            # Asked for each class, so that no note tells of another's calls.
            notes = job.target.executor.notes(kernel)
            if input_class == job.classes[0]:
                result = dataclasses.replace(result, notes=result.notes + notes)
            report(ClassChecked(shape.name, input_class, result))
            right = right and result.status == "pass"
            _release(job.target, kernel)
        if right and job.timing is not None and getattr(shape, "timed", True):
            try:
                case = Case(problem, shape, job.classes[0])
                series = draw_series(job, job.timing, case, report)
            except KernelbenchError as error:
                report(TimingFailed(shape.name, status_of(error), str(error)))
                continue
            if series.on_host:
                report(FloorRead(shape.name, None, f"not timed: {ON_HOST}"))
                continue
            # On a CPU each repetition is a block: reps may take seconds, and Ctrl-C keeps blocks.
            per_block = 20 if job.target.gpu is not None else 1
            if series.measure([kernel], single_arm(job.timing.reps, per_block)):
                _measure_floor(job, job.timing, series.work, shape, report)
            _release(job.target, kernel)
            if _generator_lost(job.target, kernel):
                return


def _measure_floor(job: RunJob, timing: Timing, work: Work, shape: Any, report: Reporter) -> None:
    """Read the bytes that the step must read, right after it and under its protocol."""
    if job.target.gpu is None or not work.bytes_read:
        return
    report.phase("read floor", 120, "machine")
    try:
        floor = ceilings_bench.read_floor(job.target.gpu.index, int(work.bytes_read), timing.l2)
    except (EnvironmentProblem, torch.OutOfMemoryError) as error:
        reason = " ".join(str(error).split())
        report(FloorRead(shape.name, None, f"no read floor: {reason}"))
    else:
        report(FloorRead(shape.name, floor, ""))


def _load(
    job: RunJob | CompareJob,
    arm: Arm,
    problem: Problem,
    report: Reporter,
    apart: Sequence[Submissions],
    index: int = 0,
) -> Kernel | CheckResult:
    """The callable of the arm of that index, or why there is none."""
    try:
        if arm.step.built:
            report.phase("build and load", max(job.call_limit_s, BUILD_LIMIT_S))
        else:
            report.phase("load", job.call_limit_s)
        if apart:
            request = Load(arm.step, job.lineage, job.target, job.call_limit_s)
            kernel = apart[min(index, len(apart) - 1)].load(request)
        else:
            kernel = job.target.executor.load(arm.step, problem, job.target, job.call_limit_s)
    except LoadError as error:
        return CheckResult("fault", reason=str(error))
    except KernelbenchError as error:
        return CheckResult(_status_of_load(error), reason=str(error))
    if untimed_setup_of(kernel) is not None and (arm.step.submission or not job.lineage.peers_of):
        reason = "has an untimed setup: only peers may"
        return CheckResult("fault", reason=reason)
    return kernel


def _status_of_load(error: KernelbenchError) -> ResultStatus:
    """What does not compile, or a ``step.toml`` that asks for what is not there, is the step's."""
    if isinstance(error, CompileFailure) or not isinstance(
        error, ProblemError | EnvironmentProblem
    ):
        return "fault"
    return status_of(error)


def _checker(
    job: RunJob | CompareJob,
    arm: Arm,
    kernel: Kernel,
    problem: Problem,
    shape: Any,
    report: Reporter,
) -> Checker:
    return Checker(
        with_untimed_setup(kernel),
        problem,
        shape,
        job.target.device,
        job.seed,
        report.phase,
        job.target.executor.watchdog_limit(job.call_limit_s),
        arm.step.entry,
        job.own_stream and not arm.step.submission,
        job.references if isinstance(job, RunJob) and not arm.step.submission else "",
        kernel if isinstance(kernel, IsolatedKernel) else None,
    )


def _generator_lost(where: Target, kernel: Kernel) -> bool:
    """Whether a graph capture that failed has left torch's generator behind, as if capturing.

    That of this process or of the submission's. The next shape needs random bits: the runner sees
    that shapes are left, and starts a worker.
    """
    if isinstance(kernel, IsolatedKernel) and kernel.generator_lost:
        return True
    return where.gpu is not None and generator_lost(where.device)


def _release(where: Target, *kernels: Kernel) -> None:
    """Give memory back between checks; leave if a fault has cost the CUDA context.

    Nothing works in a lost context, this one's or a submission's: the rest needs another process.
    """
    if where.gpu is None:
        return
    if any(isinstance(kernel, IsolatedKernel) and kernel.lost for kernel in kernels):
        raise SystemExit("the CUDA context of the submission's process was lost")
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    except RuntimeError:
        raise SystemExit("the CUDA context was lost") from None


def _compare(job: CompareJob, report: Reporter, apart: Sequence[Submissions]) -> None:
    problem = load_problem(job.lineage)
    rng = random.Random(derive(job.seed, "abba"))
    # Where a module is loaded changes its time a little, the same way in every process: a coin
    # decides which arm comes first, so that this, too, is noise and not a bias.
    order: list[tuple[int, ArmName, Arm]] = [(0, "base", job.base), (1, "cand", job.cand)]
    rng.shuffle(order)
    loaded: dict[int, Kernel] = {}
    for index, name, arm in order:
        kernel = _load(job, arm, problem, report, apart, index)
        if isinstance(kernel, CheckResult):
            report(ArmFailed(name, kernel.status, kernel.reason))
            return
        if job.check and not _right(job, index, name, arm, kernel, problem, report):
            return
        loaded[index] = kernel
    kernels = [loaded[0], loaded[1]]
    _release(job.target)
    both = Case(judging(problem, job.base.step, job.cand.step), job.shape, job.classes[0])
    series = draw_series(job, job.timing, both, report)
    if series.on_host:
        report(TimingFailed(job.shape.name, "skipped", ON_HOST))
        return
    if not series.call_once([loaded[index] for index, _, _ in order]):
        return
    if job.gated:
        series.prepare(kernels)
        report.prepared()
    rounds: list[float | None] = list(job.plants_us) or [None] * job.repeats
    injector = None
    if job.base.plant_us is not None:
        report.phase("calibrating the injected delay", 60, "machine")
        injector = DelayInjector(torch.device(job.target.device))
    for index, plant_us in enumerate(rounds):
        arms = kernels
        if injector is not None:
            base, cand = kernels
            arms = [injector.inject(base, 0.0), injector.inject(cand, plant_us or 0.0)]
            if plant_us:
                report(DelayInjected(injector.verify(plant_us)))
        arm_order = abba(job.blocks, job.quads, rng)
        if job.sequential:
            reps = job.blocks * job.quads * 2
            arm_order = [[0] * reps, [1] * reps]
        if not series.measure(arms, arm_order, index):
            return


def _right(
    job: CompareJob,
    index: int,
    name: ArmName,
    arm: Arm,
    kernel: Kernel,
    problem: Problem,
    report: Reporter,
) -> bool:
    """Check one arm on this worker's share of the classes; False ends the job."""
    checker = _checker(job, arm, kernel, judging(problem, arm.step), job.shape, report)
    mine, workers = job.share
    for number, input_class in enumerate(job.classes, index * len(job.classes)):
        if number % workers != mine:
            continue
        result = checker.check(input_class)
        if result.status != "pass":
            report(ArmFailed(name, result.status, f"{input_class}: {result.reason}"))
            return False
        report(ArmChecked(name, input_class, result.notes))
    return True
