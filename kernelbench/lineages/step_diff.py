"""What changes from one step to another beside its text: settings, resources, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kernelbench.inspection import by_kind, resources
from kernelbench.inspection.resources import Code, Inspection
from kernelbench.lineages import scaffold
from kernelbench.lineages.source_diff import SourceDiff, source_diff
from kernelbench.lineages.tree import TreeVerdict, times_of, verdicts_between
from kernelbench.project.registry import Step, require_runnable
from kernelbench.records import ledger
from kernelbench.records.run_record import RunRecord

SCHEMA: Literal["kernelbench.diff/1"] = "kernelbench.diff/1"

#: Rows of a kernel's resources: label, attribute of ``Code``.
_RESOURCES = (
    ("registers", "registers"),
    ("spill stores, B", "spill_store_bytes"),
    ("stack frame, B", "stack_bytes"),
    ("static shared memory, B", "static_shared_bytes"),
    ("threads", "threads"),
    ("CTAs per SM", "ctas_per_sm"),
    ("machine code, B", "code_bytes"),
)
#: Labels of constants that do not read well as they are.
_CONSTANTS = {"shared_bytes": "dynamic shared memory, B", "tmem_columns": "TMEM columns"}
#: What is shown also where it stays.
_ALWAYS = ("registers", "stages", "tmem_columns", "shared_bytes")


@dataclass(frozen=True)
class Change:
    """A quantity before and after, as text; None where a step has no such thing."""

    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class KernelChange:
    """A kernel's resources; ``before_name`` and ``after_name`` differ where it was renamed.

    None is a kernel that only the other step has.
    """

    before_name: str | None
    after_name: str | None
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class FigureChange:
    """Two figures of the same kind."""

    #: ``reported`` by the lineage's source, or ``measured`` in runs of their own, which is no
    #: comparison: that is a verdict's.
    source: Literal["reported", "measured"]
    device: str
    shape: str
    metric: str  #: With the L2 mode, where measured.
    unit: str
    before: float
    after: float
    change: float  #: From the first to the second, as a fraction.


@dataclass(frozen=True)
class StepDiff:
    """All that ``kernelbench diff`` tells of two steps."""

    schema: Literal["kernelbench.diff/1"]
    base: str
    cand: str
    title: str
    technique: str  #: The second step's idea, in one line.
    source: SourceDiff
    settings: tuple[Change, ...]  #: Config and GPU flags that differ.
    constants: tuple[Change, ...]  #: Of ``kb::Description``.
    kernels: tuple[KernelChange, ...]
    remarks: tuple[str, ...]  #: What ``step.toml`` says that the code does not, a line each.
    #: Why resources or constants are missing, a line each; nothing where they were not asked for.
    not_built: tuple[str, ...]
    figures: tuple[FigureChange, ...]
    #: Comparisons of these two in the ledger, either being the candidate.
    verdicts: tuple[TreeVerdict, ...]


def step_diff(
    base: Step,
    cand: Step,
    runs: Iterable[RunRecord],
    comparisons: Iterable[ledger.LedgerEntry],
    *,
    build: bool = True,
) -> StepDiff:
    """Compare two steps.

    Args:
        runs: Saved runs, oldest first; ``comparisons``: the ledger, likewise.
        build: Whether to ask the compilers for constants and resources.

    Raises:
        PlannedStepError: If one of them has no code yet.
        UsageError: If the code of one is missing.
    """
    for step in (base, cand):
        require_runnable(step)
    found, missing = _inspected(base, cand) if build else ((None, None), [])
    source = source_diff(base, cand)
    remarks = [*_contradictions(cand, found[1])]
    if source.files and scaffold.still_a_copy(cand):
        remarks.insert(0, f"{cand.name}: technique in step.toml does not say yet what changes")
    return StepDiff(
        schema=SCHEMA,
        base=base.name,
        cand=cand.name,
        title=cand.title,
        technique=cand.technique,
        source=source,
        settings=tuple(_settings(base, cand)),
        constants=tuple(_constants(*found)),
        kernels=tuple(_kernels(*found)),
        remarks=tuple(remarks),
        not_built=tuple(missing),
        figures=(*_reported(base, cand), *_measured(base, cand, runs)),
        verdicts=verdicts_between(base.name, cand.name, comparisons),
    )


def _settings(base: Step, cand: Step) -> Iterator[Change]:
    before, after = ({**s.config, "gpu_flags": list(s.gpu_flags)} for s in (base, cand))
    for key in dict.fromkeys([*before, *after]):
        old, new = (_shown(side.get(key)) for side in (before, after))
        if old != new:
            yield Change(key, old, new)


def _shown(value: Any) -> str | None:
    if value is None or value == []:
        return None
    if isinstance(value, list):
        return ("×" if all(isinstance(item, int) for item in value) else " ").join(map(str, value))
    return str(value)


def _contradictions(step: Step, found: Inspection | None) -> Iterator[str]:
    """Settings of a step that are not its code's constants."""
    if found is None or found.constants is None:
        return
    code = found.constants
    constants: dict[str, Any] = {
        name: code[name] for name in ("stages", "accumulators", "tmem_columns")
    }
    constants["tile"] = [code["tile_m"], code["tile_n"], code["tile_k"]]
    constants["warps"] = code["threads"] // 32
    constants["cluster"] = [code["cluster"], 1, 1]
    for name, constant in constants.items():
        said = step.config.get(name, constant)
        if said != constant:
            both = f"step.toml says {name} = {_shown(said)}, the code {_shown(constant)}"
            yield f"{step.name}: {both}"


