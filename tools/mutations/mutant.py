"""What a mutant is: an operator applied at one site of one step, and what is expected of it."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cpp_source import Edit, Source, SourceError, Span, apply
from equivalents import BY_HAND

#: The files of a step that operators work on.
FILES = ("kernel.cuh", "launch.cu")
#: Building blocks that operators work on as well: as a part of each kernel that includes them.
BLOCKS = (
    "accumulators.cuh", "block_scaled_mma.cuh", "cluster_ring_drain.cuh", "cluster_sync.cuh",
    "group_maps.cuh", "launch_control.cuh", "operand_maps.cuh", "operand_maps_in_use.cuh",
    "output_map.cuh", "ring_drain.cuh", "scaled_stage.cuh", "stage_load.cuh", "stage_reset.cuh",
    "stage_ring.cuh", "tile_queue.cuh",
)  # fmt: skip
#: Those of the fused MoE.
MOE_BLOCKS = (
    "fp8_block.cuh", "fp8_map.cuh", "fp8_tile.cuh", "fp8_wgmma.cuh", "route.cuh",
    "scatter_row.cuh", "top_k.cuh", "warp_values.cuh",
)  # fmt: skip
#: The kind of an expectation that is met by a wrong result.
WRONG = "wrong-result"
#: And of one that is met by a call that says what it cannot do.
FAILED = "failed-call"
#: What a wrong result is called when it comes from a read of what nothing has written.
UNWRITTEN = "unwritten"


@dataclass(frozen=True)
class Expectation:
    """What counts as the right diagnosis; written down with the operator, before any run.

    Attributes:
        kinds: Classes of findings, or :data:`WRONG` for mutations of data alone, or
            :data:`FAILED` for those that no launch can have.
        objects: Barriers and buffers that a finding should name, as ``objects.py`` spells them.
            A finding of a class without an object has to be in one of ``roles`` instead.
        roles: Functions of the step; the mutated one if empty.
    """

    kinds: frozenset[str]
    objects: frozenset[str]
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Site:
    """One place where an operator applies.

    Attributes:
        proof: Why no execution can tell the mutant from the step; empty for real mutants.
        gap: What the checker does not model, where a real mutant is not expected to be found.
        note: Which of several variants at one place, e.g. the operand that is forgotten.
    """

    position: int
    edits: tuple[Edit, ...]
    expect: Expectation
    proof: str = ""
    note: str = ""
    gap: str = ""


Find = Callable[[Source], Iterable[Site]]


@dataclass(frozen=True)
class Operator:
    """A mechanical change.

    Attributes:
        file: The file of a step that it works on; ``kernel.cuh`` stands for its blocks too.
        what: What it does, in a few words.
    """

    name: str
    file: str
    what: str
    find: Find


@dataclass(frozen=True)
class Mutant:
    """An operator at a site.

    Attributes:
        number: Counts an operator's sites in the step, from 1.
        code: The mutated line as it was.
    """

    step: str
    operator: str
    number: int
    file: str
    line: int
    function: str
    code: str
    text: str
    expect: Expectation
    proof: str
    note: str
    gap: str

    @property
    def id(self) -> str:
        return f"{self.step}-{self.operator}-{self.number}"


OPERATORS: list[Operator] = []


def operator(name: str, what: str, file: str = "kernel.cuh") -> Callable[[Find], Find]:
    """Register an operator."""

    def register(find: Find) -> Find:
        assert file in FILES, file
        assert all(each.name != name for each in OPERATORS), name
        OPERATORS.append(Operator(name, file, what, find))
        return find

    return register


def expect(kinds: str, *objects: str | Iterable[str], roles: str = "") -> Expectation:
    """``expect("hang phase", "full", STAGES)``."""
    names: set[str] = set()
    for each in objects:
        names |= {each} if isinstance(each, str) else set(each)
    return Expectation(frozenset(kinds.split()), frozenset(names), frozenset(roles.split()))


def drop(span: Span) -> Edit:
    """Remove a statement; what remains is an empty one, right behind an ``if`` too."""
    return Edit(span, ";")


def kernels_of(step: Path) -> tuple[str, ...]:
    """The names of a step's kernel files: ``kernel.cuh``, or all headers where there is none."""
    headers = sorted({file.name for folder in _folders(step) for file in folder.glob("*.cuh")})
    return tuple([FILES[0]] if FILES[0] in headers else headers)


