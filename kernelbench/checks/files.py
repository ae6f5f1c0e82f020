"""``kernelbench check`` of files that are no steps: PTX, CUDA programs, scripts, submissions."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kernelbench.base.bytecode import no_bytecode
from kernelbench.base.child_process import is_about_to_print, run_in_child
from kernelbench.base.demangle import source_name
from kernelbench.base.errors import EnvironmentProblem, KernelbenchError, UsageError
from kernelbench.base.observer import OnProgress
from kernelbench.build.includes import reached_files, without_comments
from kernelbench.checks import allowances
from kernelbench.checks.file_kinds import files_of_tests
from kernelbench.checks.pytest_suite import failure_of_tests
from kernelbench.checks.report import CheckReport, report_of
from kernelbench.checks.rows import (
    NOTED,
    CheckRequest,
    CheckRow,
    CheckStatus,
    FileOptions,
    Seen,
    StepCheck,
    why_formal,
)
from kernelbench.emulator.assumptions import ALL_SMS
from kernelbench.emulator.runtime import runtime, runtime_library
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.kinds.callables import describe_exception
from kernelbench.machine.arch import ARCHES
from kernelbench.machine.devices import require_torch
from kernelbench.machine.toolchain import host_compilers
from kernelbench.project.shipped import shipped_blocks
from kernelbench.project.step_files import is_submission
from kernelbench.ptx.hosts.built_program import is_executable
from kernelbench.ptx.hosts.cuda_build import SOURCES, ProgramSources
from kernelbench.ptx.hosts.cuda_program import LARGE_BYTES, NEEDS_MAIN, CudaProgram
from kernelbench.ptx.hosts.script_session import script_emulation
from kernelbench.ptx.launch_file import read_launches, run_launches
from kernelbench.ptx.report import Launched, PtxFinding

#: How a file ended: ``usage`` and ``environment`` are errors of the user and of the machine.
FileEnd = Literal["done", "wrong", "fault", "interrupted", "usage", "environment"]

#: NVIDIA's driver, should anything reach it, has none: a file is checked on the emulator.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
_SCRIPT_ROW = "script"
_WAIVED = 2  # of NVIDIA's samples, where they lack something
_TWO_GPUS = "--gpus 2 gives a program two"
#: As a shell and loader.cpp say what ended main.
_ENDED_BY = {134: "abort", 136: "SIGFPE", 139: "SIGSEGV"}
_ARGUMENTS_GO = "a program's arguments go after `--`"
_CALLED_BY_RUN = (
    "`kernelbench run {file} --shape NAME` calls a submission, as --task DIR does; a script calls "
    "its kernels itself"
)
_BUILD_OPTION = "--build 'python setup.py build_ext --inplace'"
_OF_TESTS = "those of pytest's that ran; words behind `--` are pytest's"
_MAIN = re.compile(r"\bmain\s*\(")
#: Headers of test frameworks have one, too, and flags other than these bring files.
_MAY_HAVE_MAIN = re.compile(r"main|test", re.IGNORECASE)
_OF_THE_TEXT = ("-D", "-O", "-std", "-arch")


@dataclass(frozen=True)
class FileAsked:
    """What to do."""

    file: str
    schedules: int  #: Of each launch.
    seed: int
    sms: int
    limit_s: float  #: Seconds after which one schedule counts as hung.
    #: What the file is checked with; its task is this file's.
    given: FileOptions = field(default_factory=FileOptions)
    others: tuple[str, ...] = ()  #: Sources that are linked with the file, a CUDA program.
    new_bytes: int | None = None  #: What new memory of a script's holds; None for NaN.
    #: In which memory its launches find words as they were first; empty for none.
    set_back: str = ""
    untuned: str = ""  #: A kernel that Triton's autotuner does not run; empty for none.
    #: Whether a program has run, and does so once more for what that run finds.
    again: bool = False

    @property
    def has_run(self) -> bool:
        """Whether it has run as it is, and printed everything once."""
        return self.again or self.new_bytes is not None or bool(self.set_back or self.untuned)


_NEW_MEMORY = "fails once memory that nothing has written holds other values"
_TUNED = (
    "it ends well if autotuning does not run {0} before: restore_value or reset_to_zero of "
    "@triton.autotune has to name what {0} changes"
)
_MOST_LEFT = 3
#: What CUDA says of a cooperative launch that the SMs do not hold.
_TOO_LARGE = "cudaErrorCooperativeLaunchTooLarge"


@dataclass(frozen=True)
class FileAnswer:
    """What came of it."""

    launches: tuple[Launched, ...]
    end: FileEnd = "done"
    reason: str = ""  #: One line, of an end that is not ``done``.
    hint: str = ""  #: What to do, empty if unknown.
    asks_sms: bool = False  #: Whether it may be wrong for want of SMs.
    more_sms: int = 0  #: On how many it fails, of a program that is clean on fewer, or 0.
    #: Whether a script that is clean has read memory that nothing has written.
    reads_new: bool = False
    #: In which memory launches of a script that fails have found what earlier ones had left, if
    #: nothing else tells why it does.
    left: tuple[str, ...] = ()
    tuned: tuple[str, ...] = ()  #: Which kernels of one the autotuner has run, likewise.
    #: The seed of a run in single schedules in which a program fails that is clean otherwise; -1
    #: for none.
    fails_with: int = -1


def answer_to(asked: FileAsked) -> FileAnswer:
    """Check a file in this process and say what came of it."""
    launches: list[Launched] = []
    file = Path(asked.file)
    try:
        if file.suffix == ".ptx":
            launches += run_launches(
                file, read_launches(file), check=asked.schedules, seed=asked.seed, sms=asked.sms,
                limit_s=asked.limit_s,
            )  # fmt: skip
            return FileAnswer(tuple(launches))
        if file.suffix in SOURCES or is_executable(file):
            return _program(file, asked, launches)
        return _script(file, asked, launches)
    except KernelbenchError as error:
        end: FileEnd = "usage" if isinstance(error, UsageError) else "environment"
        return FileAnswer(tuple(launches), end, error.message, error.hint or "")


def _program(file: Path, asked: FileAsked, launches: list[Launched]) -> FileAnswer:
    given = asked.given
    sources = ProgramSources(file, tuple(map(Path, asked.others)), given.flags)
    program = CudaProgram(
        sources, given.arch, check=asked.schedules, seed=asked.seed, sms=asked.sms,
        limit_s=asked.limit_s, gpu_sms=given.gpu_sms, gpus=given.gpus,
    )  # fmt: skip
    launches_of = program.launches
    if asked.has_run:
        _be_silent()
    is_about_to_print()
    try:
        status = program.run(given.arguments)
    finally:
        launches += launches_of
    if program.goes_on:
        return FileAnswer(tuple(launches), "interrupted", f"main had not ended: {program.goes_on}")
    if status:
        call = f": {program.failed_call}" if program.failed_call else ""
        if program.not_waited_for:
            call = f": it goes on before {program.not_waited_for} is done"
        if program.wrong_size:
            call = f": it ends well once {program.wrong_size}: is the size in elements?"
        if not launches and not call:
            call = "; it launched no kernel"
            call += "" if given.arguments else f"; {_ARGUMENTS_GO}"
        if not program.failed_call and program.lacks_gpus and (status == _WAIVED or not launches):
            call = f"; it asks how many GPUs there are: {_TWO_GPUS}"
        by = _ENDED_BY.get(status)
        ended = f"{by} ended main" if by else f"main returned {status}"
        asks_sms = program.asks_sms and (not launches or _TOO_LARGE in call)
        return FileAnswer(tuple(launches), "wrong", ended + call, asks_sms=asks_sms)
    if program.fails_with is not None:
        how = "in other schedules"
        if program.fails_beside:
            how = f"where {program.fails_beside} runs beside work that nothing orders with it"
        return FileAnswer(
            tuple(launches), "wrong",
            f"main fails {how}: --seed {program.fails_with} --schedules 1",
            fails_with=program.fails_with,
        )  # fmt: skip
    if program.unnoticed:
        return FileAnswer(tuple(launches), "fault", program.unnoticed)
    if program.needs_new_memory:
        return FileAnswer(tuple(launches), "wrong", f"main {_NEW_MEMORY}")
    return FileAnswer(tuple(launches), more_sms=program.fails_on_sms)


def _be_silent() -> None:
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


def _script(file: Path, asked: FileAsked, launches: list[Launched]) -> FileAnswer:
    require_torch(f"{file.name}: a script")
    from kernelbench.problems.task_folder import wrong_by_task

    if asked.has_run:
        _be_silent()
    sys.argv = [str(file), *asked.given.arguments]
    tests = files_of_tests(file)
    # As `python -m pytest` has it; of a script the folder.
    sys.path.insert(0, str(Path.cwd() if tests else file.parent.resolve()))
    end: FileEnd = "done"
    reason = ""
    with script_emulation(
        asked.given.arch,
        check=asked.schedules,
        seed=asked.seed,
        sms=asked.sms,
        limit_s=asked.limit_s,
        new_bytes=asked.new_bytes,
    ) as session:
        session.untuned = asked.untuned
        if asked.set_back:
            runtime(shipped_blocks()).set_back(asked.set_back)
            session.leftovers.set_back = asked.set_back
        session.import_built(asked.given.extensions)
        session.expect_streams(tests or [file])
        is_about_to_print()
        try:
            if asked.given.task:
                reason = wrong_by_task(file, Path(asked.given.task), asked.seed)
                end = "wrong" if reason else "done"
            elif tests:
                with no_bytecode():
                    asserted, reason = failure_of_tests(file, asked.given.arguments)
                end = ("wrong" if asserted else "fault") if reason else "done"
            else:
                with no_bytecode():
                    runpy.run_path(str(file), run_name="__main__")
        except KernelbenchError:
            raise
        except SystemExit as error:
            if error.code not in (None, 0):
                end, reason = "fault", f"it left with {error.code}"
        except Exception as error:
            end = "wrong" if isinstance(error, AssertionError) else "fault"
            reason = describe_exception(error, file)
            if isinstance(error, ImportError) and not asked.given.extensions and _builds_torch():
                reason += f"; its extension is built here by {_BUILD_OPTION}"
        finally:
            found = any(each.report.errors for each in session.launches)
            session.explain(failed=end != "done")
            launches += session.launches
    if end == "done" and session.unnoticed:
        end, reason = "fault", session.unnoticed
    return FileAnswer(
        tuple(launches), end, reason,
        reads_new=end == "done" and not found and session.reads_new_memory,
        left=() if end == "done" else tuple(session.memory_with_leftovers),
        tuned=() if end == "done" or found else tuple(session.tuned),
    )  # fmt: skip


def _builds_torch() -> bool:
    """Whether the working folder has a ``setup.py`` that builds extensions of torch."""
    setup = Path("setup.py")
    return setup.is_file() and "cpp_extension" in setup.read_text(errors="replace")


def check_files(
    files: Sequence[str],
    request: CheckRequest,
    given: FileOptions,
    command: str,
    on_progress: OnProgress | None,
) -> CheckReport:
    """Look for faults in the kernels of PTX files, of CUDA programs, scripts and submissions.

    Each has a process of its own. A row is a kernel; a script that ends early has one more. Sources
    without a ``main`` belong to the program that has one.

    Args:
        files: Paths; a PTX file has its launches in a TOML file beside it.
        request: Schedules of each launch, the emulated GPU's SMs, and so on.
        given: What they are checked with.
        command: What the report says made it.
        on_progress: Told what is going on, in a line.

    Raises:
        UsageError: For what a file asks for and does not exist; for a program without a ``main``.
        EnvironmentProblem: For what this machine lacks.
        Interrupted: After Ctrl-C.
    """
    programs = programs_of(files)
    for name, others in programs:
        _require_main((name, *others), given.flags)
    done: list[StepCheck] = []
    failure: KeyboardInterrupt | None = None
    try:
        if host_compilers():  # else each file says what it lacks
            if on_progress is not None:
                on_progress("building the emulator for this machine, once")
            runtime_library(shipped_blocks())
        for name, others in programs:
            if on_progress is not None:
                on_progress(f"{Path(name).name}: checking")
            task = given.task or task_beside(Path(name))
            asked = FileAsked(
                name, request.schedules, request.seed, request.sms[0], request.call_limit_s,
                replace(given, task=task), others,
            )  # fmt: skip
            digest = _digest(Path(name))  # now: the file may be gone by the end
            answer, sms = _answer(asked, lambda: on_progress and on_progress(""))
            done.append(_checked(Path(name), digest, answer, replace(request, sms=(sms,))))
            if answer.end == "interrupted":
                raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        failure = error
    return report_of(request, (), DEFAULT_EMULATION.mma_rounding, command, done, failure)


def programs_of(files: Sequence[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Each file to check, with the sources linked with it; UsageError if it is not clear whose."""
    sources = [name for name in files if Path(name).suffix in SOURCES]
    if len(sources) < 2:
        return [(name, ()) for name in files]
    lacking = [name for name in sources if not _has_main(Path(name))]
    heads = [name for name in sources if name not in lacking] or sources[:1]
    others = tuple(name for name in lacking if name not in heads)
    if others and len(heads) > 1:
        raise UsageError(
            f"{others[0]} has no main, and {' and '.join(heads)} have: whose is it?",
            "check the programs one by one",
        )
    return [(name, others if name in heads else ()) for name in files if name not in others]


