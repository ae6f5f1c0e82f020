"""What a mutant is: an operator applied at one site of one step, and what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cpp_source import Edit, Source, Span, apply

#: The files of a step that operators work on.
FILES = ("kernel.cuh", "launch.cu")
#: Building blocks that operators work on as well: as a part of each kernel that includes them.
BLOCKS = ("cluster_sync.cuh", "group_maps.cuh", "launch_control.cuh", "tile_queue.cuh")
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


def files_of(step: Path) -> dict[str, Path]:
    """What operators work on: the step's files, then the building blocks of its kernel."""
    kernel = (step / FILES[0]).read_text(encoding="utf-8")
    common = step.parent / "common"
    own = {name: step / name for name in FILES}
    return own | {name: common / name for name in BLOCKS if f'#include "{name}"' in kernel}


def _unused(kernel: Source, source: Source, site: Site) -> str:
    """The proof, where a kernel includes a building block but not this function of it."""
    function = source.function_at(site.position)
    called = source.name not in BLOCKS or any(kernel.calls(function))
    return "" if called else "The step's kernel calls other functions of the building block only."


def mutants(step: Path) -> Iterator[Mutant]:
    """Every operator at every site of a step, in the operators' order."""
    sources = {
        name: Source(name, path.read_text(encoding="utf-8"))
        for name, path in files_of(step).items()
    }
    kernel = sources[FILES[0]]
    for each in OPERATORS:
        found = [
            (source, site)
            for name, source in sources.items()
            if name == each.file or (each.file == FILES[0] and name in BLOCKS)
            for site in each.find(source)
        ]
        for number, (source, site) in enumerate(found, 1):
            text = apply(source.text, site.edits)
            assert text != source.text, f"{each.name} changes nothing at {source.name}:{number}"
            yield Mutant(
                step.name,
                each.name,
                number,
                source.name,
                source.line(site.position),
                source.function_at(site.position),
                source.line_text(site.position),
                text,
                site.expect,
                site.proof or _unused(kernel, source, site),
                site.note,
                site.gap,
            )
