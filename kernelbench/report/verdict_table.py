"""The verdicts of the ledger inside a lineage's README: what each idea gained here."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.base.markdown import table
from kernelbench.lineages.tree import TreeVerdict, verdicts_between
from kernelbench.project.registry import Step
from kernelbench.records import ledger

VERDICT_MARKERS = ("<!-- verdicts:begin -->", "<!-- verdicts:end -->")

_METRICS = ("device", "call")


def verdict_table(steps: Sequence[Step], comparisons: Sequence[ledger.LedgerEntry]) -> str:
    """Markdown: one line per comparison of a step and its parent, device, shape and L2 mode.

    Args:
        steps: Of one lineage, in order.
        comparisons: Of any steps, oldest first; the newest of each kind counts.
    """
    groups: dict[tuple[str, ...], dict[str, TreeVerdict]] = {}
    for step in steps:
        for verdict in verdicts_between(step.parent, step.name, comparisons):
            key = (verdict.base, verdict.cand, verdict.device, verdict.shape, verdict.l2)
            groups.setdefault(key, {})[verdict.metric] = verdict
    if not groups:
        return "Nothing has been compared yet."
    devices = dict.fromkeys(f"{device}, {l2} L2" for _, _, device, _, l2 in groups)
    days = sorted(v.created[:10] for of in groups.values() for v in of.values())
    where = f"{' and '.join(devices)}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    lines = [f"`kernelbench ab` on {where}: change of time with its 95 % interval.", ""]
    head = ["comparison", "shape", "what changes", "device time", "call time"]
    rows = []
    for (base, cand, _, shape, _), verdicts in groups.items():
        why = next(iter(verdicts.values())).why or "–"
        cells = [_cell(verdicts.get(metric)) for metric in _METRICS]
        rows.append([f"{base} → {cand}", shape, why, *cells])
    return "\n".join([*lines, *table(head, rows)])


def _cell(verdict: TreeVerdict | None) -> str:
    if verdict is None:
        return "–"
    if verdict.change is None or verdict.ci is None:
        return verdict.verdict
    low, high = verdict.ci
    return f"{verdict.change:+.2%} [{low:+.2%}, {high:+.2%}] {verdict.verdict}"
