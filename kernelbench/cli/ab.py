"""``kernelbench ab``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kernelbench.base import console
from kernelbench.base.errors import ExitCode, Interrupted, KernelbenchError
from kernelbench.cli import options
from kernelbench.stats.defaults import ALPHA, MARGIN, SESSIONS

if TYPE_CHECKING:
    from kernelbench.compare.comparison import Comparison


@click.command(
    "ab",
    epilog="\b\nExamples:\n"
    '  kernelbench ab v15 v16 --why "two accumulators hide the epilogue"\n'
    "  kernelbench ab v00 my_v00.py --shape D --sessions 5\n"
    "  kernelbench ab v21 v22 --metric call --fail-on slower\n"
    "  kernelbench ab m12 m13 --margin 0.2% --power 95% --detect 0.5%\n"
    "  kernelbench ab reference submission.py --task DIR --metric call\n"
    "  kernelbench ab v00 v00 --shape D          an A/A comparison of this device",
)
@options.step_argument("base")
@options.step_argument("cand")
@options.shape_option()
@options.count_option(
    "--sessions", f"Fresh processes per shape, {SESSIONS} if not given; 5 for figures to publish."
)
@options.metric_option("What decides; both times, or device time beside it, are shown on a GPU.")
@click.option(
    "--alpha", type=click.FloatRange(0, 0.5, True, True), default=ALPHA,
    help="Accepted probability of a false FASTER or SLOWER, over all lines together.",
)  # fmt: skip
@click.option(
    "--margin",
    type=options.Percent(),
    default=f"{MARGIN:.1%}",
    help="The smallest change that you care about.",
)
@click.option(
    "--power",
    type=options.Percent(),
    metavar="PERCENT",
    help="In place of --sessions: as many as find --detect with this probability.",
)
@click.option(
    "--detect",
    type=options.Percent(),
    metavar="PERCENT",
    help="The slowdown that --power speaks of. Default: twice the margin.",
)
@click.option("--why", default="", show_default=False, help="The hypothesis, kept in the ledger.")
@options.fail_on_option("slower", "ambiguous", "skipped")
@options.count_option(
    "--batch", "Device replays per event pair, for kernels of a few microseconds.", default=1
)
@click.option(
    "--inputs",
    metavar="CLASS",
    help="Input class to check and time (default: check all, time the first).",
)
@click.option("--executor", default="auto", metavar="NAME")
@options.task_option
@click.option("--check", is_flag=True, help="Check both also where they cannot be timed.")
@options.predict_option
@click.option("--explain", is_flag=True, help="Also print the details behind each verdict.")
@options.plot_option("changes and intervals")
@options.measuring_options
def command(
    base: str,
    cand: str,
    shapes: tuple[str, ...],
    fail_on: tuple[str, ...],
    explain: bool,
    plot_path: str | None,
    predict: bool,
    predict_on: str | None,
    predict_plot: str | None,
    predict_save: bool,
    **asked: Any,
) -> int:
    """Say whether CAND is really faster or slower than BASE.

    Both run interleaved in randomized ABBA quads; the verdict comes from paired block differences,
    corrected for the number of comparisons. Naming one step twice times it against itself. Where
    they cannot be timed, nothing runs: the answer is what is reported, and what would settle it.
    With --predict nothing is timed: a model says what the GPU would take, or that it cannot tell.
    """
    if predict or predict_on or predict_plot or predict_save:
        from kernelbench.cli import predict_view

        kept = predict_view.Kept(predict_plot, predict_save, shapes)
        predict_view.refuse_others("base", "cand", "shapes")
        return predict_view.show_ab(base, cand, shapes, predict_on, kept)
    from kernelbench.cli import ab_view
    from kernelbench.compare import api
    from kernelbench.compare.comparison import Comparison, NotTimed

    try:
        with ab_view.View() as view:
            comparison = api.ab(
                base, cand, shapes, save=True, command=options.command_line(), observer=view,
                **asked,
            )  # fmt: skip
    except NotTimed as error:
        ab_view.not_timed(error.partial)
        return int(error.exit_code)
    except (KernelbenchError, Interrupted) as error:
        if isinstance(error.partial, Comparison):
            ab_view.compared(error.partial, explain)
        raise
    ab_view.compared(comparison, explain)
    _plot(comparison, plot_path)
    return int(_exit_code(comparison, fail_on))


def _plot(comparison: Comparison, path: str | None) -> None:
    if path is None:
        return
    if not comparison.lines:
        console.warn("nothing was timed, so that nothing is drawn")
        return
    from kernelbench.report.verdict_plot import save_verdicts

    save_verdicts(comparison, path)
    console.err.print(f"wrote {path}")


def _exit_code(comparison: Comparison, fail_on: tuple[str, ...]) -> ExitCode:
    """What was asked for, the gravest first; a loss beyond the margin is never a pass of a gate."""
    labels = comparison.verdicts.values()
    if comparison.same_code:
        return ExitCode.PASS
    if "slower" in fail_on and "SLOWER" in labels:
        return ExitCode.REGRESSION
    unclear = "slower" in fail_on and comparison.beyond_margin
    if unclear or ("ambiguous" in fail_on and "AMBIGUOUS" in labels):
        return ExitCode.AMBIGUOUS
    if "skipped" in fail_on and len(labels) < len(comparison.shapes):
        return ExitCode.ENVIRONMENT
    return ExitCode.PASS
