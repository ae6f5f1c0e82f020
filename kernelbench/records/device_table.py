"""The tables of a device: the newest figures of every step, shape and L2 state.

``results/<device>/table.csv`` and ``table.md`` hold the same rows, for programs and for readers.
The CSV file is also the index that a save updates, so that no older record has to be read.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelbench.base.errors import RecordError
from kernelbench.base.table import Row, csv_text
from kernelbench.records.metrics import METRICS, Metric, Metrics, Summary, WithMetrics, shown
from kernelbench.records.run_record import FAILED, UNKNOWN, Result, ResultStatus, RunRecord
from kernelbench.records.tables import fraction_cell, natural

#: A reason is told in full by its record; the table has room for its beginning.
_REASON_LENGTH = 120


@dataclass(frozen=True)
class TableRow(WithMetrics):
    """One step on one shape in one L2 state, over all input classes of the run."""

    step: str
    shape: str
    executor: str
    l2: str  #: ``cold``, ``warm``, or ``none`` where nothing was timed on a GPU.
    #: ``pass`` if every class that ran is right; else that of the first that is not.
    status: ResultStatus
    #: Whether every class is right to the last bit; None if none ran to its end.
    exact: bool | None
    classes: int  #: Number of input classes that ran.
    #: ``max_abs_err``, ``rel_rms_err``: The largest of the classes.
    max_abs_err: float | None
    rel_rms_err: float | None
    metrics: Metrics  #: Of the class that was timed.
    sol_us: float | None
    run: str  #: When the run ended, as its identifier begins: ``20261120T224026Z``.
    reason: str  #: Why the status is not ``pass``.

    @property
    def date(self) -> str:
        """The day of the run."""
        return f"{self.run[:4]}-{self.run[4:6]}-{self.run[6:8]}"


TableKey = tuple[str, str, str]


def key_of(row: TableRow) -> TableKey:
    """What a table has one row of: step, shape and L2 state."""
    return row.step, row.shape, row.l2


def table_rows(run: RunRecord) -> list[TableRow]:
    """The rows of one run. What was skipped has none: nothing is known of it."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in run.results:
        if result.status not in UNKNOWN:
            groups.setdefault((result.step, result.shape), []).append(result)
    return [_row(run, results) for results in groups.values()]


def _row(run: RunRecord, results: Sequence[Result]) -> TableRow:
    first = next((each for each in results if each.status in FAILED), results[0])
    timed = next((each for each in results if each.metrics), first)
    exact = [each.exact for each in results if each.exact is not None]
    return TableRow(
        step=first.step,
        shape=first.shape,
        executor=first.executor,
        l2=run.protocol.l2,
        status=first.status,
        exact=all(exact) if exact else None,
        classes=len({each.inputs for each in results}),
        max_abs_err=_largest(each.max_abs_err for each in results),
        rel_rms_err=_largest(each.rel_rms_err for each in results),
        metrics={name: _rounded(each) for name, each in timed.metrics.items()},
        sol_us=None if timed.sol_us is None else float(f"{timed.sol_us:.3g}"),
        run=run.id.partition("-")[0],
        reason=first.reason[:_REASON_LENGTH],
    )


def _largest(errors: Iterable[float | None]) -> float | None:
    largest = max((error for error in errors if error is not None), default=None)
    return None if largest is None else float(f"{largest:.2g}")


def _rounded(stats: Summary) -> Summary:
    """What a table holds of a summary: medians of five significant digits, percentiles of three."""
    low, high = (float(f"{value:.3g}") for value in (stats.p05, stats.p95))
    return _kept(float(f"{stats.median:.5g}"), low, high, stats.reps, stats.method)


def _kept(median: float, low: float, high: float, reps: int, method: str) -> Summary:
    return Summary(median, None, None, low, high, None, reps, method)


def merged(
    known: Mapping[TableKey, TableRow], runs: Iterable[RunRecord]
) -> dict[TableKey, TableRow]:
    """``known`` with the rows of runs that are no older than what it has, in natural order."""
    rows = dict(known)
    for run in runs:
        for row in table_rows(run):
            old = rows.get(key_of(row))
            if old is None or old.run <= row.run:
                rows[key_of(row)] = row
    return {key: rows[key] for key in sorted(rows, key=natural)}


# --- CSV ------------------------------------------------------------------------------------------

