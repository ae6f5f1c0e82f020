"""``kernelbench.check``: look for hangs, races and misused barriers on the CPU."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelbench.base import seeds
from kernelbench.base.errors import KernelbenchError, UsageError, ended_early
from kernelbench.base.observer import Observer
from kernelbench.checks import allowances
from kernelbench.checks.checker import ScheduleChecker
from kernelbench.checks.file_kinds import files_of_tests, is_file_to_check
from kernelbench.checks.report import CheckReport, report_of, save_check
from kernelbench.checks.rows import CheckRequest, FileOptions, StepCheck
from kernelbench.emulator.settings import DEFAULT_EMULATION, MAX_SMS, ROUNDINGS, Emulation, Rounding
from kernelbench.machine.toolchain import cpu_count
from kernelbench.project.context import Context, parse_results
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
#: Of a file: schedules of each launch, and the SMs of the GPU, for which a script asks once.
FILE_SCHEDULES, FILE_SMS = 20, (4,)
_ROUNDING = DEFAULT_EMULATION.mma_rounding
MOST_GPUS = 64  # as the runtime of cuda_runtime/ has bits for
_ONE_GPU = re.compile(r"\.(py|ptx)$")


@dataclass(frozen=True)
class CheckPlan:
    """What a check is about to do.

    Attributes:
        steps: The steps; empty if files are checked.
        files: Names of the files; empty if steps are checked.
        given: What the files are checked with.
        names: The steps as they were asked for: names, ranges, lineages or folders.
    """

    steps: tuple[StepRun, ...]
    request: CheckRequest
    files: tuple[str, ...] = ()
    given: FileOptions = field(default_factory=FileOptions)
    names: tuple[str, ...] = ()


def check(
    steps: Names,
    shapes: Names | None = None,
    *,
    schedules: int | None = None,
    budget_s: float | None = None,
    sms: Sequence[int] | None = None,
    inputs: Names | None = None,
    sequence: bool = True,
    seed: int | None = None,
    jobs: int | None = None,
    max_findings: int = MAX_FINDINGS,
    strict: bool = False,
    allow: Mapping[str, str] | None = None,
    timeout_s: float = MEASURING.timeout_s,
    mma_rounding: Rounding = _ROUNDING,
    arch: int = 90,
    gpus: int = 1,
    task: str | Path | None = None,
    build: str | None = None,
    flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
    save: bool = False,
    results: str | Path | None = None,
    command: str | None = None,
    observer: Observer | None = None,
) -> CheckReport:
    """Run kernels on the CPU under many seeded schedules.

    Of a compiled step every result's bits are compared, too, and a shape ends at the first wrong
    result or finding that ends a launch. A CUDA program, a PTX file or a script runs as it is, each
    of its launches under several schedules. What is not right is in :attr:`CheckReport.failures`.

    Args:
        steps: A step's name, a range, a lineage's name or a step's folder; or several. Or files:
            ``.cu`` (and what is linked with it), an executable with PTX (``./program``), ``.ptx``
            with its launches in a TOML file beside it, or a ``.py`` script or submission with
            kernels of its own, or a file or folder of pytest's tests. Files take ``schedules``,
            ``sms`` (one number), ``seed``, ``max_findings``, ``allow``, ``timeout_s``, ``arch``,
            ``gpus``, ``task``, ``flags``
            and ``arguments``.
        shapes: By name or ad hoc; a few small ones of the problem's choice if None.
        schedules: For each shape, input class and number of SMs; at most 100 if None. Of a file,
            for each launch; 20 if None.
        budget_s: Seconds for each step and its build, about, 0 for no limit: every shape is run on
            a third or half of the numbers of SMs, then on the others, then again in rounds until
            the time is over. If None: 55 where ``schedules`` is None, else no limit.
        sms: Numbers of SMs to emulate; 1, 2, 3, 4, 10 and 148 if None, 4 for files.
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
        arch: Compute capability that nvcc and Triton compile files for, such as 90.
        gpus: GPUs of the kind that a CUDA program has, up to 64.
        task: Folder of the GPU MODE task whose tests call the files, which are submissions.
        build: A command of the shell that builds programs (``make foo``) or torch's extensions;
            what its nvcc links is checked, or the executable or the script that ``steps`` names.
        flags: nvcc's, for the sources of a CUDA program.
        arguments: What a program or script is started with.
        save: Whether to keep the report; not of files.
        results: Folder to keep it in; the project's if None.
        command: What the report says made it; the Python call if None.
        observer: Told what happens.

    Raises:
        UsageError: For what does not exist, cannot be checked or is out of range.
        EnvironmentProblem: For what this machine lacks.
        Interrupted: After Ctrl-C. As of every error, ``partial`` is the report up to there.
    """
    observer = observer or Observer()
    names, extensions = _named(steps, build, arch, observer)
    if any(map(is_file_to_check, names)):
        of_steps = {
            "shape": shapes, "inputs": inputs, "budget": budget_s is not None, "strict": strict,
            "no-sequence": not sequence, "mma-rounding": mma_rounding != _ROUNDING,
        }  # fmt: skip
        _refuse_beside_files(names, sms, gpus, of_steps)
        count = FILE_SCHEDULES if schedules is None else schedules
        asked = _request(sms or FILE_SMS, count, None, seed, timeout_s, max_findings, 1)
        asked = replace(asked, allow=allowances.require_allowances(allow))
        given = FileOptions(
            arch, sms[0] if sms else 0, gpus, str(task or ""), tuple(flags), tuple(arguments),
            extensions, (build or "") if extensions else "",
        )  # fmt: skip
        return _check_files(names, asked, given, command, observer)
    _refuse(task, mma_rounding, gpus, [*flags, *arguments])
    asked = replace(
        _request(sms, schedules, budget_s, seed, timeout_s, max_findings, jobs),
        sequence=sequence, strict=strict, allow=allowances.require_allowances(allow),
    )  # fmt: skip
    folder = _results(results, context := Context.find(), save)
    shapes, emulation = names_of(shapes), Emulation(mma_rounding=mma_rounding)
    runs = plan_check(context, names, shapes, names_of(inputs), emulation, warn=observer.warning)
    observer.planned(CheckPlan(tuple(runs), asked, names=tuple(names)))
    report = make_report(
        [(run, asked) for run in runs], asked, mma_rounding,
        command or call_text("check", *names, *shapes), observer,
    )  # fmt: skip
    return _save(folder, report, observer) if save else report


def _named(
    steps: Names, build: str | None, arch: int, observer: Observer
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What is checked, and the extensions that a command has built."""
    if not build:
        return step_names(steps), ()
    from kernelbench.checks.builds import built_by

    observer.progress(f"building: {build}")
    return built_by(build, names_of(steps), arch)


