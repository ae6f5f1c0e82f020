"""Steps whose only change is how the call is put together: the kernel and the rest stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelbench.project.source_files import own_sources, sources_of
from kernelbench.project.step_files import read_lineage, read_step

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


@pytest.mark.parametrize(
    ("parent", "step", "before", "after"),
    [("v04", "v05", "tensors", "tuples"), ("v22", "v23", "tuples", "direct")],
)
def test_only_the_marshalling_differs(parent: str, step: str, before: str, after: str) -> None:
    lineage = read_lineage(KERNELS)
    old, new = (read_step(KERNELS / name, lineage) for name in (parent, step))
    assert old.config | {"marshal": after} == new.config
    assert (old.config["marshal"], new.config["marshal"]) == (before, after)
    assert (old.arch, old.limits) == (new.arch, new.limits)
    assert own_sources(new) == {}
    assert sources_of(new) == sources_of(old)
