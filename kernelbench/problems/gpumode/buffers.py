"""Which tensors of a task's data are outputs or state, and their storage.

A task may hand its submission the tensors to write, and nothing in the format marks them. So they
are found by trying, with the task's own reference:

* an *output* is a tensor that the reference writes or returns, or the last floating-point one of an
  output's shape, on whose old values its result does not depend (two trials with other values in
  it);
* *state* is what the reference changes and also reads: a cache that it appends to, a sum that it
  adds to. It is put back before every call.

Everything else a submission must leave as it is. Outputs are poisoned before every call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelbench.problems import pytree
from kernelbench.problems.stateful_outputs import same_bits
from kernelbench.project.arena import bits, plain

_TRIALS = (11, 12)
#: Tensors that are tried one by one, if they are not all outputs.
_MAX_TRIED = 8


@dataclass(frozen=True)
class Roles:
    """The patterns of paths (:func:`kernelbench.problems.pytree.pattern`) by role."""

    outputs: frozenset[pytree.Path] = frozenset()
    state: frozenset[pytree.Path] = frozenset()


def find_roles(
    data: Any, reference: Callable[[Any], Any], right: Callable[[Any, Any], bool]
) -> Roles:
    """Find outputs and state by calling the reference on copies of ``data``.

    Args:
        reference: The task's ``ref_kernel``.
        right: Whether a result is right for some data, as the task judges it; changes neither.
    """
    probe = pytree.cloned(data)
    results = [tensor for _, tensor in pytree.tensor_leaves(reference(probe))]
    pointers = {t.untyped_storage().data_ptr() for t in results if t.layout is torch.strided}
    before = dict(pytree.tensor_leaves(data))
    aliased, changed = [], []
    for path, tensor in pytree.tensor_leaves(probe):
        if tensor.layout is not torch.strided or not tensor.numel():
            continue
        if tensor.untyped_storage().data_ptr() in pointers:
            aliased.append(pytree.pattern(path))
        if not same_bits(tensor, before[path]):
            changed.append(pytree.pattern(path))
    touched = list(dict.fromkeys([*aliased, *changed]))

    def unread(patterns: Iterable[pytree.Path]) -> bool:
        chosen = frozenset(patterns)
        return all(_survives(data, chosen, seed, reference, right) for seed in _TRIALS)

    outputs = set(touched) if touched and unread(touched) else set()
    if not outputs and len(touched) > 1:
        outputs = {one for one in touched[:_MAX_TRIED] if unread([one])}
    last = _last_like(data, results)
    if last is not None and last not in touched and unread([last]):
        outputs.add(last)
    return Roles(frozenset(outputs), frozenset(set(changed) - outputs))


def _last_like(data: Any, results: Sequence[torch.Tensor]) -> pytree.Path | None:
    """The last tensor of the data, if it looks like a floating-point result of any precision."""
    found = pytree.tensor_leaves(data)
    if len(found) < 2:
        return None
    path, tensor = found[-1]
    like = any(r.shape == tensor.shape and r.is_floating_point() for r in results)
    return pytree.pattern(path) if like and tensor.is_floating_point() else None


def _survives(
    data: Any,
    patterns: frozenset[pytree.Path],
    seed: int,
    reference: Callable[[Any], Any],
    right: Callable[[Any, Any], bool],
) -> bool:
    """Whether the reference is right with other values in these tensors."""
    spoiled = pytree.cloned(data)
    for path, tensor in pytree.tensor_leaves(spoiled):
        if pytree.pattern(path) in patterns:
            _overwrite(tensor, seed)
    try:
        return right(data, pytree.cloned(reference(spoiled)))
    except Exception:  # it does depend on them
        return False


def _overwrite(tensor: torch.Tensor, seed: int) -> None:
    """Finite values of 0 or more: others could cost the process, in a reference that reads them."""
    generator = torch.Generator().manual_seed(seed)
    if tensor.is_floating_point() and tensor.element_size() > 1:
        drawn = torch.randn(tensor.shape, generator=generator).abs() * 3
        plain(tensor).copy_(drawn.to(tensor.dtype))
    elif tensor.is_complex():
        plain(tensor).copy_(torch.randn(plain(tensor).shape, generator=generator))
    else:
        drawn = torch.randint(0, 2, tensor.shape, generator=generator, dtype=torch.uint8)
        small = tensor.is_floating_point()
        (bits(tensor) if small else tensor).copy_(drawn * 0x38 if small else drawn)