#: How values that are not figures are written.
_WORDS: dict[bool | str | None, str] = {True: "yes", False: "no", None: "", "none": ""}
_REMEDY = "make it anew with `kernelbench results tables`"
_COLUMNS = (
    "step", "shape", "executor", "l2", "status", "exact", "classes", "max_abs_err", "rel_rms_err",
    "run", "reason", "sol_us",
)  # fmt: skip


def _columns(metrics: Iterable[Metric]) -> tuple[str, ...]:
    """The headings of a file with these metrics; device and call it always has."""
    return (*_COLUMNS, *(column for name in metrics for column in _metric_columns(name)))


def _metric_columns(name: Metric) -> tuple[str, ...]:
    figures = (f"{name}_{figure}_{METRICS[name].unit}" for figure in ("median", "p05", "p95"))
    return (*figures, f"{name}_reps", f"{name}_method")


def write_csv(rows: Iterable[TableRow]) -> str:
    """A CSV file with a header line.

    Medians have five significant digits, percentiles and speed of light three, errors two; the
    records have all of them. An empty method is the usual one of its metric; empty reps are the
    device time's, and an empty run is that of the row before. A row ends with its last cell that
    is not empty: most rows have no times.
    """
    rows = list(rows)
    metrics = shown(rows)
    table = [_csv_row(row, metrics) for row in rows]
    for cells, row, before in zip(table[1:], rows[1:], rows, strict=False):
        if row.run == before.run:
            cells["run"] = ""
    return csv_text(table, ragged=True)


def write_csv_of(devices: Mapping[str, Iterable[TableRow]]) -> str:
    """The rows of several devices, with a first column that says whose they are."""
    every = [(device, row) for device, rows in devices.items() for row in rows]
    metrics = shown(row for _, row in every)
    return csv_text([{"device": device} | _csv_row(row, metrics) for device, row in every])


def _csv_row(row: TableRow, metrics: Sequence[Metric]) -> Row:
    cells = [
        *(row.step, row.shape, row.executor, _WORDS.get(row.l2, row.l2), row.status),
        *(_WORDS[row.exact], row.classes, _number(row.max_abs_err), _number(row.rel_rms_err)),
        *(row.run, " ".join(row.reason.split()), _number(row.sol_us)),
        *(cell for name in metrics for cell in _metric_cells(name, row.metrics)),
    ]
    return dict(zip(_columns(metrics), cells, strict=True))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _metric_cells(name: Metric, metrics: Metrics) -> list[object]:
    of = metrics.get(name)
    if of is None:
        return [""] * len(_metric_columns(name))
    known = name != "device" and "device" in metrics and metrics["device"].reps == of.reps
    method = "" if of.method == METRICS[name].method else of.method
    reps = "" if known else of.reps
    return [_number(of.median), _number(of.p05), _number(of.p95), reps, method]


