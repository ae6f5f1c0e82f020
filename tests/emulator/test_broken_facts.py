"""Facts of the hardware, broken one at a time: the steps, which are right, must come out wrong.

That is what makes a step's passing mean something: were the emulator and the step wrong in the same
way about one of these facts, breaking it would not show. Facts that no step relies on yet are shown
by the small kernels of ``test_emu_tma.py`` and ``test_emu_numerics.py``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from conftest import ROOT

from kernelbench.build import compiler
from kernelbench.emulator.settings import DEFAULT_EMULATION
from kernelbench.executors.emulated import EMULATOR
from kernelbench.kinds import compiled
from kernelbench.kinds.loaded_step import KernelFault
from kernelbench.problems.group_gemm.problem import PROBLEM
from kernelbench.project.problem import Inputs
from kernelbench.project.project_file import project_at
from kernelbench.project.registry import Step, load_lineages
from kernelbench.project.source_files import sources_of

FACTS = ROOT / "kernels" / "common" / "backend" / "emu" / "runtime" / "facts.hpp"

#: Groups, rows and columns that do not fill tiles, and two tiles along K.
SHAPE = {"m": [1, 17, 129], "n": 200, "k": 512}
#: All e2m1 codes and scales over their whole range; and every place its own scale.
CLASSES = (("full", 2), ("structured", 2), ("structured", 3))


@dataclass(frozen=True)
class Use:
    """What of a step decides on which facts it relies.

    Attributes:
        tile_n, tile_k: Columns of C that a CTA computes at a time, and elements along K of a stage.
        pair: Whether two CTAs compute one product (``cta_group::2``).
    """

    tile_n: int
    tile_k: int
    pair: bool


def use_of(step: Step) -> Use:
    """From the step's config and its kernel's source."""
    _, tile_n, tile_k = step.config["tile"]
    kernel = sources_of(step)["kernel.cuh"].read_text(encoding="utf-8")
    return Use(tile_n, tile_k, "cta_group_2" in kernel)


def right_steps() -> dict[str, Step]:
    """Every step of the main line, and a repaired experiment for each use that the line lacks."""
    steps = load_lineages(project_at(ROOT)).steps_of("group_gemm")
    chosen = [step for step in steps if step.compiled and not step.experiment]
    uses = {use_of(step) for step in chosen}
    for step in steps:
        if step.status == "fixed" and use_of(step) not in uses:
            chosen.append(step)
            uses.add(use_of(step))
    return {step.name: step for step in chosen}


STEPS = right_steps()


def ends_of_each_use() -> list[str]:
    """The first and the last step of each use: what `make test` builds; the others are long."""
    by_use: dict[Use, list[str]] = {}
    for name, step in STEPS.items():
        by_use.setdefault(use_of(step), []).append(name)
    return sorted({name for names in by_use.values() for name in (names[0], names[-1])})


ENDS = ends_of_each_use()
some_and_all_steps = pytest.mark.parametrize(
    "steps",
    [pytest.param(ENDS, id="ends"), pytest.param([*STEPS], id="all", marks=pytest.mark.long)],
)


def every_step(_use: Use) -> bool:
    return True


def scales_from_inside_an_atom(use: Use) -> bool:
    return use.tile_n < 128


def products_from_inside_a_row(use: Use) -> bool:
    return use.tile_k > 64  # a product takes 64 elements along K


def pairs(use: Use) -> bool:
    return use.pair


#: The steps that rely on a fact.
SHOWN_BY: dict[str, Callable[[Use], bool]] = {
    "NoSwizzle": every_step,
    "SwizzleRelative": products_from_inside_a_row,
    "SwizzleRowBit": every_step,
    "ScaleABytesReversed": every_step,
    "ScaleBBytesReversed": every_step,
    "ScaleRolesExchanged": every_step,
    "CopyRowsTimesFour": every_step,
    "ScaleBColumnStep": every_step,
    "ScalesExchanged": every_step,
    "Code7Is5": every_step,
    "ScaleBias": every_step,
    "StrideHalved": every_step,
    "OffsetsExchanged": every_step,
    "AccumulateIgnored": every_step,
    "ScaleBOffsetIgnored": scales_from_inside_an_atom,
    "Load32x32LaneOrder": every_step,
    "PairBInterleaved": pairs,
    "PairCopyIssuerOnly": pairs,
    "PairCopyFromLeader": pairs,
}
#: Facts that none relies on, and why.
NOT_RELIED_ON = {"Load16x256Exchanged": "every epilogue loads 32x32b"}


def facts() -> dict[str, int]:
    """The facts in facts.hpp with their numbers."""
    names = re.findall(r"^  k(\w+)", FACTS.read_text(), re.MULTILINE)
    assert names[0] == "None" and names[-1] == "Count"
    return {name: number for number, name in enumerate(names)}


@pytest.fixture(scope="module")
def wrong() -> Callable[[str, int], bool]:
    """``wrong(step, fact)``: whether any class of inputs comes out wrong, or as a finding."""
    if compiler.host_compiler() is None:
        pytest.skip("no C++ compiler")
    shape = PROBLEM.parse_shape("facts", SHAPE)
    drawn = []
    for name, seed in CLASSES:
        inputs = PROBLEM.make_inputs(shape, name, seed, "cpu")
        drawn.append((name, inputs, PROBLEM.reference(inputs, shape, name)))

    opened = functools.cache(lambda step: EMULATOR.open(STEPS[step]))

    def outcome(step: str, fact: int) -> bool:
        entry = opened(step)
        kernel = compiled.bind_problem(PROBLEM, entry, STEPS[step], "cpu")

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


@pytest.mark.parametrize(
    "step", [each if each in ENDS else pytest.param(each, marks=pytest.mark.long) for each in STEPS]
)
def test_with_all_facts_steps_are_right(wrong: Callable[[str, int], bool], step: str) -> None:
    assert not wrong(step, 0)


@some_and_all_steps
@pytest.mark.parametrize("fact", SHOWN_BY)
def test_a_broken_fact_makes_steps_wrong(
    wrong: Callable[[str, int], bool], fact: str, steps: list[str]
) -> None:
    relying = [name for name in steps if SHOWN_BY[fact](use_of(STEPS[name]))]
    assert relying, "then its place is in the other table"
    assert [name for name in steps if wrong(name, facts()[fact])] == relying


@some_and_all_steps
@pytest.mark.parametrize("fact", NOT_RELIED_ON)
def test_no_step_relies_on_it(
    wrong: Callable[[str, int], bool], fact: str, steps: list[str]
) -> None:
    # Once a step does, its place is in the other table.
    assert not any(wrong(step, facts()[fact]) for step in steps), NOT_RELIED_ON[fact]
