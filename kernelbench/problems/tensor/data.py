"""What an author's ``make_inputs`` gives, taken apart: tensors, plain values, and their layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelbench.problems import pytree
from kernelbench.problems.returned import stored_items
from kernelbench.project.arena import describe_tensor, shares_memory
from kernelbench.project.problem import Inputs


def tensors_of(data: Any) -> list[torch.Tensor]:
    """The tensors that a step may read; TypeError for none, or one that checks cannot look at."""
    found = []
    for path, value in pytree.tensor_leaves(data):
        where = "data" + "".join(f"[{key!r}]" for key in path)
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise TypeError(f"{where} is a {type(value).__name__} of layout {value.layout}: "
                            "expected a plain strided torch.Tensor")  # fmt: skip
        if any(
            stride == 0 and extent > 1
            for stride, extent in zip(value.stride(), value.shape, strict=True)
        ):
            raise TypeError(f"{where} is expanded (a stride of 0): give it memory, .contiguous()")
        if value.requires_grad:
            raise TypeError(f"{where} requires a gradient: use torch.no_grad() or .detach()")
        found.append(value)
    if not found:
        raise TypeError(f"expected a tensor, or a tuple or dict with tensors, found {data!r:.80}")
    return found


def plain_of(data: Any) -> tuple[Any, ...]:
    """What is not a tensor, in order."""
    return tuple(value for _, value in pytree.leaves(data) if not isinstance(value, torch.Tensor))


def with_outputs(data: Any, outputs: Mapping[str, torch.Tensor]) -> Any:
    """The data that a step gets: the author's, then the outputs to be written.

    A dict gets them by name; a tuple, list or single tensor becomes a tuple that ends with them.

    Raises:
        TypeError: If a dict has one of the names already.
    """
    if not outputs:
        return data
    if isinstance(data, Mapping):
        if taken := [name for name in outputs if name in data]:
            raise TypeError(f"output {taken[0]!r} is an input, too: give it another name")
        return {**data, **outputs}
    inputs = data if isinstance(data, tuple | list) else (data,)
    return (*inputs, *outputs.values())


def fresh_outputs(result: Any, inputs: Inputs, names: Sequence[str]) -> list[torch.Tensor]:
    """The tensors that a step returned: plain, with memory that is neither an input's nor shared.

    Nothing, if the step wrote the outputs that it was given.

    Raises:
        ValueError: With one line that says what is wrong.
    """
    if result is None and inputs.outputs:
        return list(inputs.outputs)
    if issubclass(type(result), dict) and names:
        named = dict(dict.items(result))
        if set(named) != set(names):
            raise ValueError(f"returned {', '.join(map(str, named))}: expected {', '.join(names)}")
        result = [named[name] for name in names]
    items = stored_items(result)
    values = [result] if items is None else items
    for index, value in enumerate(values):
        what = f"output {index}" if len(values) > 1 else "the output"
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{what} is {describe_tensor(value)}: expected a tensor")
        if type(value) is not torch.Tensor or value.layout is not torch.strided:
            raise ValueError(f"{what} is a {type(value).__name__} of layout {value.layout}: "
                             "expected a plain strided torch.Tensor")  # fmt: skip
        if any(shares_memory(value, operand) for operand in inputs.operands):
            raise ValueError(f"{what} lies in the memory of an input: expected memory of its own")
        if any(value.numel() and value.data_ptr() == o.data_ptr() for o in values[:index]):
            raise ValueError(f"{what} lies in the memory of another output")
        if value.device != inputs.arena.flat.device:
            raise ValueError(f"{what} is on {value.device}: expected {inputs.arena.flat.device}")
    return values