def _check_files(
    names: tuple[str, ...],
    asked: CheckRequest,
    given: FileOptions,
    command: str | None,
    observer: Observer,
) -> CheckReport:
    from kernelbench.checks.files import check_files

    observer.planned(CheckPlan((), asked, names, given))
    command = command or call_text("check", *names)
    return check_files(names, asked, given, command, observer.progress)


def make_report(
    planned: Sequence[tuple[StepRun, CheckRequest]],
    asked: CheckRequest,
    mma_rounding: Rounding,
    command: str,
    observer: Observer,
) -> CheckReport:
    """Check steps, each as is asked of it.

    Args:
        planned: Each step with what is asked of it.
        asked: What the report says was asked of all.
        mma_rounding: How the sums of an MMA are rounded.
        command: What the report says made it.
        observer: Told what happens.

    Raises:
        KernelbenchError: What ended it early; its ``partial`` is the report up to there.
        Interrupted: After Ctrl-C, likewise.
    """
    done, failure = _check_all(planned, observer)
    return report_of(asked, planned[0][0].classes, mma_rounding, command, done, failure)


def _refuse_beside_files(
    names: Sequence[str], sms: Sequence[int] | None, gpus: int, of_steps: Mapping[str, object]
) -> None:
    """Refuse a step among files, and what belongs to steps: options, with what was given."""
    for name in names:
        if not is_file_to_check(name):
            raise UsageError(f"{name} is a step, and others are files", "check them one by one")
        if not Path(name).is_file() and not files_of_tests(Path(name)):
            raise UsageError(f"{name}: there is no such file")
        if not os.access(name, os.R_OK):
            raise UsageError(f"{name}: it cannot be read: permission denied")
    for option, given in of_steps.items():
        if given:
            raise UsageError(f"--{option} belongs to steps: {names[0]} is a file")
    if len(sms or ()) > 1:
        raise UsageError("--sms: one number for a file", "a script asks once how many there are")
    if not 1 <= gpus <= MOST_GPUS:
        raise UsageError(f"gpus is {gpus}: expected a number from 1 to {MOST_GPUS}")
    others = [each for each in names if gpus > 1 and _ONE_GPU.search(each)]
    if others:
        raise UsageError(f"--gpus goes with CUDA programs: {others[0]} has one GPU")