def _require_main(sources: Sequence[str], flags: Sequence[str]) -> None:
    """Before a long compilation; a header, a macro or a library may still have it."""
    programs = Path(sources[0]).suffix in SOURCES
    if not programs or not all(flag.startswith(_OF_THE_TEXT) for flag in flags):
        return
    texts = (without_comments(each.read()) for each in reached_files([*map(Path, sources)]))
    if not any(map(_MAY_HAVE_MAIN.search, texts)):
        raise UsageError(f"{sources[0]}: it has no main", NEEDS_MAIN)


def _has_main(source: Path) -> bool:
    return _MAIN.search(without_comments(source.read_bytes())) is not None


def _digest(file: Path) -> str:
    files = files_of_tests(file) or [file] * file.is_file()
    return hashlib.sha256(b"".join(each.read_bytes() for each in files)).hexdigest()


def _checked(file: Path, digest: str, answer: FileAnswer, request: CheckRequest) -> StepCheck:
    if answer.end == "usage":
        raise UsageError(answer.reason, answer.hint or None)
    if answer.end == "environment":
        raise EnvironmentProblem(answer.reason, answer.hint or None)
    name = file.name or file.resolve().name
    rows = list(_rows(name, answer.launches, request))
    if answer.end != "done":
        ends: dict[str, CheckStatus] = {"wrong": "wrong", "interrupted": "interrupted"}
        status = ends.get(answer.end, "fault")
        whole = _SCRIPT_ROW if file.suffix in (".py", ".ptx") or file.is_dir() else "program"
        rows.append(CheckRow(name, whole, "", status, 0, 0, 0.0, reason=answer.reason))
    if not rows:
        hint = _CALLED_BY_RUN.format(file=file) if file.suffix == ".py" else _ARGUMENTS_GO
        hint = _OF_TESTS if files_of_tests(file) else hint
        raise UsageError(f"{file}: it launched no kernel", hint)
    return StepCheck(name, digest, None, tuple(rows))


