"""The live form of the gate: measure the current steps against those of another revision.

Both revisions' steps run interleaved in one process, so drift of a shared machine falls on both. A
SLOWER is measured once more in fresh processes before it fails the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernelbench.base.seeds import derive
from kernelbench.compare.comparer import ArmFailure, Comparer, VerdictRules, estimate, identical
from kernelbench.compare.gate_report import GateReport, GateRow, LiveRow, RowStatus, from_live
from kernelbench.compare.session_samples import SessionSamples
from kernelbench.project.context import Context
from kernelbench.project.registry import Lineages, Step
from kernelbench.records.metrics import Metric
from kernelbench.runs.runner import StepRun
from kernelbench.stats.estimate import Estimate
from kernelbench.stats.inference import Verdict, family
from kernelbench.worker.launcher import Launcher

Against = Literal["predecessor", "best"]


@dataclass
class _Pair:
    """One comparison to make: a step of the other revision against the current one."""

    plan: StepRun
    shape: Any
    against: Against
    base: Step
    verdict: Verdict | None = None
    again: Verdict | None = None
    failure: str = ""
    missing: str = ""


@dataclass
class LiveGate:
    """Compares plans of the current revision with one or two others."""

    context: Context
    launcher: Launcher
    rules: VerdictRules  #: How samples are judged; the device is known once something was measured.
    sessions: int
    metric: Metric
    call_limit_s: float
    on_progress: Callable[[str], None] = lambda _text: None
    #: One line per SLOWER that was measured again.
    confirmations: list[str] = field(default_factory=list, init=False)

    def run(
        self,
        plans: Sequence[StepRun],
        predecessor: Lineages,
        best: Lineages | None,
        *,
        notes: Sequence[str] = (),
        fail_on: tuple[RowStatus, ...] = (),
    ) -> GateReport:
        """Compare every plan, shape by shape, and report.

        Args:
            plans: Steps with their shapes.
            predecessor: The lineages of the revision before.
            best: Those of the best revision, if one is kept.
            notes: Lines for the reader.
            fail_on: Beside what always fails: ``ambiguous``, ``skipped``.
        """
        extra: list[GateRow] = []
        pairs: list[_Pair] = []
        for plan in plans:
            pairs += self._pairs(plan, predecessor, best, extra)
        extra += self._gone(predecessor, plans)
        measured = [(pair, self._measure(pair, "first")) for pair in pairs]
        judged = [(pair, found) for pair, found in measured if found is not None]
        for (pair, _), verdict in zip(judged, family([e for _, e in judged]), strict=True):
            pair.verdict = verdict
        for pair in pairs:
            if pair.verdict is not None and pair.verdict.label == "SLOWER":
                self._confirm(pair, pair.verdict.estimate)
        report = from_live(
            self._live_rows(pairs), device=self.rules.device or "no device",
            notes=(*notes, *self.confirmations), fail_on=fail_on,
        )  # fmt: skip
        return replace(report, rows=(*report.rows, *extra))

    def _pairs(
        self, plan: StepRun, predecessor: Lineages, best: Lineages | None, extra: list[GateRow]
    ) -> list[_Pair]:
        old = _same_step(plan.step, predecessor)
        if old is None:
            extra.append(self._row(plan.step.name, "", "new", "not in the baseline"))
            return []
        pairs = []
        same = identical(old, plan.step)
        former = _same_step(plan.step, best) if best is not None else None
        if former is not None and (identical(former, plan.step) or identical(former, old)):
            former = None
        for shape in plan.shapes:
            if shape.name in plan.skip:
                extra.append(
                    self._row(plan.step.name, shape.name, "skipped", plan.skip[shape.name])
                )
                continue
            if same and former is None:
                extra.append(
                    self._row(plan.step.name, shape.name, "ok", "identical code, not timed")
                )
            elif not same:
                pairs.append(_Pair(plan, shape, "predecessor", old))
            if former is not None:
                pairs.append(_Pair(plan, shape, "best", former))
        return pairs

    def _row(self, step: str, shape: str, status: RowStatus, reason: str) -> GateRow:
        return GateRow(step, shape, "", self.metric, status, reason)

    def _gone(self, predecessor: Lineages, plans: Sequence[StepRun]) -> list[GateRow]:
        """Steps that ran in the baseline and are not here any more fail closed."""
        now = {step.name: step for step in self.context.lineages.steps}
        lineages = {plan.step.lineage for plan in plans}
        rows = []
        for step in predecessor.steps:
            if step.status == "planned" or step.lineage not in lineages:
                continue
            current = now.get(step.name)
            if current is None or current.status == "planned":
                reason = "in the baseline, gone now" if current is None else "planned again"
                rows.append(self._row(step.name, "", "missing", reason))
        return rows

    def _measure(self, pair: _Pair, label: str) -> Estimate | None:
        plan, rules = pair.plan, self.rules
        comparer = Comparer(
            self.launcher, pair.base, plan.step, plan.lineage, plan.target, plan.classes,
            rules.timing, derive(rules.seed, pair.against, plan.step.name, label),
            self.call_limit_s,
            lambda text: self.on_progress(f"{plan.step.name} against {pair.against}: {text}"),
        )  # fmt: skip
        collected = SessionSamples(pair.shape)
        try:
            with comparer:
                comparer.collect(collected, self.sessions)
        except ArmFailure as failure:
            if failure.arm == "base":
                pair.missing = f"the {pair.against} cannot be compared with: {failure.message}"
            else:
                pair.failure = failure.message
            return None
        finally:
            if comparer.environment is not None:
                self.rules = replace(rules, device=comparer.environment.device)
        return estimate(collected, self.metric, self.rules)

    def _confirm(self, pair: _Pair, first: Estimate) -> None:
        """Measure a SLOWER once more, in fresh processes with new inputs and order."""
        second = self._measure(pair, "confirmation")
        name = f"{pair.plan.step.name} {pair.shape.name}"
        if second is None:
            self.confirmations.append(f"{name}: the confirmation run failed")
            return
        pair.again = family([second])[0]
        self.confirmations.append(
            f"{name} against {pair.against}: {100 * first.change:+.2f}%, measured again "
            f"{100 * second.change:+.2f}%: "
            + ("confirmed" if pair.again.label == "SLOWER" else "not confirmed")
        )

    def _live_rows(self, pairs: Sequence[_Pair]) -> list[LiveRow]:
        grouped: dict[tuple[str, str], list[_Pair]] = {}
        for pair in pairs:
            grouped.setdefault((pair.plan.step.name, pair.shape.name), []).append(pair)
        rows = []
        for (step, shape), group in grouped.items():
            by: dict[str, _Pair] = {pair.against: pair for pair in group}
            slower = [p for p in group if p.verdict is not None and p.verdict.label == "SLOWER"]
            first, second = by.get("predecessor"), by.get("best")
            rows.append(
                LiveRow(
                    step,
                    shape,
                    self.metric,
                    against_predecessor=first.verdict if first is not None else None,
                    against_best=second.verdict if second is not None else None,
                    confirmed=any(p.again and p.again.label == "SLOWER" for p in slower),
                    again=max(
                        (p.again.estimate for p in slower if p.again),
                        key=lambda each: each.change - each.margin,
                        default=None,
                    ),
                    failure=next((p.failure for p in group if p.failure), ""),
                    missing=next((p.missing for p in group if p.missing), ""),
                    same_code=first is None,
                )
            )
        return rows


def _same_step(step: Step, lineages: Lineages | None) -> Step | None:
    """The runnable step of the same name in another revision."""
    steps = lineages.steps if lineages is not None else ()
    return next((s for s in steps if s.name == step.name and s.status != "planned"), None)
