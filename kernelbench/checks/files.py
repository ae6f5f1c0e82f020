"""``kernelbench check`` of files that are no steps: PTX, CUDA programs, scripts, submissions."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernelbench.base import schema, seeds
from kernelbench.base.callbacks import OnProgress
from kernelbench.base.errors import EnvironmentProblem, UsageError, ended_early
from kernelbench.base.json_file import read_json, write_json
from kernelbench.checks import allowances
from kernelbench.checks.file_worker import FileAnswer, FileAsked
from kernelbench.checks.report import CHECK_SCHEMA, CheckReport
from kernelbench.checks.rows import FORMAL, CheckRequest, CheckRow, CheckStatus, Seen, StepCheck
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.machine.environment import cpu_name
from kernelbench.project.step_files import is_submission
from kernelbench.ptx.demangle import source_name
from kernelbench.ptx.report import Launched, PtxFinding
from kernelbench.ptx.triton_session import SCRIPT_SMS
from kernelbench.records import run_record

#: Schedules of each launch, if nobody says how many.
FILE_SCHEDULES = 20
_SCRIPT_ROW = "script"


def check_files(
    files: Sequence[str],
    *,
    schedules: int | None = None,
    seed: int | None = None,
    sms: int | None = None,
    arch: int = 90,
    max_findings: int = 20,
    allow: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
    task: str = "",
    command: str = "",
    on_progress: OnProgress | None = None,
    on_request: Callable[[CheckRequest], None] | None = None,
) -> CheckReport:
    """Look for faults in the kernels of PTX files, of CUDA programs, scripts and submissions.

    Each file has a process of its own. A row is a kernel; a script that ends early has one more.

    Args:
        files: Paths; a PTX file has its launches in a TOML file beside it.
        schedules: Of each launch; 20 if None.
        seed: Of schedules and random arrays; drawn anew if None.
        sms: SMs of the emulated GPU; 4 if None.
        arch: What Triton compiles for, such as 90.
        max_findings: Different findings to keep for each kernel.
        allow: Reasons by identity, for findings that may be there.
        timeout_s: Seconds after which one schedule counts as hung.
        task: Folder of the GPU MODE task whose tests call the files, which are submissions.
        on_request: Told what is asked, before anything runs.

    Raises:
        UsageError: For a file that is not there, or what it asks for and does not exist.
        EnvironmentProblem: For what this machine lacks.
        Interrupted: After Ctrl-C.
    """
    allow = dict(allow or {})
    allowances.require_allowances(allow)
    for name in files:
        if not Path(name).is_file():
            raise UsageError(f"{name}: there is no such file")
    request = CheckRequest(
        (sms or SCRIPT_SMS,), schedules or FILE_SCHEDULES,
        seeds.new_seed() if seed is None else seed, timeout_s, max_findings, allow=allow,
    )  # fmt: skip
    if on_request is not None:
        on_request(request)
    done, failure = _checked_until(files, request, arch, task, on_progress)
    report = CheckReport(
        schema=CHECK_SCHEMA, id=run_record.new_id(), device=cpu_name(),
        created=run_record.now_iso(), command=command, seed=request.seed, sms=request.sms,
        inputs=(), mma_rounding=DEFAULT_EMULATION.mma_rounding, request=request,
        complete=failure is None, steps=tuple(done),
        unmatched=allowances.unmatched(allow, [row for step in done for row in step.rows]),
    )  # fmt: skip
    if failure is not None:
        raise ended_early(failure, report)
    return report


def _checked_until(
    files: Sequence[str],
    request: CheckRequest,
    arch: int,
    task: str,
    on_progress: OnProgress | None,
) -> tuple[list[StepCheck], KeyboardInterrupt | None]:
    """The files that were checked, and Ctrl-C if that ended it."""
    done: list[StepCheck] = []
    try:
        for name in files:
            if on_progress is not None:
                on_progress(f"{Path(name).name}: checking")
            done.append(_checked(Path(name), request, arch, task))
    except KeyboardInterrupt as error:
        return done, error
    return done, None


def _checked(file: Path, request: CheckRequest, arch: int, task: str) -> StepCheck:
    asked = FileAsked(
        str(file), request.schedules, request.seed, request.sms[0], arch, request.call_limit_s,
        task or task_beside(file),
    )  # fmt: skip
    answer = _answer(asked)
    if answer.end == "usage":
        raise UsageError(answer.reason, answer.hint or None)
    if answer.end == "environment":
        raise EnvironmentProblem(answer.reason, answer.hint or None)
    rows = list(_rows(file.name, answer.launches, request))
    if answer.end != "done":
        status: CheckStatus = "wrong" if answer.end == "wrong" else "fault"
        whole = "program" if file.suffix == ".cu" else _SCRIPT_ROW
        rows.append(CheckRow(file.name, whole, "", status, 0, 0, 0.0, reason=answer.reason))
    if not rows:
        raise UsageError(
            f"{file}: it launched no kernel",
            "--task DIR names the task that calls a submission; a script calls its kernels itself",
        )
    sha = hashlib.sha256(file.read_bytes()).hexdigest()
    return StepCheck(file.name, sha, None, tuple(rows))


def task_beside(file: Path) -> str:
    """The folder of a submission, if it is that of a GPU MODE task; else nothing."""
    beside = is_submission(file) and (file.parent / "task.yml").is_file()
    return str(file.parent.resolve()) if beside else ""


def _answer(asked: FileAsked) -> FileAnswer:
    with tempfile.TemporaryDirectory(prefix="kernelbench-") as folder:
        question, reply = Path(folder) / "asked.json", Path(folder) / "answer.json"
        write_json(question, asked)
        ended = subprocess.run(
            [sys.executable, "-m", "kernelbench.checks.file_worker", question, reply],
            check=False, stdout=sys.stderr.fileno(),
        )  # fmt: skip
        if reply.is_file():
            return schema.decode(FileAnswer, read_json(reply))
    code = ended.returncode
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return FileAnswer((), "fault", f"its process ended with {how}")


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
            seen=tuple(seen.values())[: request.max_findings], reason=reason,
            assumptions=tuple(
                dict.fromkeys(name for each in made for name in each.report.assumptions)
            ),
        )  # fmt: skip


def _status(seen: Sequence[Seen], reason: str) -> CheckStatus:
    if any(each.finding.kind == "hang" for each in seen):
        return "hang"
    if seen:
        return "finding"
    return "fault" if reason else "clean"


def _add(
    seen: dict[str, Seen], found: PtxFinding, launched: Launched, request: CheckRequest
) -> None:
    known = seen.get(found.identity)
    if known is not None:
        seen[found.identity] = replace(known, schedules=known.schedules + found.schedules)
        return
    finding = found.finding
    seen[found.identity] = Seen(
        finding, launched.form, request.sms[0], found.seed - launched.seed, found.schedules,
        launched.report.waits if finding.kind == "hang" else (),
        allowed=FORMAL if found.severity == "formal" else "",
    )  # fmt: skip