def task_beside(file: Path) -> str:
    """The folder of a submission, if it is that of a GPU MODE task; else nothing."""
    beside = is_submission(file) and (file.parent / "task.yml").is_file()
    return str(file.parent.resolve()) if beside else ""


def _answer(asked: FileAsked, shown: Callable[[], object]) -> tuple[FileAnswer, int]:
    """What came of a file, and on how many SMs: on those of a GPU if it launches nothing on less,
    and is not told how many it has; and on more where it fails on those only. A script is run again
    with other values in new memory if it has read some; if it fails, with memory set back that its
    launches have left changed, or without the launches by which a kernel is tuned."""
    answer, whole = _one_answer(asked, shown), ARCHES[asked.given.arch].sms
    if answer.end == "interrupted":
        return answer, asked.sms
    if answer.reads_new:
        again = _one_answer(replace(asked, new_bytes=LARGE_BYTES), shown)
        if again.end in ("wrong", "fault"):
            return replace(again, end="wrong", reason=f"it {_NEW_MEMORY}"), asked.sms
    if answer.fails_with >= 0:
        run = replace(asked, seed=answer.fails_with, schedules=1, again=True)
        again = _one_answer(run, shown)
        why = (replace(each, run=answer.fails_with) for each in again.launches)
        wrong = tuple(each for each in why if each.report.errors)
        return replace(answer, launches=(*answer.launches, *wrong)), asked.sms
    for name in answer.tuned[:_MOST_LEFT]:
        if _one_answer(replace(asked, untuned=name), shown).end == "done":
            return replace(answer, reason=f"{answer.reason}; {_TUNED.format(name)}"), asked.sms
    for name in answer.left[:_MOST_LEFT]:
        again = _one_answer(replace(asked, set_back=name), shown)
        if again.end == "done" and not any(each.report.errors for each in again.launches):
            launches = tuple(each.told_of_leftovers(name) for each in answer.launches)
            return replace(answer, launches=launches), asked.sms
    if answer.more_sms:
        return _one_answer(replace(asked, sms=answer.more_sms), shown), answer.more_sms
    if not answer.asks_sms or asked.given.gpu_sms:
        return answer, asked.sms
    again = _one_answer(replace(asked, sms=whole), shown)
    launches = tuple(each.resting_on(ALL_SMS) for each in again.launches)
    return (replace(again, launches=launches), whole) if launches else (answer, asked.sms)


