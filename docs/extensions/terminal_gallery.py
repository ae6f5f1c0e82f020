"""The directive ``terminal-gallery``: what a command prints at several widths, from saved records.

It is drawn when the pages are built, by the code that prints it on a terminal. Nothing is run on a
GPU or an emulator for it: ``run``, ``ab`` and ``check`` show records that are in the repository.
"""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
CHECK = ROOT / "docs" / "pictures" / "check.json"
WIDTHS = (80, 100, 160)
#: The saved run and the entry of the ledger that are shown.
RUN = "20261122T173100Z-c5d482e4"
AB = "20261123T190240Z-be56cf41"


@contextmanager
def terminal(width: int) -> Iterator[io.StringIO]:
    """What is printed meanwhile, as on a terminal of this width."""
    from kernelbench.base import console

    text, before = io.StringIO(), console.out
    root = os.environ.get("KERNELBENCH_ROOT")
    os.environ["KERNELBENCH_ROOT"] = str(ROOT)
    console.out = console.terminal_of_width(width, text)
    try:
        yield text
    finally:
        console.out = before
        if root is None:
            del os.environ["KERNELBENCH_ROOT"]
        else:
            os.environ["KERNELBENCH_ROOT"] = root


def _command(*arguments: str) -> Callable[[], None]:
    def printed() -> None:
        from kernelbench.cli import invoke

        if invoke([*arguments]) != 0:
            raise RuntimeError(f"kernelbench {' '.join(arguments)} failed")

    return printed


def _run() -> None:
    from kernelbench.base import console
    from kernelbench.cli.run import RunView
    from kernelbench.records.run_record import read_run

    path = RESULTS / "nvidia-h200" / "runs" / f"{RUN}.json.gz"
    RunView(console.out).record(read_run(path))


@functools.cache
def _comparison() -> Any:
    """A comparison of the ledger, judged anew from its raw samples."""
    from kernelbench.base.json_file import read_json
    from kernelbench.compare.comparer import VerdictRules
    from kernelbench.compare.comparison import Comparison, judge
    from kernelbench.compare.session_samples import SessionSamples, block_samples
    from kernelbench.measure.results import TimedBlock
    from kernelbench.project.context import Context
    from kernelbench.records.ledger import read_ledger
    from kernelbench.worker.jobs import Timing

    entries = [entry for entry in read_ledger(RESULTS) if entry.id == AB]
    first, context = entries[0], Context.find()
    given = first.protocol
    timing = Timing(
        given["reps"], given["warmups"], given["l2"], "single", ("device", "call"), 0.0,
        given["batch"],
    )  # fmt: skip
    everything = []
    for shape in read_json(RESULTS / str(first.samples_file)):
        problem = context.problems[context.shapes.problem_of[shape["shape"]]]
        collected = SessionSamples(context.shapes[shape["shape"]])
        collected.work = problem.work(collected.shape)
        collected.methods = {entry.metric: entry.method for entry in entries}
        for session in shape["sessions"]:
            blocks = [
                TimedBlock(b["arm"], b["input"], b["t_us"], b["sm_mhz"], tuple(b["throttle"]))
                for b in session["blocks"]
            ]
            samples = block_samples(blocks, shape["shape"])
            collected.sessions.setdefault(session["metric"], []).append(samples)
            collected.clocks.setdefault(session["metric"], []).extend(
                block.sm_mhz for block in blocks if block.sm_mhz
            )
        everything.append(collected)
    steps, seed = context.lineages, given["seed"]
    rules = VerdictRules(RESULTS, timing, 0.05, 0.005, seed, first.device)
    return Comparison(
        steps.get(first.base.step), steps.get(first.cand.step), "device", timing, seed,
        given["sessions"], tuple(each.shape.name for each in everything), first.why, first.device,
        judge(everything, rules), ledger_id=AB,
    )  # fmt: skip


def _ab() -> None:
    from kernelbench.cli.ab_view import compared

    compared(_comparison(), explain=False)


def _check() -> None:
    from kernelbench.base import console
    from kernelbench.checks.report import read_check
    from kernelbench.cli.check_view import View

    report = read_check(CHECK)
    View(console.out, report.request.max_findings).results(report.steps, report.unmatched)


#: What is shown: the command line, and what prints its result.
SHOWN: dict[str, tuple[str, Callable[[], None]]] = {
    "run": ("kernelbench run h07 --shape all", _run),
    "list": ("kernelbench list moe", _command("list", "moe")),
    "show": ("kernelbench show m13 --shape qwen35", _command("show", "m13", "--shape", "qwen35")),
    "ab": ("kernelbench ab m15 m16", _ab),
    "check": ("kernelbench check v07", _check),
}


def printed(name: str, width: int) -> str:
    """What a command of :data:`SHOWN` prints at this width, without blanks at ends."""
    with terminal(width) as text:
        SHOWN[name][1]()
    # How long it took is in no record.
    shown = re.sub(r"timed and flushed 0\.00 s\s·\s", "", text.getvalue())
    return "\n".join(line.rstrip() for line in shown.rstrip().splitlines())


class TerminalGallery(SphinxDirective):
    """``terminal-gallery``: every command at every width."""

    def run(self) -> list[nodes.Node]:
        """The blocks, a paragraph with command and width before each."""
        found: list[nodes.Node] = []
        for name, (command, _) in SHOWN.items():
            for width in WIDTHS:
                head = nodes.paragraph()
                head += [nodes.literal(text=command), nodes.Text(f", {width} columns")]
                block = nodes.literal_block(text=printed(name, width))
                block["language"] = "none"
                found += [head, block]
        return found


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_directive("terminal-gallery", TerminalGallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
