"""Steps whose only change is how the call is put together: the kernel and the rest stay."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"


def config(step: str) -> dict[str, Any]:
    with (KERNELS / step / "step.toml").open("rb") as stream:
        return dict(tomllib.load(stream)["config"])


@pytest.mark.parametrize(
    ("parent", "step", "before", "after"),
    [("v04", "v05", "tensors", "tuples"), ("v22", "v23", "tuples", "direct")],
)
def test_only_the_marshalling_differs(parent: str, step: str, before: str, after: str) -> None:
    old, new = config(parent), config(step)
    assert (old.pop("marshal"), new.pop("marshal")) == (before, after)
    assert old == new
    for name in ("kernel.cuh", "launch.cu"):
        assert (KERNELS / parent / name).read_bytes() == (KERNELS / step / name).read_bytes()
