"""A lineage's tree as one grid of text, for the terminal and for Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelbench.base.table import Row, markdown
from kernelbench.executors.targets import find_executor
from kernelbench.lineages.tree import Measured, Node, Tree, TreeVerdict
from kernelbench.project.model import UNITS


@dataclass(frozen=True)
class Grid:
    """A table of text."""

    rows: tuple[Row, ...]
    right: tuple[str, ...]  #: Headings of the columns of figures.
    notes: tuple[str, ...]  #: What a reader of the columns must know, a line each.


def grid(tree: Tree) -> Grid:
    """The table of one lineage: a row per step, in the order of the tree."""
    timed = [(device, shape) for device in tree.devices for shape in tree.shapes]
    timed = [where for where in timed if any(_best(node, *where) for node in tree.nodes)]
    reported = {
        shape: UNITS[node.reported.unit]
        for shape in tree.shapes
        for node in tree.nodes
        if node.reported and shape in node.reported.values
    }
    heads = {shape: f"{shape} reported {unit}" for shape, unit in reported.items()}
    measured = {where: f"{where[1]} measured µs {_short(where[0])}" for where in timed}
    against = [_verdicts(node, tree.shapes) for node in tree.nodes]
    right_on = [_right_on(node) for node in tree.nodes]
    # A column that says nothing takes the room of one that does.
    told = [("against its parent", against), ("right on", right_on)]
    told = [(heading, cells) for heading, cells in told if any(cells)]
    rows = [
        {
            "step": node.prefix + node.step,
            "status": node.status,
            "what changes": node.title,
            **{heading: _reported(node, shape) for shape, heading in heads.items()},
            **{heading: _measured(_best(node, *where)) for where, heading in measured.items()},
            **{heading: cells[i] or "–" for heading, cells in told},
        }
        for i, node in enumerate(tree.nodes)
    ]
    right = (*heads.values(), *measured.values())
    return Grid(tuple(rows), right, tuple(_notes(tree, [*reported], timed)))


def _short(device: str) -> str:
    return device.removeprefix("NVIDIA ")


def _reported(node: Node, shape: str) -> str:
    values = node.reported.values if node.reported else {}
    return f"{values[shape]:g}" if shape in values else "–"


def _best(node: Node, device: str, shape: str) -> Measured | None:
    """The node's time there, cold before warm."""
    fitting = [m for m in node.measured if (m.device, m.shape) == (device, shape)]
    return min(fitting, key=lambda measured: measured.l2 != "cold", default=None)


def _measured(measured: Measured | None) -> str:
    if measured is None:
        return "–"
    marks = ["call"] if measured.metric == "call" else []
    marks += [measured.l2] if measured.l2 != "cold" else []
    return " ".join([f"{measured.time.median:.1f}", *marks])


def _verdicts(node: Node, shapes: Sequence[str]) -> str:
    """Verdicts on the shown shapes; on a call's time only where there is none on the device's."""
    on_device = {_setting(verdict) for verdict in node.verdicts if verdict.metric == "device"}
    shown = [
        verdict
        for verdict in node.verdicts
        if verdict.shape in shapes
        and (verdict.metric == "device" or _setting(verdict) not in on_device)
    ]
    return "; ".join(_verdict(verdict, node.step, len(shapes) > 1) for verdict in shown)


def _setting(verdict: TreeVerdict) -> tuple[str, ...]:
    return verdict.base, verdict.cand, verdict.device, verdict.shape, verdict.l2


def _verdict(verdict: TreeVerdict, step: str, with_shape: bool) -> str:
    parts = [verdict.shape] if with_shape else []
    parts += [f"{verdict.cand} is"] if verdict.cand != step else []
    parts += [verdict.verdict]
    if verdict.change is not None:
        parts.append(f"{100 * verdict.change:+.1f}%".replace("-", "−"))
    parts += [f"on {_short(verdict.device)}"]
    marks = [verdict.metric] if verdict.metric != "device" else []
    marks += [verdict.l2] if verdict.l2 not in ("", "cold") else []
    parts += [f"({', '.join(marks)})"] if marks else []
    return " ".join(parts)


def _right_on(node: Node) -> str:
    """``E 9/10 G 4``: per executor, on how many shapes the newest runs were right."""
    parts = []
    for checked in node.checked:
        total = len(checked.right) + len(checked.wrong)
        count = str(total) if not checked.wrong else f"{len(checked.right)}/{total}"
        executor = find_executor(checked.executor)
        parts.append(f"{executor.letter if executor else checked.executor} {count}")
    return " ".join(parts)


def _notes(tree: Tree, reported: Sequence[str], timed: Sequence[tuple[str, str]]) -> list[str]:
    notes = [f"{', '.join(reported)}: {caption}" for caption in tree.captions if reported]
    notes += [f"{n.step}: {n.reported.note}" for n in tree.nodes if n.reported and n.reported.note]
    for device in dict.fromkeys(device for device, _ in timed):
        dates = [m.created[:10] for node in tree.nodes for m in node.measured if m.device == device]
        notes.append(
            f"measured: median µs of `kernelbench run` on {device}, the device's time with a cold "
            f"L2 where nothing else is said; newest of {max(dates)}"
        )
    if any(node.verdicts for node in tree.nodes):
        notes.append(
            "against its parent: the newest line of the ledger, change of time (PARENT is …: the "
            "parent's time against the step's); `kernelbench log --step STEP` has all of them"
        )
    if any(node.checked for node in tree.nodes):
        notes.append(
            "right on: shapes on which the newest run was right; G: a GPU of the step's arch, "
            "S: gpu-soft, E: the emulator, T: torch on the CPU; only G has times"
        )
    notes += [f"{n.step} checked: {n.last_check}" for n in tree.nodes if n.last_check]
    elsewhere = sorted({m.shape for node in tree.nodes for m in node.measured} - {*tree.shapes})
    if elsewhere:
        notes.append(f"also measured, see --shape: {', '.join(elsewhere)}")
    return notes


def tree_markdown(tree: Tree) -> str:
    """The tree as a Markdown section, notes below the table."""
    found = grid(tree)
    lines = [f"## {tree.lineage}", "", tree.title, "", *markdown(found.rows, found.right)]
    lines += ["", *(f"* {note}" for note in found.notes)] if found.notes else []
    return "\n".join(lines) + "\n"
