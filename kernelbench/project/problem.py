"""The interface of a problem: what the harness needs to know to check and time any step of it.

A problem states its data, its exact reference, its tolerance, and the work that it takes. The
harness knows nothing else of it, so a lineage of another problem only needs another
implementation of :class:`Problem`, named in the lineage's ``lineage.toml``.

Modules that implement a problem import torch inside functions only: listing steps, parsing shapes
and comparing tables must not pay for the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernelbench.base.errors import ProblemError
from kernelbench.project.model import Step

if TYPE_CHECKING:
    import torch

    from kernelbench.project.arena import GuardedOutputs


#: A step's callable on its problem's data.
Kernel = Callable[[Any], Any]


class Shape(Protocol):
    """One benchmark shape. Implementations are frozen dataclasses; ``name`` identifies it."""

    @property
    def name(self) -> str:
        """The shape's name in ``shapes.yaml``, or the ad-hoc specification itself."""

    def describe(self) -> str:
        """The dimensions in one short line, e.g. ``g=2 m=192,320 n=3072 k=4096``."""


@dataclass
class Inputs:
    """One drawn set of operands, with outputs to be written.

    Attributes:
        data: What the step's callable receives, in the layout of the problem's public interface.
        operands: Every tensor inside ``data`` that the step may read. A step must not change them.
        outputs: Every tensor inside ``data`` that the step must write, in the order in which the
            callable returns them. They are views into ``arena``. None if a step of this problem
            returns tensors of its own.
        arena: The storage of the outputs, with guard bands, that the checker poisons; without
            outputs an empty one.
        plain: What else in ``data`` a step computes from: numbers, flags. It belongs to the shape
            and the input class; a seed draws tensors only, but where a problem has
            ``forms_vary = True``.
    """

    data: Any
    operands: list[torch.Tensor]
    outputs: list[torch.Tensor]
    arena: GuardedOutputs
    plain: tuple[Any, ...] = ()


def interchangeable(one: Inputs, other: Inputs) -> bool:
    """Whether the operands of two sets can take each other's values."""
    return (
        repr(one.plain) == repr(other.plain)
        and len(one.operands) == len(other.operands)
        and all(
            a.shape == b.shape and a.dtype == b.dtype
            for a, b in zip(one.operands, other.operands, strict=True)
        )
    )


def refill(target: Inputs, source: Inputs) -> None:
    """Overwrite the operands of ``target`` in place with the values of ``source``.

    Raises:
        ProblemError: If one seed's data differ from the other's in more than values of tensors.
    """
    from kernelbench.project.arena import bits, describe_tensor

    said = "make_inputs gives data for one seed that cannot take another's values"
    if repr(target.plain) != repr(source.plain):
        raise ProblemError(
            f"{said}: plain values {source.plain!r} for {target.plain!r}",
            "take them from the shape and the input class, and only tensors from the seed",
        )
    if len(target.operands) != len(source.operands):
        raise ProblemError(f"{said}: {len(source.operands)} for {len(target.operands)} tensors")
    for index, (operand, value) in enumerate(zip(target.operands, source.operands, strict=True)):
        if operand.shape != value.shape or operand.dtype != value.dtype:
            raise ProblemError(
                f"{said}: tensor {index} is {describe_tensor(value)} for {describe_tensor(operand)}"
            )
        bits(operand).copy_(bits(value))


class OutputTensors(list["torch.Tensor"]):
    """Outputs of a problem whose steps return them inside something else."""

    def __init__(self, tensors: Iterable[torch.Tensor], form: Any) -> None:
        super().__init__(tensors)
        self.form = form  #: What the problem needs to put them back where they were.