def _inspected(
    base: Step, cand: Step
) -> tuple[tuple[Inspection | None, Inspection | None], list[str]]:
    """Both steps as the compilers see them; None for one that they do not see."""
    found: list[Inspection | None] = []
    missing: list[str] = []
    for step in (base, cand):
        inspected: Inspection | None = None
        if step.kind == "triton":
            # It has kernels, which only a call of it shows.
            inspected = Inspection(step.name, step.title, None, (), (), (), step.kind)
            shown = f"`kernelbench inspect {step.name}` shows what is compiled"
            missing.append(f"{step.in_words}: {shown}")
        elif not step.built:
            missing.append(step.in_words)
        else:
            if step.kind in ("cuda", "ptx"):
                inspected = by_kind.inspect_cuda(step, by_kind.inspected_arch(step))
            else:
                inspected = resources.inspect(step, step.arch)
            missing += inspected.missing
            if not (inspected.builds or inspected.missing):
                missing.append(f"{step.name}: no nvcc, so no registers and no machine code")
        found.append(inspected)
    return (found[0], found[1]), missing


def _constants(base: Inspection | None, cand: Inspection | None) -> Iterator[Change]:
    if not (base and cand and base.constants is not None and cand.constants is not None):
        return
    for name, before in base.constants.items():
        after = cand.constants[name]
        if before != after or (name in _ALWAYS and before):
            label = _CONSTANTS.get(name, name.replace("_", " "))
            yield Change(label, str(before), str(after))


def _kernels(base: Inspection | None, cand: Inspection | None) -> Iterator[KernelChange]:
    # A step that could not be built has kernels, too, only nobody knows which.
    if any(found is not None and not found.builds for found in (base, cand)):
        return
    old, new = ([code for build in found.builds for code in build.code] if found else []
                for found in (base, cand))  # fmt: skip
    for before, after in _pairs(old, new):
        yield KernelChange(
            before.kernel if before else None,
            after.kernel if after else None,
            tuple(_resources(before, after)) if before and after else (),
        )


def _pairs(old: Sequence[Code], new: Sequence[Code]) -> Iterator[tuple[Code | None, Code | None]]:
    """Kernels of one name; two that are each their step's only one, whatever their names."""
    if len(old) == len(new) == 1:
        yield old[0], new[0]
        return
    before, after = ({code.kernel: code for code in codes} for codes in (old, new))
    for name in dict.fromkeys([*before, *after]):
        yield before.get(name), after.get(name)


def _resources(before: Code, after: Code) -> Iterator[Change]:
    for label, attribute in _RESOURCES:
        old, new = (getattr(code, attribute) for code in (before, after))
        if old != new or (label in _ALWAYS and old is not None):
            yield Change(label, _shown(old), _shown(new))


def _reported(base: Step, cand: Step) -> Iterator[FigureChange]:
    old, new = base.reported, cand.reported
    if old is None or new is None:
        return
    if (old.device, old.metric, old.unit) != (new.device, new.metric, new.unit):
        return
    for shape, after in new.values.items():
        if shape in old.values:
            before = old.values[shape]
            yield FigureChange(
                "reported", new.device, shape, new.metric, new.unit, before, after,
                after / before - 1,
            )  # fmt: skip


def _measured(base: Step, cand: Step, runs: Iterable[RunRecord]) -> Iterator[FigureChange]:
    times = times_of(runs)
    before: Mapping[tuple[str, ...], float] = {
        (m.device, m.shape, m.metric, m.l2): m.time.median for m in times.get(base.name, ())
    }
    for found in times.get(cand.name, ()):
        old = before.get((found.device, found.shape, found.metric, found.l2))
        if old is not None:
            after = found.time.median
            yield FigureChange(
                "measured", found.device, found.shape, f"{found.metric}, {found.l2} L2", "us",
                old, after, after / old - 1,
            )  # fmt: skip
