"""``kernelbench sanitize``."""

from __future__ import annotations

import click

from kernelbench.base.console import Console, Status, Text
from kernelbench.cli import options, tool_options
from kernelbench.cli.options import RecordOutput
from kernelbench.cli.tool_options import Subject
from kernelbench.inspection import sanitize
from kernelbench.inspection.sanitize import CHECKS, DEFAULT_CHECKS, Check, Session, ToolResult
from kernelbench.inspection.sanitizer_log import SanitizerFinding
from kernelbench.records import run_record

#: Every other status is a failure of the step.
_STYLES = {"clean": "bold green", "explained": "bold yellow", "failed": "bold yellow"}


@click.command(
    "sanitize",
    epilog="\b\nExamples:\n"
    "  kernelbench sanitize m02\n"
    "  kernelbench sanitize m02 --shape qwen35-m16 --tool memcheck\n"
    "  kernelbench sanitize v07 --shape u1 --json -",
)
@tool_options.subject_options("the first small one that the step takes")
@click.option(
    "--tool",
    "tools",
    type=click.Choice(CHECKS),
    multiple=True,
    default=DEFAULT_CHECKS,
    help="A tool of compute-sanitizer; repeatable.",
)
@click.option("--calls", type=click.IntRange(min=1), default=2, help="Calls of the step.")
@click.option("--strict", is_flag=True, help="Leave with 3 for explained findings, too.")
@options.json_option
def command(
    subject: Subject, tools: tuple[Check, ...], calls: int, strict: bool, json: RecordOutput
) -> int:
    """Run STEP on the GPU under compute-sanitizer, a line for each of its tools.

    Only the step's own kernels are looked at, and no reference runs beside them: `run` says whether
    results are right. A finding with a known cause of false positives is shown as explained. Leaves
    with 3 for findings, with 5 where a tool is missing or cannot work.
    """
    run = subject.plan(small=True)
    results: list[ToolResult] = []
    to = json.people
    with Status() as status:
        status(f"{run.step.name}: building")
        session = sanitize.prepare_session(
            run, seed=subject.seed, calls=calls, limit_s=subject.timeout
        )
        _head(to, session)
        for result in sanitize.run_checks(session, tuple(dict.fromkeys(tools)), status):
            results.append(result)
            _result(to, session, result)
    created, command = run_record.now_iso(), options.command_line()
    json.write(sanitize.sanitize_record(session, results, created=created, command=command))
    return int(sanitize.sanitize_exit_code(results, strict=strict))


def _head(to: Console, session: Session) -> None:
    run = session.run
    where = (
        f"{run.target.executor.name}, {run.target.gpu.name}"
        if run.target.gpu
        else run.target.device
    )
    calls = f"{session.calls} call{'s' if session.calls > 1 else ''}"
    parts = [session.shape.name, where, str(session.tool), calls, run.classes[0]]
    text = " · ".join([*parts, f"seed {session.seed}"])
    to.print(Text.assemble((f"{run.step.name}  ", "bold"), text))
    for note in session.notes:
        to.say(f"  {note}", "dim")


def _result(to: Console, session: Session, result: ToolResult) -> None:
    line = Text.assemble(
        f"{result.tool:<10} ", (result.status, _STYLES.get(result.status, "bold red"))
    )
    to.print(line.append(_summary(session, result)))
    open_ = [finding for finding in result.findings if not finding.explanation]
    for label, finding in (("first", next(iter(open_), None)), *_explanations(result)):
        if finding is not None:
            to.say(f"  {label}: {_described(session, finding)}")
    for note in result.notes:
        to.say(f"  note: {note}", "dim")
    to.say(f"  log: {result.log}", "dim")


def _summary(session: Session, result: ToolResult) -> str:
    known = sum(bool(finding.explanation) for finding in result.findings)
    text = f": {result.reason}" if result.reason else ""
    if result.status == "findings":
        text += f": {result.count - known}" + (f", and {known} explained" if known else "")
    elif result.status == "explained":
        text += f": {known} with a known cause of false positives"
        if session.run.step.compiled:
            text += f"; `kernelbench check {session.run.step.name}` follows what racecheck misses"
    if result.elsewhere:
        text += f"; {result.elsewhere} in kernels that are not the step's"
    return text


def _explanations(result: ToolResult) -> list[tuple[str, SanitizerFinding]]:
    """The first finding of each explanation, with how many have it."""
    groups: dict[str, list[SanitizerFinding]] = {}
    for finding in result.findings:
        if finding.explanation:
            groups.setdefault(finding.explanation, []).append(finding)
    return [
        (f"explained ×{len(group)}: {explanation}; the first", group[0])
        for explanation, group in groups.items()
    ]


def _described(session: Session, finding: SanitizerFinding) -> str:
    text = finding.text
    if finding.kernel:
        text += f" in {finding.kernel}"
    places = finding.places(session.own_files)
    if places:
        text += " at " + " and ".join(f"{place.file}:{place.line}" for place in places[:2])
    return text
