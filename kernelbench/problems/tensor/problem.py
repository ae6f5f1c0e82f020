"""The class that a problem of tensors is written as.

Two methods and the fields of a shape are enough::

    class Scale(TensorProblem):
        class Shape:
            rows: int
            columns: int

        depth = 1

        def make_inputs(self, shape, input_class, seed, device):
            generator = torch.Generator(device).manual_seed(seed)
            return torch.randn(shape.rows, shape.columns, generator=generator, device=device)

        def reference(self, x):
            return 3 * x.double()

``problem = "problem.py:Scale"`` in a ``lineage.toml`` names it. No torch is imported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


class TensorProblem:
    """A problem whose data are tensors; everything but three things has a default.

    A subclass has :attr:`Shape`, :meth:`make_inputs`, :meth:`reference`, and either
    :attr:`tolerance` or :attr:`depth`. Each of ``depth``, ``tolerance`` and ``work`` may be a value
    or a method.

    Attributes:
        Shape: A class with annotated fields, made a dataclass if it is none: ``int`` (positive),
            ``float``, ``bool``, ``str``, ``Literal[...]``, ``tuple[int, ...]``. A field with a
            default may be left out. ``__post_init__`` may raise ValueError.
        name: Its key in ``shapes.yaml``; the class's name in small letters if not given.
        input_classes: Names of the input classes, the timed one first.
        benchmark_shapes: What ``--shape all`` means; every shape of the file if empty.
        accumulate: In what a step may accumulate: ``float64``, ``float32``, ``tf32``, ``float16``
            or ``bfloat16``. Only the derived bound asks.
        output_dtype: Dtype of the outputs, or of each, where :meth:`outputs` does not say; the
            dtype of the first floating-point input if None.
    """

    Shape: Any = None
    name: str = ""
    input_classes: tuple[str, ...] = ("normal",)
    benchmark_shapes: tuple[str, ...] = ()
    check_shapes: tuple[str, ...] = ()
    repeatable: bool = True
    accumulate: str = "float32"
    output_dtype: Any = None
    #: ``(rtol, atol)``; a dict of them by input class; or a method of shape and input class.
    tolerance: Any = None
    #: The most roundings on any path from an input to an output, for the derived bound: k for a sum
    #: of k products. A number, or a method of the shape.
    depth: Any = None
    #: A method of the shape: FLOPs of one call, or a whole ``kernelbench.Work``.
    work: Any = None

    def __init_subclass__(cls) -> None:
        if "name" not in vars(cls):
            words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", cls.__name__)
            cls.name = re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", words).lower()

    def make_inputs(self, shape: Any, input_class: str, seed: int, device: str) -> Any:
        """What a step computes from: a tensor, or a tuple or dict of tensors and plain values.

        The same arguments give the same bits. Only tensors depend on the seed.
        """
        raise NotImplementedError("write make_inputs(self, shape, input_class, seed, device)")

    def reference(self, inputs: Any) -> Any:
        """The right answer for what :meth:`make_inputs` gave: a tensor, or a tuple or dict of them.

        In float64, or float32 (whose own error the derived bound allows for); outputs that are not
        floating-point as integers or booleans. It gets copies and may change them.
        """
        raise NotImplementedError("write reference(self, inputs)")

    def outputs(self, shape: Any) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Shape and dtype, by name, of the outputs that a step is given to write; none by default.

        They come last in the data that a step gets, by name if the data are a dict. It may return
        them, tensors of its own, or nothing. Without this hook it returns tensors of its own.
        """
        return {}

    def magnitudes(self, inputs: Any) -> Any:
        """What the terms of each output's sum add up to in absolute value, in float64.

        For a sum of products it is the reference of absolute values. None where no terms of
        opposite signs are added: then it is the reference's own absolute value.
        """
        return None

    @classmethod
    def lacking(cls) -> list[str]:
        """The hooks that have no default and that the class does not have."""
        return [
            hook
            for hook in ("make_inputs", "reference")
            if getattr(cls, hook) is getattr(TensorProblem, hook)
        ]

    def as_problem(self) -> Any:
        """The whole interface of a problem, made of this class."""
        from kernelbench.problems.tensor.adapter import TensorAdapter

        return TensorAdapter(self)
