"""Output storage: guard bands and random poison."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelbench.project.arena import GUARD_BYTES, GuardedOutputs, bits, describe_tensor

SHAPES = ([3, 5], [1], [7, 2, 2])


@pytest.fixture(params=[torch.float16, torch.float32, torch.bfloat16], ids=str)
def arena(request: pytest.FixtureRequest) -> Any:
    """Three outputs, poisoned, with the poison."""
    found = GuardedOutputs(SHAPES, request.param, "cpu")
    poison = found.draw_poison(5)
    found.fill(poison)
    return found, poison


def test_views_are_apart_by_a_guard_band_at_both_ends(arena: Any) -> None:
    found, _ = arena
    assert [list(view.shape) for view in found.views] == [list(shape) for shape in SHAPES]
    size = found.flat.element_size()
    ends = [0]
    for (start, count), view in zip(found.spans, found.views, strict=True):
        assert view.is_contiguous()
        assert view.storage_offset() == start
        assert (start - ends[-1]) * size >= GUARD_BYTES
        assert start * size % 1024 == 0
        ends.append(start + count)
    assert (found.flat.numel() - ends[-1]) * size >= GUARD_BYTES


def test_poison_is_random_but_reproducible(arena: Any) -> None:
    found, poison = arena
    assert torch.equal(bits(found.draw_poison(5)), bits(poison))
    other = found.draw_poison(6)
    same = (bits(other) == bits(poison)).float().mean()
    assert same < 0.01
    assert len(bits(poison).unique()) > 0.5 * min(poison.numel(), 65536) ** 0.98 * 0.9
    assert torch.equal(bits(found.flat), bits(poison))


def test_writing_inside_is_allowed(arena: Any) -> None:
    found, poison = arena
    for view in found.views:
        view.fill_(1)
    assert found.guards_intact(poison)
    assert sum(int(mask.sum()) for mask in found.unwritten(poison)) == 0


def test_every_element_outside_is_guarded(arena: Any) -> None:
    found, poison = arena
    inside = {i for start, count in found.spans for i in range(start, start + count)}
    edges = [start - 1 for start, _ in found.spans] + [s + n for s, n in found.spans]
    for index in (0, *edges, found.flat.numel() - 1):
        assert index not in inside
        bits(found.flat)[index] ^= 1
        assert not found.guards_intact(poison)
        bits(found.flat)[index] ^= 1
    assert found.guards_intact(poison)


def test_unwritten_elements_are_located(arena: Any) -> None:
    found, poison = arena
    found.views[0].fill_(1)
    found.views[2][1:].fill_(1)
    first, second, third = found.unwritten(poison)
    assert int(first.sum()) == 0
    assert bool(second.all())
    assert third.tolist() == [True] * 4 + [False] * 24


def test_nan_poison_is_compared_by_bits() -> None:
    found = GuardedOutputs([[4]], torch.float16, "cpu")
    poison = torch.full_like(found.flat, float("nan"))
    found.fill(poison)
    assert found.guards_intact(poison)
    assert bool(found.unwritten(poison)[0].all())


def test_descriptions() -> None:
    assert describe_tensor(torch.zeros(2, 3)) == "float32[2, 3] on cpu"
    assert describe_tensor(None) == "NoneType"
    assert describe_tensor("x") == "str"
