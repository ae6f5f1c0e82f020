"""What a step returned, validated but for its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelbench.project.arena import describe_tensor


def stored_items(result: Any) -> list[Any] | None:
    """The items of a list or a tuple; None of anything else.

    A subclass is none: its methods could still compute what was to be returned. The named tuples of
    torch's own functions are, as they have no methods in Python.
    """
    if type(result) is list or type(result) is tuple:
        return [*result]
    if type(result).__module__ == "torch.return_types" and issubclass(type(result), tuple):
        return [*tuple.__iter__(result)]
    return None


def check_tensors(result: Any, expected: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The list of tensors in ``result``, each plain, strided, with storage, and like ``expected``.

    Subclasses of ``torch.Tensor`` are refused: they can compute when they are compared.

    Raises:
        ValueError: With one line that says which output is wrong and what was expected.
    """
    values = stored_items(result)
    if values is None:
        raise ValueError(
            f"returned {describe_tensor(result)}: expected a list of {len(expected)} tensors"
        )
    if len(values) != len(expected):
        raise ValueError(f"returned {len(values)} outputs: expected {len(expected)}")
    for index, (value, like) in enumerate(zip(values, expected, strict=True)):
        _check_tensor(f"output {index}", value, like)
    return values


def _check_tensor(what: str, value: Any, like: torch.Tensor) -> None:
    wanted = describe_tensor(like)
    if not isinstance(value, torch.Tensor):
        raise ValueError(f"{what} is {describe_tensor(value)}: expected {wanted}")
    if type(value) is not torch.Tensor:
        raise ValueError(f"{what} is a {type(value).__name__}: expected a plain torch.Tensor")
    if value.layout is not torch.strided:
        raise ValueError(f"{what} has layout {value.layout}: expected a strided tensor")
    if value.shape != like.shape or value.dtype != like.dtype or value.device != like.device:
        raise ValueError(f"{what} is {describe_tensor(value)}: expected {wanted}")
    if value.untyped_storage().data_ptr() == 0:
        raise ValueError(f"{what} has no storage: expected {wanted}")
