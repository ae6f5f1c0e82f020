"""Facts of the hardware, broken one at a time: the steps, which are right, must come out wrong.

That is what makes a step's passing mean something: were the emulator and the step wrong in the same
way about one of these facts, breaking it would not show. Facts that no step relies on yet are shown
by the small kernels of ``test_emu_tma.py`` and ``test_emu_numerics.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelbench import build, compiled
from kernelbench.emulation import DEFAULT_EMULATION
from kernelbench.errors import KernelFault
from kernelbench.lineage_files import read_lineage, read_step
from kernelbench.lineage_model import Step
from kernelbench.problem import Inputs
from kernelbench.problems.group_gemm import PROBLEM
from kernelbench.target import Target

KERNELS = Path(__file__).parents[2] / "kernels"
FACTS = KERNELS / "common" / "backend" / "emu" / "runtime" / "facts.hpp"
TARGET = Target("emulator", "cpu", None, DEFAULT_EMULATION)

ALL = ("v01", "v02", "v03", "v04", "v05", "v06", "v07")
NARROW = ALL[:5]  # tiles of N = 64: half of an atom of scales
#: Groups, rows and columns that do not fill tiles, and two tiles along K.
SHAPE = {"m": [1, 17, 129], "n": 200, "k": 512}
#: All e2m1 codes and scales over their whole range; and every place its own scale.
CLASSES = (("full", 2), ("structured", 2), ("structured", 3))

#: The steps that rely on a fact.
SHOWN_BY = {
    "NoSwizzle": ALL,
    "SwizzleRelative": ALL,  # an MMA's step of K starts inside a row
    "SwizzleRowBit": ALL,
    "ScaleABytesReversed": ALL,
    "ScaleBBytesReversed": ALL,
    "ScaleRolesExchanged": ALL,
    "CopyRowsTimesFour": ALL,
    "ScaleBColumnStep": ALL,
    "ScalesExchanged": ALL,
    "Code7Is5": ALL,
    "ScaleBias": ALL,
    "StrideHalved": ALL,
    "OffsetsExchanged": ALL,
    "AccumulateIgnored": ALL,
    "ScaleBOffsetIgnored": NARROW,
    "Load32x32LaneOrder": ALL,
}
#: Facts that none relies on, and why.
NOT_RELIED_ON = {
    "Load16x256Exchanged": "every epilogue loads 32x32b",
    "PairBInterleaved": "no pairs of CTAs",
    "PairCopyIssuerOnly": "no pairs of CTAs",
    "PairCopyFromLeader": "no pairs of CTAs",
}


def facts() -> dict[str, int]:
    """The facts in facts.hpp with their numbers."""
    names = re.findall(r"^  k(\w+)", FACTS.read_text(), re.MULTILINE)
    assert names[0] == "None" and names[-1] == "Count"
    return {name: number for number, name in enumerate(names)}


def step_named(name: str) -> Step:
    """A step of the lineage."""
    return read_step(KERNELS / name, read_lineage(KERNELS))


@pytest.fixture(scope="module")
def wrong() -> Callable[[str, int], bool]:
    """``wrong(step, fact)``: whether any class of inputs comes out wrong, or as a finding."""
    if build.host_compiler() is None:
        pytest.skip("no C++ compiler")
    shape = PROBLEM.parse_shape("facts", SHAPE)
    drawn = []
    for name, seed in CLASSES:
        inputs = PROBLEM.make_inputs(shape, name, seed, "cpu")
        drawn.append((name, inputs, PROBLEM.reference(inputs, shape, name)))
    loaded: dict[str, tuple[compiled.Entry, Callable[..., object]]] = {}

    def outcome(step: str, fact: int) -> bool:
        if step not in loaded:
            entry = compiled.load_entry(step_named(step), TARGET)
            loaded[step] = entry, compiled.bind(PROBLEM, entry, step_named(step), TARGET)
        entry, kernel = loaded[step]
        assert entry.emulation is not None

        def fails(name: str, inputs: Inputs, reference: object) -> bool:
            assert entry.emulation is not None
            inputs.arena.fill(inputs.arena.draw_poison(fact))
            entry.emulation.configure(DEFAULT_EMULATION, broken_fact=fact)
            try:
                outputs = PROBLEM.outputs_of(kernel(inputs.data), inputs)
            except KernelFault:
                return True
            found = bool(entry.emulation.report()["findings"])
            return found or not PROBLEM.compare(outputs, reference, shape, name).ok

        return any(fails(*each) for each in drawn)

    return outcome


def test_every_fact_has_its_place() -> None:
    assert SHOWN_BY.keys() | NOT_RELIED_ON.keys() == facts().keys() - {"None", "Count"}
    assert not SHOWN_BY.keys() & NOT_RELIED_ON.keys()


@pytest.mark.parametrize("step", ALL)
def test_with_all_facts_steps_are_right(wrong: Callable[[str, int], bool], step: str) -> None:
    assert not wrong(step, 0)


@pytest.mark.parametrize("fact", SHOWN_BY)
def test_a_broken_fact_makes_steps_wrong(wrong: Callable[[str, int], bool], fact: str) -> None:
    assert tuple(step for step in ALL if wrong(step, facts()[fact])) == SHOWN_BY[fact]


@pytest.mark.parametrize("fact", NOT_RELIED_ON)
def test_no_step_relies_on_it(wrong: Callable[[str, int], bool], fact: str) -> None:
    # Once a step does, its place is in the other table.
    assert not any(wrong(step, facts()[fact]) for step in ALL), NOT_RELIED_ON[fact]
