import dataclasses
from typing import TypedDict, TypeVar

import torch

input_t = TypeVar("input_t", bound=tuple)
output_t = TypeVar("output_t", bound=torch.Tensor)


@dataclasses.dataclass
class KernelSpec:
    stride: int
    padding: int


class TestSpec(TypedDict):
    size: int
    seed: int
