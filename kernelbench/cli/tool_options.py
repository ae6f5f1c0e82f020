"""What ``sanitize`` and ``profile`` have in common: one step, one shape, one GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from kernelbench.base import console, seeds
from kernelbench.cli import options
from kernelbench.cli.options import Seconds
from kernelbench.inspection import gpu_tool
from kernelbench.project.context import Context
from kernelbench.runs.runner import StepRun


@dataclass(frozen=True)
class Subject:
    """What a tool is to look at."""

    step: str
    shape: str | None
    device: int
    seed: int  #: As given, or drawn anew.
    timeout: float  #: Seconds for each run of a tool.

    def plan(self, *, small: bool) -> StepRun:
        """The step with its shape; see :func:`kernelbench.inspection.gpu_tool.plan_one`."""
        return gpu_tool.plan_one(
            Context.find(), self.step, self.shape, self.device, small=small, warn=console.warn
        )


def subject_options(default_shape: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of :class:`Subject`, passed as ``subject``; ``default_shape`` is for help."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            *args: Any,
            step: str,
            shape: str | None,
            device: int,
            seed: int | None,
            timeout: float,
            **rest: Any,
        ) -> Any:
            drawn = seeds.new_seed() if seed is None else seed
            return function(*args, subject=Subject(step, shape, device, drawn, timeout), **rest)

        decorated: Callable[..., Any] = command
        for option in (
            click.option(
                "--timeout",
                type=Seconds(0.1),
                default=600.0,
                help="Seconds for each run of a tool.",
            ),
            options.seed_option("the inputs"),
            options.count_option("--device", "CUDA ordinal of the GPU.", least=0, default=0),
            click.option(
                "--shape",
                metavar="NAME",
                help=f"Shape by name or ad hoc (m=40,76:n=512:k=768). Default: {default_shape}.",
            ),
            options.step_argument("step"),
        ):
            decorated = option(decorated)
        return decorated

    return decorate