def _folders(step: Path) -> list[Path]:
    """A step's folder and those of its bases, in the order in which files are looked for."""
    found = [step]
    while base := _toml(found[-1]).get("base"):
        found.append(step.parent / base)
    return found


def _toml(step: Path) -> dict[str, Any]:
    return tomllib.loads((step / "step.toml").read_text(encoding="utf-8"))


def files_of(step: Path) -> dict[str, Path]:
    """What operators work on: the step's files, then the building blocks of its kernels."""
    folders = _folders(step)
    own = {
        name: next(folder / name for folder in folders if (folder / name).is_file())
        for name in (*kernels_of(step), FILES[1])
    }
    included = _included(own.values(), step.parent / "common")
    return own | {name: included[name] for name in (*BLOCKS, *MOE_BLOCKS) if name in included}


def _included(files: Iterable[Path], common: Path) -> dict[str, Path]:
    """The known building blocks that files include, themselves or through others."""
    names = {
        name
        for file in files
        for name in re.findall(r'#include "(\w+\.cuh)"', file.read_text(encoding="utf-8"))
    }
    there = {
        name: common / name
        for name in names.intersection((*BLOCKS, *MOE_BLOCKS))
        if (common / name).is_file()
    }
    return there | _included(there.values(), common) if there else {}


_UNUSED = "The step's kernel calls other functions of the building block only."


def _callers(
    kernels: Sequence[Source], launch: Source, blocks: Sequence[Source], function: str
) -> set[str]:
    """The kernels' functions that call one of a block, themselves or through others of blocks.

    A finding in a building block is in the step's function that has called it. One that is
    launched itself counts as well.
    """

    def calling(sources: Sequence[Source]) -> set[str]:
        return {
            source.function_at(call.span.start)
            for source in sources
            for call in source.calls(function)
        }

    found = calling(kernels) | ({function} if any(launch.find(rf"\b{function}[<,]")) else set())
    through = calling(blocks) - {function}
    return found.union(*(_callers(kernels, launch, blocks, each) for each in through))


def _in_block(callers: set[str], function: str, site: Site) -> Site:
    """A site of a building block's function as one of the kernels that call it."""
    roles = site.expect.roles or callers | {function}
    expected = dataclasses.replace(site.expect, roles=frozenset(roles))
    return dataclasses.replace(
        site, expect=expected, proof=site.proof or ("" if callers else _UNUSED)
    )


def mutants(step: Path) -> Iterator[Mutant]:
    """Every operator at every site of a step, in the operators' order."""
    kernels = kernels_of(step)
    sources = {
        name: Source(name, path.read_text(encoding="utf-8"), guesses=kernels != FILES[:1])
        for name, path in files_of(step).items()
    }
    own, launch = [sources[name] for name in kernels], sources[FILES[1]]
    blocks = [source for source in sources.values() if source not in (*own, launch)]

    def as_own(source: Source, site: Site) -> Site:
        function = source.function_at(site.position)
        if source not in blocks or not function:
            return site
        return _in_block(_callers(own, launch, blocks, function), function, site)

    for each in OPERATORS:
        mutated = [*own, *blocks] if each.file == FILES[0] else [launch]
        try:
            found = [
                (source, as_own(source, site)) for source in mutated for site in each.find(source)
            ]
        except SourceError:
            if not own[0].guesses:
                raise
            continue  # an operator on the maps of the group GEMM's operands
        for number, (source, site) in enumerate(found, 1):
            text = apply(source.text, site.edits)
            line, code = source.line(site.position), source.line_text(site.position)
            assert text != source.text, f"{each.name} changes nothing at {source.name}:{number}"
            yield Mutant(
                step.name,
                each.name,
                number,
                source.name,
                line,
                source.function_at(site.position),
                code,
                text,
                site.expect,
                site.proof or BY_HAND.get((each.name, source.name, line, code), ""),
                site.note,
                site.gap,
            )