def _check_all(
    planned: Sequence[tuple[StepRun, CheckRequest]], observer: Observer
) -> tuple[tuple[StepCheck, ...], BaseException | None]:
    """The steps that were checked, and what ended it early."""
    done: list[StepCheck] = []
    failure: BaseException | None = None
    checker = ScheduleChecker(planned[0][1].jobs, observer.progress)
    try:
        with contextlib.closing(checker.run(planned)) as found:
            for step in found:
                done.append(step)
                for row in step.rows:
                    observer.row(row)
    except (KernelbenchError, KeyboardInterrupt) as error:
        failure = error
    return tuple(done), KeyboardInterrupt() if checker.interrupted else failure


def _results(results: str | Path | None, context: Context, save: bool) -> Path:
    folder = parse_results(results, context.project)
    if save:
        require_results(folder, "choose another with --results, or give --no-save")
    return folder


def _save(folder: Path, report: CheckReport, observer: Observer) -> CheckReport:
    try:
        path = save_check(folder, report)
    except KernelbenchError as error:
        raise ended_early(error, report) from error
    observer.saved(path)
    return report


def _refuse(
    task: str | Path | None, mma_rounding: str, gpus: int, of_programs: Sequence[str]
) -> None:
    one_of("mma_rounding", mma_rounding, ROUNDINGS)
    if gpus != 1:
        raise UsageError("--gpus goes with CUDA programs: a step has one GPU")
    if of_programs:
        raise UsageError(f"{of_programs[0]}: flags and arguments belong to programs, not to steps")
    if task:
        raise UsageError(
            "--task goes with submissions that launch kernels of their own",
            "`kernelbench run STEP --task DIR` checks the results of any",
        )


def _request(
    sms: Sequence[int] | None,
    schedules: int | None,
    budget_s: float | None,
    seed: int | None,
    timeout_s: float,
    max_findings: int,
    jobs: int | None,
) -> CheckRequest:
    """What is asked of steps, the defaults filled in."""
    if budget_s is None:
        budget_s = BUDGET_S if schedules is None else 0.0
    at_least("budget_s", budget_s, 0)
    schedules = SCHEDULES if schedules is None else schedules
    at_least("schedules", schedules, 1)
    at_least("max_findings", max_findings, 1)
    at_least("timeout_s", timeout_s, 0.1)
    at_least("jobs", jobs if jobs is not None else 1, 1)
    at_least("seed", seed or 0, 0)
    sms = tuple(SMS if sms is None else sms)
    if not sms or not all(1 <= number <= MAX_SMS for number in sms):
        raise UsageError(f"sms is {sms}: expected numbers from 1 to {MAX_SMS}")
    return CheckRequest(
        tuple(dict.fromkeys(sms)),
        schedules,
        seeds.new_seed() if seed is None else seed,
        timeout_s,
        max_findings,
        cpu_count() if jobs is None else jobs,
        budget_s=budget_s,
    )