def read_csv(path: Path) -> dict[TableKey, TableRow]:
    """The rows of a ``table.csv``; RecordError if broken, which ``rebuild_tables`` mends."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        reader = csv.DictReader(lines, restkey="beyond", restval="", strict=True)
        head = tuple(reader.fieldnames or ())
        metrics = [name for name in METRICS if f"{name}_reps" in head]
        if head != _columns(metrics):
            raise ValueError("other columns than this version writes")
        rows: list[TableRow] = []
        for cells in reader:
            cells["run"] = cells["run"] or rows[-1].run
            rows.append(_read_row(cells, metrics))
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, LookupError, csv.Error) as error:
        raise RecordError(f"{path} is not a table of this version: {error}", _REMEDY) from error
    return {key_of(row): row for row in rows}


def _read_row(cells: Mapping[str, str], metrics: Sequence[Metric]) -> TableRow:
    status = cells["status"]
    if "beyond" in cells:
        raise ValueError("a row with more cells than columns")
    if status not in ("pass", *FAILED):
        raise ValueError(f"status {status!r}")
    return TableRow(
        step=cells["step"],
        shape=cells["shape"],
        executor=cells["executor"],
        l2=cells["l2"] or "none",
        status=status,
        exact={"yes": True, "no": False, "": None}[cells["exact"]],
        classes=int(cells["classes"]),
        max_abs_err=_read_number(cells["max_abs_err"]),
        rel_rms_err=_read_number(cells["rel_rms_err"]),
        metrics={name: found for name in metrics if (found := _read_metric(cells, name))},
        sol_us=_read_number(cells["sol_us"]),
        run=cells["run"],
        reason=cells["reason"],
    )


def _read_number(text: str) -> float | None:
    return float(text) if text else None


def _read_metric(cells: Mapping[str, str], name: Metric) -> Summary | None:
    median, low, high, reps, method = (cells[column] for column in _metric_columns(name))
    if not median:
        return None
    reps, method = reps or cells["device_reps"], method or METRICS[name].method
    return _kept(float(median), float(low), float(high), int(reps), method)


# --- Markdown -------------------------------------------------------------------------------------

_INTRODUCTION = (
    "The newest run of each step, shape and L2 state, over all input classes; `runs/` has the "
    "records, with driver, toolkit and protocol."
)
_CAPTION = (
    "Medians in µs; 5th–95th percentile in brackets. Fraction = speed of light / device time (call "
    "time where that is all there is)."
)
_TOGETHER = "The errors are the largest of a row's shapes; `table.csv` has each."
_CHECKED = ("step", "shape", "executor", "status", "exact", "max abs err", "rel rms err", "date")
_TIMED = (*_CHECKED[:3], "L2", *_CHECKED[3:-1])
_TIMED_LAST = ("speed of light µs", "fraction", "date")


def write_markdown(device: str, newest: str, rows: Sequence[TableRow]) -> str:
    """The rows for readers: what was timed, then what was only checked.

    Args:
        device: Name of the GPU or CPU.
        newest: Identifier of the newest run that the rows are from, skipped ones included.
        rows: One for each step, shape and L2 mode.
    """
    timed = [row for row in rows if row.metrics]
    checked = [row for row in rows if not row.metrics]
    metrics = shown(timed)
    head = [*_TIMED, *(f"{name} {METRICS[name].symbol}" for name in metrics), *_TIMED_LAST]
    lines = [
        f"<!-- Generated by kernelbench from the records up to {newest}; do not edit. -->",
        f"# {device}",
        "",
        _INTRODUCTION,
    ]
    if timed:
        lines += ["", "## Timed", "", _CAPTION, ""]
        lines += _lines(head, [_timed_cells(row, metrics) for row in timed])
    if checked:
        lines += ["", "## Checked, not timed", "", _TOGETHER, ""]
        lines += _lines(_CHECKED, [_checked_cells(row) for row in _together(checked)])
    return "\n".join(lines) + "\n"


def read_head(path: Path) -> tuple[str, str]:
    """The device of a ``table.md``, and the newest run that it knows; or RecordError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecordError(f"cannot read {path}: {error}") from error
    found = re.match(r"<!-- .* up to (\S+); .*\n# (.+)\n", text)
    if found is None:
        raise RecordError(f"{path} is not a table of this version", _REMEDY)
    return found[2], found[1]


def _lines(head: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    # No blanks around the bars: the table has hundreds of lines.
    rule = ["---"] * len(head)
    cells = ([cell.replace("|", "\\|") for cell in row] for row in body)
    return ["|" + "|".join(row) + "|" for row in (head, rule, *cells)]


def _timed_cells(row: TableRow, metrics: Sequence[Metric]) -> list[str]:
    step, shape, executor, *others, date = _checked_cells(row)
    return [
        *(step, shape, executor, row.l2, *others),
        *(_metric_cell(row.metrics.get(name)) for name in metrics),
        "" if row.sol_us is None else f"{row.sol_us:.2f}",
        fraction_cell(row.sol_us, row.time),
        date,
    ]


def _checked_cells(row: TableRow) -> list[str]:
    reason = " ".join(row.reason.split())
    return [
        *(row.step, row.shape, row.executor, f"{row.status}: {reason}" if reason else row.status),
        _WORDS[row.exact],
        *("" if e is None else f"{e:.3g}" for e in (row.max_abs_err, row.rel_rms_err)),
        row.date,
    ]


def _together(rows: Iterable[TableRow]) -> list[TableRow]:
    """Shapes of a step of which all but the errors is the same as one row, with the largest."""
    groups: dict[tuple[object, ...], list[TableRow]] = {}
    for row in rows:
        same = (row.step, row.executor, row.status, row.reason, row.exact, row.date)
        groups.setdefault(same, []).append(row)
    return [
        replace(
            group[0],
            shape=", ".join(row.shape for row in group),
            max_abs_err=_largest(row.max_abs_err for row in group),
            rel_rms_err=_largest(row.rel_rms_err for row in group),
        )
        for group in groups.values()
    ]


def _metric_cell(of: Summary | None) -> str:
    return "" if of is None else f"{of.median:.2f} [{of.p05:g}–{of.p95:g}] n={of.reps} {of.method}"
