"""A pytest plug-in: kernels as test cases, in anyone's repository.

Installed with kernelbench, it gives tests the fixture ``kernelbench`` (:class:`KernelTests`) and
the marker ``kernelbench_needs``, which skips a test, with a reason, where something is lacking.
Where a skipped test must not look like a pass, ``pytest --kernelbench-no-skip`` fails it instead.

Nothing is imported before a test asks for it: the plug-in is loaded in every session of pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelbench.checks.report import CheckReport
    from kernelbench.compare.comparison import Comparison
    from kernelbench.records.run_record import RunRecord
    from kernelbench.runs.settings import Names

T = TypeVar("T")

MARKER = "kernelbench_needs"
_MARKER_HELP = (
    f"{MARKER}(gpu=False, arch=None, step=None, module=None): skip where there is no GPU, none of "
    "that arch (sm_90a, ...), nothing that runs that step, or no such Python module."
)
_NO_SKIP = "--kernelbench-no-skip"


class KernelTests:
    """What the fixture ``kernelbench`` gives: the library's functions, and assertions on them.

    Steps, shapes and options are those of :func:`kernelbench.run`, :func:`kernelbench.ab` and
    :func:`kernelbench.check`, in the project of the current folder. Nothing is saved unless
    ``save=True`` is given.
    """

    def run(self, steps: Names, shapes: Names | None = None, **options: Any) -> RunRecord:
        """:func:`kernelbench.run`."""
        from kernelbench.runs.api import run

        __tracebackhide__ = True
        return _called(run, steps, shapes, **options)

    def ab(self, base: str, cand: str, shapes: Names | None = None, **options: Any) -> Comparison:
        """:func:`kernelbench.ab`."""
        from kernelbench.compare.api import ab

        __tracebackhide__ = True
        return _called(ab, base, cand, shapes, **options)

    def check(self, steps: Names, shapes: Names | None = None, **options: Any) -> CheckReport:
        """:func:`kernelbench.check`."""
        from kernelbench.checks.api import check

        __tracebackhide__ = True
        return _called(check, steps, shapes, **options)

    def assert_correct(
        self, steps: Names, shapes: Names | None = None, **options: Any
    ) -> RunRecord:
        """Every step is right on every input class of every shape; nothing is timed.

        A shape that is beyond a step's limits is left out, but not every one of them.
        """
        __tracebackhide__ = True
        record = self.run(steps, shapes, timed=False, **options)
        bad = (*record.failures, *record.unjudged)
        _require([f"{r.step} {r.shape} {r.inputs}: {r.status}: {r.reason}" for r in bad])
        if len(record.skipped) == len(record.results):
            _require([f"{r.step} {r.shape}: skipped: {r.reason}" for r in record.skipped])
        return record

    def assert_clean(
        self, steps: Names, shapes: Names | None = None, **options: Any
    ) -> CheckReport:
        """The checker finds no hang, race, misused barrier or wrong bit in any schedule."""
        __tracebackhide__ = True
        report = self.check(steps, shapes, **options)
        rows = [row for row in report.rows() if row["status"] != "clean"]
        bad = [row for row in rows if row["status"] != "skipped"]
        if len(rows) == len(report.rows()):
            bad = rows
        _require(
            [
                f"{row['step']} {row['shape']}: {row['status']}: "
                + "; ".join(row["findings"] or [row["reason"]])
                for row in bad
            ]
        )
        return report

    def assert_not_slower(
        self, cand: str, than: str, shapes: Names | None = None, **options: Any
    ) -> Comparison:
        """``cand`` is right, and on no shape slower than ``than`` as far as one can tell.

        It fails on SLOWER, and on AMBIGUOUS with a best estimate that is a loss beyond the margin.

        Raises:
            kernelbench.NotTimed: If no times that stand for a device can be taken here.
        """
        __tracebackhide__ = True
        from kernelbench.records.metrics import METRICS

        found = self.ab(than, cand, shapes, **options)
        decided = [line for line in found.lines if line.metric == found.metric]
        slow = [
            f"{cand} {line.collected.shape.name}: {line.verdict.label} than {than}: "
            f"{line.verdict.estimate.base_us:.2f} → {line.verdict.estimate.cand_us:.2f} "
            f"{METRICS[line.metric].symbol} "
            f"({100 * line.verdict.estimate.change:+.2f}%)"
            for line in decided
            if line.verdict.label == "SLOWER" or line.verdict.may_be_slower
        ]
        _require(slow)
        return found


def _called(function: Callable[..., T], *names: Any, **options: Any) -> T:
    """Call it; its errors point at the line of the test, not into kernelbench."""
    from kernelbench.base.errors import KernelbenchError

    __tracebackhide__ = True
    try:
        return function(*names, **options)
    except KernelbenchError as error:
        raise error.with_traceback(None) from None


def _require(wrong: list[str]) -> None:
    """Fail with what is wrong, a line each, and without the lines of this file."""
    __tracebackhide__ = True
    if wrong:
        raise AssertionError("\n".join(wrong))


@pytest.fixture(name="kernelbench")
def kernel_tests() -> KernelTests:
    """kernelbench's functions, and assertions on what they return."""
    return KernelTests()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--kernelbench-no-skip``."""
    parser.getgroup("kernelbench").addoption(
        _NO_SKIP, action="store_true", help=f"Fail what the marker {MARKER} would skip."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", _MARKER_HELP)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs what is not here; with ``--kernelbench-no-skip`` it fails."""
    __tracebackhide__ = True
    for marker in item.iter_markers(MARKER):
        if marker.args:
            pytest.fail(f"{MARKER} takes its arguments by name", pytrace=False)
        lacking = _lacking(**marker.kwargs)
        if lacking and item.config.getoption(_NO_SKIP):
            pytest.fail(f"{lacking} ({_NO_SKIP})", pytrace=False)
        if lacking:
            # As of the test and not of this file, in the summary.
            raise pytest.skip.Exception(lacking, _use_item_location=True)


def _lacking(
    *,
    gpu: bool = False,
    arch: str | None = None,
    step: str | None = None,
    module: str | None = None,
) -> str:
    """What of this the machine lacks, in one line; empty if nothing."""
    import importlib.util

    from kernelbench.machine import devices

    found = devices.gpus() if gpu or arch else ()
    if (gpu or arch) and not found:
        return f"no GPU: {devices.gpu_problem()}"
    if arch and not any(arch.startswith(each.arch) for each in found):
        return f"no GPU of {arch}: this is {', '.join(each.name for each in found)}"
    if module and importlib.util.find_spec(module.partition(".")[0]) is None:
        return f"{module} is not installed"
    return _not_runnable(step) if step else ""


def _not_runnable(name: str) -> str:
    from kernelbench.executors.targets import runnable
    from kernelbench.project.context import Context

    works, why = runnable(Context.find().lineages.get(name))
    return "" if works else f"{name} cannot run here: {why}"
