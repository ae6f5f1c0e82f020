"""How a comparison looks on the terminal: conclusion first, one line per shape and metric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernelbench.base import console
from kernelbench.base.table import Row
from kernelbench.compare.comparison import Comparison, ComparisonLine
from kernelbench.compare.session_plan import SessionPlan
from kernelbench.lineages.source_diff import changed_files, counted
from kernelbench.records.metrics import METRICS, is_time


def p_text(p: float) -> str:
    """A p-value in at most five characters: ``.0003``, ``.61``, ``1.00``, ``<1e-4``."""
    if p < 1e-4:
        return "<1e-4"
    if p >= 0.995:
        return "1.00"
    text = f"{p:.4f}" if p < 0.01 else f"{p:.2f}"
    return text.removeprefix("0")


class View(console.Watching):
    """What is shown before the comparison is there."""

    def planned(self, plan: SessionPlan) -> None:
        """How many sessions a power takes, and how long, before they begin."""
        time = "" if plan.seconds is None else f"; about {plan.seconds:.0f} s"
        console.err.print(
            f"{plan.sessions} session{'' if plan.sessions == 1 else 's'} a shape: a slowdown of "
            f"{plan.detect:.2%} is found beyond {plan.margin:.2%} in {plan.power:.0%} of cases, by "
            f"{plan.source}{time}"
        )


def compared(comparison: Comparison, explain: bool) -> None:
    """The table, next steps, what changed in the source, what was reported."""
    title = _title(comparison)
    if not comparison.lines:
        # Two steps whose code is the same need no timing.
        console.out.print(
            f"[bold]{title}[/bold]  [bold]SAME[/bold]  identical code: "
            "sources, configuration and Python glue have the same hash; nothing was timed"
        )
        return
    labels = Counter(comparison.verdicts.values())
    summary = " · ".join(f"{count} {label.lower()}" for label, count in labels.items())
    deciding = next(line for line in comparison.lines if line.metric == comparison.metric)
    estimate = deciding.verdict.estimate
    l2 = f"{comparison.timing.l2} L2" if "device" in comparison.timing.metrics else "wall clock"
    console.out.print(
        f"[bold]{title}[/bold]  {console.escape(comparison.device)}  "
        f"{comparison.sessions} × {estimate.reps // estimate.sessions}/arm  abba  {l2}  "
        f"[bold]{summary}[/bold] by {METRICS[comparison.metric].title}"
    )
    _print_table(comparison)
    if comparison.same_code:
        _dim("identical code: whatever differs is the noise of this device and method")
    for remark in dict.fromkeys(r for line in comparison.lines for r in line.collected.remarks):
        _dim(remark)
    for line in comparison.lines:
        _print_after(line, explain)
    _print_delta(comparison)
    _print_reported(comparison, [collected.shape.name for collected in comparison.collected])
    busy = sum(collected.busy_s for collected in comparison.collected)
    kept = " · in the ledger" if comparison.ledger_id else ""
    hypothesis = f" · why: {comparison.why}" if comparison.why else ""
    _dim(f"timed and flushed {busy:.2f} s · seed {comparison.seed}{kept}{hypothesis}")


#: By whether a result is exact; None where only a task's own check knows.
_HOW_RIGHT = {
    True: ", every bit",
    False: ", within the problem's bound",
    None: ", by the task's own check",
}


def not_timed(comparison: Comparison) -> None:
    """What can be said without times."""
    console.out.print(
        f"[bold]{_title(comparison)}[/bold]  [bold yellow]NOT MEASURED[/bold yellow]  "
        + console.escape(comparison.not_timed)
    )
    for row in comparison.checks:
        text = f"  {row.step} {row.shape} {row.inputs}: {row.status}"
        if row.reason:
            text += f": {row.reason}"
        elif row.status == "pass":
            text += _HOW_RIGHT[row.exact]
        console.out.say(text)
    _print_delta(comparison)
    _print_reported(comparison, comparison.shapes)
    unchecked = "" if comparison.checks else "; --check checks both here"
    console.out.say(f"→ {comparison.settled_by}{unchecked}")


def _title(comparison: Comparison) -> str:
    return console.escape(f"ab {comparison.base.name}→{comparison.cand.name}")


def _dim(text: str) -> None:
    console.out.say(f"  {text}", "dim")


def _print_table(comparison: Comparison) -> None:
    usual = comparison.lines[0].verdict.estimate.alpha == 0.05
    interval = "95% CI" if usual else "CI"
    base, cand = comparison.base.name, comparison.cand.name
    again = f"{cand} µs" if cand != base else f"{cand} again µs"
    rows: list[Row] = []
    for line in comparison.lines:
        estimate = line.verdict.estimate
        low, high = estimate.change_ci
        mhz = line.collected.sm_mhz(line.metric)
        sol = 100 * line.sol_us / estimate.cand_us if line.sol_us else None
        method = line.collected.methods[line.metric]
        unit = "" if is_time(line.metric) else f" {METRICS[line.metric].symbol}"
        rows.append(
            {
                "shape": line.collected.shape.name,
                "time": line.metric + (" (prof)" if method == "profiler" else ""),
                f"{base} µs": f"{estimate.base_us:.2f}{unit}",
                again: f"{estimate.cand_us:.2f}{unit}",
                "Δ": f"{100 * estimate.change:+.2f}%",
                interval: f"[{100 * low:+.2f}, {100 * high:+.2f}]",
                "p(Holm)": p_text(line.verdict.p_holm),
                "Welch p": p_text(estimate.welch.p),
                "MHz": f"{mhz:.0f}" if mhz else "–",
                "of SOL": f"{sol:.0f}%" if sol else "–",
                "verdict": console.styled(str(line.verdict)),
            }
        )
    spare = [["MHz"], ["of SOL"], ["Welch p"], ["p(Holm)"]]
    right = {*rows[0]} - {"shape", "time", interval, "verdict"}
    console.show(rows, right=right, center=[interval], prose="shape", spare=spare)


def _print_after(line: ComparisonLine, explain: bool) -> None:
    verdict, estimate = line.verdict, line.verdict.estimate
    where = f"{line.collected.shape.name} {line.metric}"
    if verdict.reason:
        step = f" → {verdict.next_step}" if verdict.next_step else ""
        console.out.say(f"→ {where}: {verdict.reason}{step}")
    for note in dict.fromkeys(line.collected.notes.get(line.metric, [])):
        _dim(f"{where}: {note}")
    if explain:
        details = (
            f"blocks {estimate.blocks} (dropped {estimate.dropped}), s_d "
            f"{100 * estimate.s_d:.3f}%, SE {100 * estimate.se:.3f}%, df {estimate.df:.1f}, "
            f"MDE {100 * estimate.mde:.2f}%, margin {100 * estimate.margin:.2f}% "
            f"({estimate.margin_source}), rho1 {estimate.rho1:+.2f}, ESS {estimate.ess:.0f}, "
            f"p(permutation) {p_text(estimate.p_perm)}, Welch t {estimate.welch.t:.2f} "
            f"df {estimate.welch.df:.0f}, tick/t {100 * estimate.tick_fraction:.2f}%"
        )
        _dim("; ".join((f"{where}: {details}", *estimate.notes)))


def _print_delta(comparison: Comparison) -> None:
    base, cand = comparison.base, comparison.cand
    if base is not cand:
        compiled = [s.name for s in (base, cand) if s.built or s.kind == "triton"]
        inspect = f" · resources: kernelbench inspect {' '.join(compiled)}" if compiled else ""
        _dim(f"source: {counted(changed_files(base, cand))}{inspect}")


def _print_reported(comparison: Comparison, shapes: Sequence[str]) -> None:
    base, cand = comparison.base.reported, comparison.cand.reported
    if base is None or cand is None or base is cand or base.unit != cand.unit:
        return
    parts = [
        f"{shape} {base.values[shape]:g} → {cand.values[shape]:g} {base.unit.replace('us', 'µs')} "
        f"({100 * (cand.values[shape] / base.values[shape] - 1):+.1f}%)"
        for shape in shapes
        if shape in base.values and shape in cand.values
    ]
    if parts:
        _dim(f"reported on {cand.device}: {', '.join(parts)}")
