"""How a comparison looks on the terminal: conclusion first, one line per shape and metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelbench.base import console
from kernelbench.compare.comparer import Collected
from kernelbench.lineages.line_counts import source_delta
from kernelbench.project.registry import Step
from kernelbench.records.run_record import Result
from kernelbench.runs.runner import StepRun
from kernelbench.worker.jobs import Timing

if TYPE_CHECKING:
    from kernelbench.compare.verdicts import ComparisonLine


def p_text(p: float) -> str:
    """A p-value in at most five characters: ``.0003``, ``.61``, ``1.00``, ``<1e-4``."""
    if p < 1e-4:
        return "<1e-4"
    if p >= 0.995:
        return "1.00"
    text = f"{p:.4f}" if p < 0.01 else f"{p:.2f}"
    return text.removeprefix("0")


class View:
    """Renders one comparison on stdout."""

    def __init__(self, base: Step, cand: Step) -> None:
        self._base = base
        self._cand = cand
        self._title = f"ab {base.name}→{cand.name}"

    def same_code(self) -> None:
        """Two steps whose code is the same need no timing."""
        console.out.print(
            f"[bold]{console.escape(self._title)}[/bold]  [bold]SAME[/bold]  identical code: "
            "sources, configuration and Python glue have the same hash; nothing was timed"
        )

    def skipped(self, *plans: StepRun) -> None:
        """Name the shapes that a step cannot run."""
        for step_plan in plans:
            for shape, reason in step_plan.skip.items():
                console.warn(f"{step_plan.step.name} cannot run {shape}: {reason}")

    def lines(
        self,
        lines: Sequence[ComparisonLine],
        device: str,
        sessions: int,
        timing: Timing,
        metric: str,
        same_code: bool,
        explain: bool,
    ) -> None:
        """The table, then next steps."""
        deciding = [line for line in lines if line.metric == metric]
        counts: dict[str, int] = {}
        for line in deciding:
            label = line.verdict.label
            counts[label] = counts.get(label, 0) + 1
        summary = " · ".join(f"{count} {label.lower()}" for label, count in counts.items())
        reps = deciding[0].verdict.estimate.reps // deciding[0].verdict.estimate.sessions
        l2 = f"{timing.l2} L2" if "device" in timing.metrics else "wall clock"
        console.out.print(
            f"[bold]{console.escape(self._title)}[/bold]  {console.escape(device)}  "
            f"{sessions} × {reps}/arm  abba  {l2}  [bold]{summary}[/bold] by {metric} time",
            soft_wrap=True,
        )
        table = console.make_table(
            [
                ("shape", "left"),
                ("time", "left"),
                (console.escape(f"{self._base.name} µs"), "right"),
                (console.escape(f"{self._cand.name} µs"), "right"),
                ("Δ", "right"),
                ("95% CI" if deciding[0].verdict.estimate.alpha == 0.05 else "CI", "center"),
                ("p(Holm)", "right"),
                ("Welch p", "right"),
                ("MHz", "right"),
                ("of SOL", "right"),
                ("verdict", "left"),
            ]
        )
        for line in lines:
            estimate = line.verdict.estimate
            low, high = estimate.change_ci
            mhz = line.collected.sm_mhz(line.metric)
            sol = 100 * line.sol_us / estimate.cand_us if line.sol_us else None
            method = line.collected.methods[line.metric]
            table.add_row(
                line.collected.shape.name,
                line.metric + (" (prof)" if method == "profiler" else ""),
                f"{estimate.base_us:.2f}",
                f"{estimate.cand_us:.2f}",
                f"{100 * estimate.change:+.2f}%",
                f"[{100 * low:+.2f}, {100 * high:+.2f}]",
                p_text(line.verdict.p_holm),
                p_text(estimate.welch.p),
                f"{mhz:.0f}" if mhz else "–",
                f"{sol:.0f}%" if sol else "–",
                console.styled(str(line.verdict)),
            )
        console.out.print(table)
        if same_code:
            text = "  identical code: whatever differs is the noise of this device and method"
            console.out.print(console.Text(text, style="dim"), soft_wrap=True)
        for remark in dict.fromkeys(r for line in lines for r in line.collected.remarks):
            console.out.print(console.Text(f"  {remark}", style="dim"), soft_wrap=True)
        for line in lines:
            self._after(line, explain)

    @staticmethod
    def _after(line: ComparisonLine, explain: bool) -> None:
        verdict, estimate = line.verdict, line.verdict.estimate
        where = f"{line.collected.shape.name} {line.metric}"
        if verdict.reason:
            step = f" → {verdict.next_step}" if verdict.next_step else ""
            console.out.print(console.Text(f"→ {where}: {verdict.reason}{step}"), soft_wrap=True)
        for note in dict.fromkeys(line.collected.notes.get(line.metric, [])):
            console.out.print(console.Text(f"  {where}: {note}", style="dim"), soft_wrap=True)
        if explain:
            details = (
                f"blocks {estimate.blocks} (dropped {estimate.dropped}), s_d "
                f"{100 * estimate.s_d:.3f}%, SE {100 * estimate.se:.3f}%, df {estimate.df:.1f}, "
                f"MDE {100 * estimate.mde:.2f}%, margin {100 * estimate.margin:.2f}% "
                f"({estimate.margin_source}), rho1 {estimate.rho1:+.2f}, ESS {estimate.ess:.0f}, "
                f"p(permutation) {p_text(estimate.p_perm)}, Welch t {estimate.welch.t:.2f} "
                f"df {estimate.welch.df:.0f}, tick/t {100 * estimate.tick_fraction:.2f}%"
            )
            notes = "; ".join(estimate.notes)
            console.out.print(
                console.Text(
                    f"  {where}: {details}" + (f"; {notes}" if notes else ""), style="dim"
                ),
                soft_wrap=True,
            )

    def footer(self, everything: Sequence[Collected], why: str, seed: int) -> None:
        """What changed in the source, what was reported, and where the comparison is kept."""
        self._delta()
        shapes = [collected.shape.name for collected in everything]
        self._reported(shapes)
        busy = sum(collected.busy_s for collected in everything)
        hypothesis = f" · why: {why}" if why else ""
        text = f"  timed and flushed {busy:.2f} s · seed {seed} · in the ledger{hypothesis}"
        console.out.print(console.Text(text, style="dim"), soft_wrap=True)

    def not_measured(self, rows: Sequence[Result], why_not: str, shapes: Sequence[str]) -> None:
        """What can be said without times."""
        console.out.print(
            f"[bold]{console.escape(self._title)}[/bold]  [bold yellow]NOT MEASURED[/bold yellow]  "
            + console.escape(why_not),
            soft_wrap=True,
        )
        for row in rows:
            text = f"  {row.step} {row.shape} {row.inputs}: {row.status}"
            if row.reason:
                text += f": {row.reason}"
            elif row.status == "pass":
                text += ", every bit" if row.exact else ", within the derived bound"
            console.out.print(console.Text(text), soft_wrap=True)
        self._delta()
        self._reported(shapes)

    def _delta(self) -> None:
        if self._base is not self._cand:
            delta = source_delta(self._base, self._cand)
            compiled = [step.name for step in (self._base, self._cand) if step.compiled]
            resources = ", ".join(compiled) or "none: no compiled code in either step"
            text = f"  source: {delta} · resources: {resources}"
            console.out.print(console.Text(text, style="dim"), soft_wrap=True)

    def _reported(self, shapes: Sequence[str]) -> None:
        base, cand = self._base.reported, self._cand.reported
        if base is None or cand is None or base is cand or base.unit != cand.unit:
            return
        parts = [
            f"{shape} {base.values[shape]:g} → {cand.values[shape]:g} {base.unit} "
            f"({100 * (cand.values[shape] / base.values[shape] - 1):+.1f}%)"
            for shape in shapes
            if shape in base.values and shape in cand.values
        ]
        if parts:
            console.out.print(
                console.Text(f"  reported on {cand.device}: {', '.join(parts)}", style="dim"),
                soft_wrap=True,
            )
