"""What a lineage's source reports of its steps: captions and columns of figures."""

from __future__ import annotations

from collections.abc import Sequence

from kernelbench.project.model import Reported, Step

METRIC_NAMES = {"call": "call time", "device": "device time", "end-to-end": "end to end"}
UNITS = {"us": "µs", "TFLOPS": "TFLOPS"}


def caption(reported: Reported) -> str:
    """What the figures are: metric, unit, device and source, and that nobody measured them here."""
    source = f" by {reported.source}" if reported.source else ""
    return (
        f"reported on {reported.device}{source} ({METRIC_NAMES[reported.metric]}, "
        f"{UNITS[reported.unit]}), not measured here"
    )


def shapes_of(steps: Sequence[Step]) -> list[str]:
    """The shapes that any step has a reported figure for, in order of appearance."""
    shapes: dict[str, None] = {}
    for step in steps:
        if step.reported:
            shapes.update(dict.fromkeys(step.reported.values))
    return list(shapes)


def figures(step: Step, shapes: Sequence[str]) -> list[str]:
    """A step's reported figures, one per shape; ``–`` where there is none."""
    values = step.reported.values if step.reported else {}
    return [str(values[shape]) if shape in values else "–" for shape in shapes]
