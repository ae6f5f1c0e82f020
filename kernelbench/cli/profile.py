"""``kernelbench profile``."""

from __future__ import annotations

from collections.abc import Callable

import click

from kernelbench.base.console import Console, Status, Text, show
from kernelbench.base.errors import EnvironmentProblem
from kernelbench.cli import options, tool_options
from kernelbench.cli.options import RecordOutput
from kernelbench.cli.tool_options import Subject
from kernelbench.inspection import profile
from kernelbench.inspection.nsight_counters import Launch
from kernelbench.inspection.profile import ProfileRecord, ProfileRequest
from kernelbench.records import run_record

_NONE = "–"


@click.command(
    "profile",
    epilog="\b\nExamples:\n"
    "  kernelbench profile m02\n"
    "  kernelbench profile m02 --shape qwen35 --kernel multiply_experts\n"
    "  kernelbench profile m02 --no-counters --json -",
)
@tool_options.subject_options("the problem's first benchmark shape")
@click.option(
    "--kernel", metavar="REGEX", help="Only kernels whose name, without namespace, matches."
)
@click.option(
    "--no-counters",
    is_flag=True,
    help="Durations by torch's profiler, the rest by the compilers; no Nsight Compute.",
)
@options.json_option
def command(subject: Subject, kernel: str | None, no_counters: bool, json: RecordOutput) -> None:
    """Print what each kernel of one call of STEP does with the GPU.

    Nsight Compute runs every kernel several times, alone and with empty caches; clocks are left as
    they are. Durations are for comparing kernels with each other: `run` measures. Where the
    hardware counters cannot be read, what can be had without them is printed, and it leaves with 5.
    """
    run = subject.plan(small=False)
    request = ProfileRequest(run, subject.seed, kernel, not no_counters, subject.timeout)
    profile.check_request(request)
    with Status() as status:
        record = profile.profile(
            request, status, created=run_record.now_iso(), command=options.command_line()
        )
    _render(json.people, record)
    json.write(record)
    if not record.counters and not no_counters:
        raise EnvironmentProblem(f"no hardware counters: {record.why_not}", profile.hint(record))


def _render(to: Console, record: ProfileRecord) -> None:
    parts = [record.shape, record.device, record.tool, record.inputs, f"seed {record.seed}"]
    to.print(Text.assemble((f"{record.step}  ", "bold"), " · ".join(parts)))
    if not record.counters:
        label = f"without hardware counters ({record.why_not})"
        to.say(label, "bold yellow")
    rows = [{head: cell(launch) for head, cell in _COLUMNS.items()} for launch in record.launches]
    show(rows, to, right={*_COLUMNS} - {"kernel", "top stalls"})
    if record.total is not None:
        to.print(
            f"one call: {record.total.busy_us:.1f} µs of kernels and copies, caches warm; bytes of "
            f"the problem / time: {record.total.bytes_per_second / 1e12:.2f} TB/s"
        )
    if record.missing and record.counters:
        names = ", ".join(record.missing)
        to.say(f"{_NONE}: ncu has no value here for {names}", "dim")
    if record.log:
        to.say(f"log: {record.log}", "dim")


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{value:.1f} %"


def _occupancy(launch: Launch) -> str:
    return f"{_percent(launch.occupancy_pct)} of {_percent(launch.occupancy_limit_pct)}"


def _count(value: int | None, unit: str = "") -> str:
    return _NONE if value is None else f"{value}{unit}"


def _stalls(launch: Launch) -> str:
    stalls = [f"{stall.reason} {100 * stall.share:.0f} %" for stall in launch.stalls]
    return ", ".join(stalls) or _NONE


_COLUMNS: dict[str, Callable[[Launch], str]] = {
    "kernel": lambda launch: launch.kernel,
    "µs": lambda launch: _NONE if launch.duration_us is None else f"{launch.duration_us:.2f}",
    "DRAM": lambda launch: _percent(launch.dram_pct),
    "tensor pipe": lambda launch: _percent(launch.tensor_pct),
    "occupancy": _occupancy,
    "registers": lambda launch: _count(launch.registers),
    "shared memory": lambda launch: _count(launch.shared_bytes, " B"),
    "L2 hits": lambda launch: _percent(launch.l2_hit_pct),
    "top stalls": _stalls,
}