def copied(outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies of what :meth:`Problem.outputs_of` gave, for :meth:`Problem.compare` to judge."""
    copies = [output.clone() for output in outputs]
    return OutputTensors(copies, outputs.form) if isinstance(outputs, OutputTensors) else copies


@dataclass(frozen=True)
class OutputVerdict:
    """The verdict on one set of outputs."""

    ok: bool  #: Whether every element is within the tolerance of its input class.
    #: Whether every element equals the reference rounded once to the output dtype; None where the
    #: problem does not say.
    exact: bool | None
    #: Largest absolute error against the reference; None if any value is not finite, and where the
    #: problem does not say.
    max_abs_err: float | None
    reason: str = ""  #: Empty when ``ok``; else one line that locates the worst element.
    #: Root mean square error over the root mean square of the reference; None where ``max_abs_err``
    #: is, and where the problem does not say.
    rel_rms_err: float | None = None


@dataclass(frozen=True)
class Work:
    """What one call of a shape must do at least.

    Attributes:
        flops: Floating-point operations, an FMA counted as two.
        bytes_read: Bytes that must be read, each input once.
        bytes_written: Bytes that must be written, each output once.
        precision: Key of the arithmetic rate in ``roofline`` (``fp4``, ``fp8``, ``fp16``, ...):
            the fastest format that computes the problem exactly enough to pass its check.
    """

    flops: float
    bytes_read: float
    bytes_written: float
    precision: str
    notes: tuple[str, ...] = ()

    @property
    def bytes_total(self) -> float:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written


def mean_work(works: Sequence[Work]) -> Work:
    """What a call must do on average over inputs that take turns, as many of each."""
    first = works[0]
    if all(each == first for each in works):
        return first
    notes = dict.fromkeys(note for each in works for note in each.notes)
    sums = map(sum, zip(*((w.flops, w.bytes_read, w.bytes_written) for w in works), strict=True))
    flops, read, written = (each / len(works) for each in sums)
    said = (f"mean of {len(works)} draws: {'; '.join(notes)}",) if notes else ()
    return Work(flops, read, written, first.precision, said)


class Problem(Protocol):
    """A problem that steps solve. See ``problems/group_gemm`` for the model implementation."""

    name: str
    #: Names of the input classes, the timed one first.
    input_classes: tuple[str, ...]
    #: Shapes that ``--shape all`` means.
    benchmark_shapes: tuple[str, ...]

    def parse_shape(self, name: str, fields: Mapping[str, Any]) -> Shape:
        """Build a shape from the fields of a ``shapes.yaml`` entry or of ``--shape m=..:n=..``.

        Raises:
            ValueError: With one line that says which field is wrong and what was expected.
        """

    def make_inputs(self, shape: Any, input_class: str, seed: int, device: str) -> Inputs:
        """Draw operands deterministically from ``seed`` on ``device`` (``cpu`` or ``cuda:N``).

        The same arguments give the same bits. Outputs are allocated, not initialized.
        """

    def outputs_of(self, result: Any, inputs: Inputs) -> list[torch.Tensor]:
        """The output tensors in what a step returned, validated but for their values.

        Raises:
            ValueError: If the result has the wrong type, count, shape, dtype or device.
        """

    def reference(self, inputs: Inputs, shape: Any, input_class: str) -> Any:
        """The reference for these operands, in float64, with what :meth:`compare` needs."""

    def compare(
        self, outputs: Sequence[torch.Tensor], reference: Any, shape: Any, input_class: str
    ) -> OutputVerdict:
        """Judge outputs against a reference with the tolerance of the input class."""

    def broken_limit(self, shape: Any, limits: Mapping[str, Any]) -> str:
        """Which of a step's ``[limits]`` the shape breaks, in one line; empty if none."""

    def work(self, shape: Any, inputs: Inputs | None = None) -> Work:
        """FLOPs and bytes of one call; exact for the drawn ``inputs`` where they matter."""


@dataclass(frozen=True)
class Case:
    """A shape with one class of inputs: what is drawn for it, and how outputs are judged."""

    problem: Problem
    shape: Any
    input_class: str

    def __str__(self) -> str:
        return f"shape {self.shape.name}, inputs {self.input_class}"

    def draw(self, seed: int, device: str) -> Inputs:
        """See :meth:`Problem.make_inputs`."""
        return self.problem.make_inputs(self.shape, self.input_class, seed, device)

    def reference(self, inputs: Inputs) -> Any:
        """See :meth:`Problem.reference`."""
        return self.problem.reference(inputs, self.shape, self.input_class)

    def compare(self, outputs: Sequence[torch.Tensor], reference: Any) -> OutputVerdict:
        """See :meth:`Problem.compare`."""
        return self.problem.compare(outputs, reference, self.shape, self.input_class)


def judging(problem: Problem, *steps: Step) -> Problem:
    """The problem as these steps are judged by it: itself, or what its ``for_steps`` gives.

    That is one with the narrowest tolerance that all of them can meet, by their ``[config]``.
    """
    for_steps: Callable[[Sequence[Step]], Problem] | None = getattr(problem, "for_steps", None)
    return problem if for_steps is None else for_steps(steps)