def _one_answer(asked: FileAsked, shown: Callable[[], object]) -> FileAnswer:
    ended = run_in_child(
        answer_to, [asked], FileAnswer, environment={**os.environ, **_NO_GPU}, shown=shown,
        answers_when_told=not asked.has_run,
    )  # fmt: skip
    if ended.value is not None:
        if ended.interrupted:
            return replace(ended.value, end="interrupted")
        return ended.value
    return FileAnswer((), "fault", f"its process ended with {ended.ended_with}")


def _rows(file: str, launches: Sequence[Launched], request: CheckRequest) -> Iterator[CheckRow]:
    """One for each kernel, in the order of their first launches."""
    kernels: defaultdict[str, list[Launched]] = defaultdict(list)
    for each in launches:
        kernels[each.report.kernel].append(each)
    names: list[str] = []
    for kernel, made in kernels.items():
        # As in the source; forms of one template by number.
        name = source_name(kernel)
        names.append(name)
        name += f" ({names.count(name)})" if names.count(name) > 1 else ""
        seen: dict[str, Seen] = {}
        for launched in made:
            for found in launched.report.findings:
                _add(seen, found, launched, request)
        allowances.apply(seen, request.allow)
        open_ones = [each for each in seen.values() if not each.allowed]
        reason = next(filter(None, (each.report.error for each in made)), "")
        forms = [*dict.fromkeys(each.form for each in made)]
        more = f" and {len(forms) - 1} more" if len(forms) > 1 else ""
        count = f"{len(made)} launches, " if len(made) > 1 else ""
        yield CheckRow(
            step=file, shape=name, dims=f"{count}{forms[0]}{more}",
            status=_status(open_ones, reason),
            schedules=sum(each.report.schedules for each in made), asked=request.schedules,
            seconds=round(sum(each.report.seconds for each in made), 3),
            seen=tuple(sorted(seen.values(), key=lambda each: each.allowed != ""))[
                : request.max_findings
            ],
            reason=reason,
            assumptions=tuple(
                dict.fromkeys(name for each in made for name in each.report.assumptions)
            ),
        )  # fmt: skip


def _status(seen: Sequence[Seen], reason: str) -> CheckStatus:
    if any(each.finding.kind == "hang" for each in seen):
        return "hang"
    if any(each.finding.kind == "timeout" for each in seen):
        return "timeout"
    if seen:
        return "finding"
    return "fault" if reason else "clean"


def _add(
    seen: dict[str, Seen], found: PtxFinding, launched: Launched, request: CheckRequest
) -> None:
    known, schedules = seen.get(found.identity), found.schedules
    if known is not None:
        schedules += known.schedules
        # What is formal in one launch may be an error in another.
        if found.severity != "error" or not known.allowed:
            seen[found.identity] = replace(known, schedules=schedules)
            return
        del seen[found.identity]  # for the order in which errors came
    finding = found.finding
    seen[found.identity] = Seen(
        finding, launched.form, request.sms[0], max(found.seed - launched.seed, 0), schedules,
        launched.report.waits if finding.kind == "hang" else (),
        allowed={"formal": why_formal(finding), "noted": NOTED}.get(found.severity, ""),
        seed=launched.run,
    )  # fmt: skip
