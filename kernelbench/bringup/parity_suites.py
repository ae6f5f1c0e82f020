"""The parity cases in suites, and which functions of the ptx layer each of them calls."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from kernelbench.bringup.parity_inputs import change_cases, cluster_cases, copy_cases, thread_cases
from kernelbench.bringup.parity_products import (
    control_cases,
    memory_cases,
    pair_loads,
    products,
    wgmma_cases,
)
from kernelbench.bringup.parity_runner import SOURCES, ParityCase
from kernelbench.emulator.settings import Rounding

#: What the tensor cores do to sums, as far as it is modelled.
ROUNDING: Rounding = "hardware"

_FUNCTION = re.compile(r"\bptx::(\w+)(?:<[^<>()]*>)?\(")
_DEFINES = re.compile(r"^(?:.*?PARITY_CASE\((\w+)\)|struct (\w+)|[^(]*?(\w+)\()", re.S)
_ATTRIBUTE = re.compile(r"KB_LAUNCH_BOUNDS\([^)]*\)|KB_DEVICE|KB_GLOBAL")


@dataclass(frozen=True)
class Suite:
    """Cases of one source.

    Attributes:
        backends: Those that run it natively.
        cases: Makes the cases, by name.
    """

    name: str
    stem: str
    backends: tuple[str, ...]
    cases: Callable[[np.random.Generator], dict[str, ParityCase]]

    def works(self, seed: int) -> dict[str, ParityCase]:
        """The cases with inputs of one seed."""
        return self.cases(np.random.default_rng([seed, *self.name.encode()]))


def _exact_products(rng: np.random.Generator) -> dict[str, ParityCase]:
    return {name: product.work() for name, product in products(rng).items()}


_BOTH = ("sm90a", "sm100a")
SUITES = (
    Suite("threads", "parity_threads", _BOTH, thread_cases),
    Suite("copies", "parity_tma", _BOTH, copy_cases),
    Suite("maps", "parity_tma", _BOTH, change_cases),
    Suite("clusters", "parity_clusters", _BOTH, cluster_cases),
    Suite("e4m3", "parity_wgmma", ("sm90a",), lambda rng: wgmma_cases(rng, "e4m3")),
    Suite("f16", "parity_wgmma", ("sm90a",), lambda rng: wgmma_cases(rng, "f16")),
    Suite("tensor-memory", "parity_tensor", ("sm100a",), memory_cases),
    Suite("products", "parity_tensor", ("sm100a",), _exact_products),
    Suite("control", "parity_control", ("sm100a",), control_cases),
    Suite("pair-loads", "parity_control", ("sm100a",), pair_loads),
)


def functions_of(stem: str, case: str) -> frozenset[str]:
    """The functions of the ptx layer that a case calls, by its source.

    A case that a macro defines is taken to call all of its source's.
    """
    blocks = _blocks(stem)
    if case not in blocks:
        return frozenset(_FUNCTION.findall("".join(blocks.values())))
    seen: set[str] = set()
    left = [case]
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += [word for word in re.findall(r"\w+", blocks[name]) if word in blocks]
    return frozenset(name for block in seen for name in _FUNCTION.findall(blocks[block]))


@functools.cache
def _blocks(stem: str) -> dict[str, str]:
    """The definitions at the top of a source and of the headers beside it, by name."""
    found: dict[str, str] = {}
    for text in _texts(stem):
        # clang-format closes what stands at the top in the first column, and nothing else.
        for block in re.split(r"^};?\n", text, flags=re.M):
            code = re.sub(r"//.*|^(?:#|using |inline constexpr ).*", "", block, flags=re.M)
            match = _DEFINES.match(_ATTRIBUTE.sub("", code))
            if match is not None:
                name = next(filter(None, match.groups()))
                found[name] = found.get(name, "") + code
    return found


def _texts(stem: str) -> Iterator[str]:
    text = (SOURCES / f"{stem}.cu").read_text(encoding="utf-8")
    yield text
    for name in re.findall(r'^#include "(\w+\.cuh)"', text, re.M):
        header = SOURCES / name
        if header.is_file() and name != "parity.cuh":
            yield header.read_text(encoding="utf-8")
