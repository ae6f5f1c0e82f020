"""A problem's data: tensors in tuples, lists, dictionaries and objects, and anything else.

Objects are dataclasses, ``torch.nn`` modules and whatever the task has a class of its own for; a
copy of one has copies of its attributes.

A *path* says where a tensor is: keys and positions from the root. In a *pattern* the positions in
lists are left open, so that one pattern names the C of every group.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from kernelbench.problems.stateful_outputs import same_bits

Path = tuple[Any, ...]
_OWN_MODULES = ("reference", "task", "utils")
_PLAIN = (int, float, str, bytes, bool, type(None), torch.dtype, torch.device, torch.Size)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Everything that is no container, with its path, in order."""
    items = _items(value)
    if items is None:
        yield path, value
        return
    for key, item in items:
        yield from leaves(item, (*path, key))


def tensor_leaves(value: Any) -> list[tuple[Path, torch.Tensor]]:
    """The tensors, with their paths, in order."""
    return [(path, leaf) for path, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def pattern(path: Path) -> Path:
    """A path with positions in lists left open."""
    return tuple("*" if isinstance(key, _ListIndex) else key for key in path)


def rebuilt(value: Any, change: Callable[[Path, Any], Any], path: Path = ()) -> Any:
    """A copy of the containers with every leaf replaced by what ``change`` gives for it."""
    items = _items(value)
    if items is None:
        return change(path, value)
    made = [rebuilt(item, change, (*path, key)) for key, item in items]
    if isinstance(value, Mapping):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind(zip(value, made, strict=True))
    if isinstance(value, list):
        return made
    if isinstance(value, tuple):
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    twin = copy.copy(value)
    for (key, _), item in zip(items, made, strict=True):
        object.__setattr__(twin, key, item)
    return twin


def cloned(value: Any) -> Any:
    """A deep copy: tensors by their values and strides, anything unknown as ``copy`` does it.

    A tensor that is there twice is one tensor in the copy, too.
    """
    made: dict[int, Any] = {}

    def clone(_: Path, leaf: Any) -> Any:
        if id(leaf) not in made:
            made[id(leaf)] = _clone(leaf)
        return made[id(leaf)]

    return rebuilt(value, clone)


def has_objects(value: Any) -> bool:
    """Whether there is an object that may change during a call, and that is no tensor."""
    items = _items(value)
    if items is None:
        return not isinstance(value, (torch.Tensor, *_PLAIN)) and not _is_code(value)
    return _attributes(value) is not None or any(has_objects(item) for _, item in items)


def renewed(value: Any) -> Any:
    """The same tensors, in copies of everything around them: for a call that may change it."""
    return rebuilt(value, lambda _, leaf: leaf if isinstance(leaf, torch.Tensor) else _clone(leaf))


def constants(value: Any) -> tuple[Any, ...]:
    """What is no tensor and can be compared, with its path."""
    return tuple((path, leaf) for path, leaf in leaves(value) if isinstance(leaf, _PLAIN))


def structure(value: Any) -> frozenset[Path]:
    """The patterns of all tensors: the same for all sizes of one task, as a rule."""
    return frozenset(pattern(path) for path, _ in tensor_leaves(value))


def equal_tensors(one: Any, other: Any) -> bool:
    """Whether two draws have the same tensors at the same places, bit by bit."""
    first, second = tensor_leaves(one), tensor_leaves(other)
    return len(first) == len(second) and all(
        (p, a.shape, a.dtype) == (q, b.shape, b.dtype) and (not is_strided(a) or same_bits(a, b))
        for (p, a), (q, b) in zip(first, second, strict=True)
    )


def is_strided(tensor: torch.Tensor) -> bool:
    """Whether it is an ordinary tensor, neither sparse nor opaque."""
    return tensor.layout is torch.strided


def spread(value: Any) -> Any:
    """The same with tensors whose elements share memory made contiguous."""

    def change(_: Path, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not is_strided(leaf):
            return leaf
        shared = any(n > 1 and step == 0 for n, step in zip(leaf.shape, leaf.stride(), strict=True))
        return leaf.detach().contiguous() if shared else leaf

    return rebuilt(value, change)


def with_tensors(value: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """``value`` with copies of these in place of its tensors, in order.

    Args:
        tensors: As :func:`kernelbench.problems.stateful_outputs.plain` gives them.
    """
    left = iter(tensors)

    def change(_: Path, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        copied = next(left).clone()
        return torch.view_as_complex(copied) if leaf.is_complex() else copied

    return rebuilt(value, change)


class _ListIndex(int):
    """A position in a list, whose length may differ from shape to shape."""


def _items(value: Any) -> list[tuple[Any, Any]] | None:
    """Keys and items of a container; None for a leaf."""
    if isinstance(value, list):
        return [(_ListIndex(index), item) for index, item in enumerate(value)]
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return list(enumerate(value))
    if isinstance(value, Mapping):
        return list(value.items())
    attributes = _attributes(value)
    return None if attributes is None else list(attributes.items())


def _attributes(value: Any) -> dict[str, Any] | None:
    """The attributes of an object that is copied with them; None for anything else."""
    if isinstance(value, type | torch.Tensor) or _is_code(value):
        return None
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    known = isinstance(value, torch.nn.Module | SimpleNamespace)
    if known or type(value).__module__ in _OWN_MODULES:
        return getattr(value, "__dict__", None)
    return None


def _is_code(value: Any) -> bool:
    return isinstance(value, type | ModuleType) or inspect.isroutine(value)


def _clone(leaf: Any) -> Any:
    if isinstance(leaf, _PLAIN):
        return leaf
    if type(leaf) is torch.Tensor:
        twin = leaf.detach().clone()
        return twin.requires_grad_() if leaf.requires_grad else twin
    try:
        return copy.deepcopy(leaf)
    except Exception:  # a process group, a stream, a lock: shared, as the server shares it
        return leaf
